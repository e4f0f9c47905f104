"""One ledger: who is in, what was refused and why, from its log and its list of refusals."""

from __future__ import annotations

import json
from pathlib import Path

from headstart.deploy import ledger_dir
from headstart.deploy.ledger_index import LedgerIndex
from headstart.deploy.log import Record
from headstart.deploy.log_tail import LogTail
from headstart.deploy.nodes import NODES
from headstart.errors import HeadstartError
from headstart.live.run_view import News, Row
from headstart.live.tail import Tail, read_whole
from headstart.live.values import seconds, text

_NODES_BYTES = 2**24


class LedgerView:
    """A ledger's folder. It is opened when it is there; damage is shown, not raised."""

    kind = "ledger"

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self._open: tuple[LedgerIndex, LogTail] | None = None
        self._refusals = Tail(path / "refusals.jsonl")
        self._begin()

    def _begin(self) -> None:
        self.facts: Row = {"status": "waiting"}
        self.refused: dict[str, str] = {}  # client: why
        self._told, self._samples, self._bytes = False, 0, 0
        self._rows: dict[int, Row] = {}  # of uploads, by record

    def poll(self) -> Row | None:
        """What is new, or None."""
        try:
            return self._poll()
        except (HeadstartError, OSError, ValueError, KeyError, TypeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if self.facts.get("why") == why:
                return None
            self._begin()
            self._open, self.facts = None, {"status": "stopped", "why": text(why)}
            return {"reset": True, "facts": self.facts, **News().plain()}

    def _poll(self) -> Row | None:
        if self._open is None:
            if not ledger_dir.is_ledger(self.path):
                return None
            self._start()
        assert self._open is not None
        index, log = self._open
        records = log.new()
        again, refusals = self._refusals.new()
        reset = records is None or again
        if reset:  # a forgetting: from the beginning, without it
            self._start()
            index, log = self._open
            records, (_, refusals) = log.new() or [], self._refusals.new()
        new = News()
        for record in records or []:
            self._fold(index, record, new)
        for line in refusals:
            self._refuse(index, line, new)
        if self._told and not (reset or records or refusals):
            return None
        self._told = True
        return {"reset": reset, "facts": self._facts(index), **new.plain()}

    def _start(self) -> None:
        contract, _, key = ledger_dir.read(self.path)
        self._begin()
        self._refusals = Tail(self.path / "refusals.jsonl")
        self._open = LedgerIndex(contract.round, key), LogTail(self.path / "log", key)
        title = f"{contract.head.title}, round {contract.round}"
        self.facts = {"status": "open", "pipeline": text(title)}

    def _fold(self, index: LedgerIndex, record: Record, new: News) -> None:
        gone = index.uploads.get(record.meta.get("upload", 0))
        index.apply(record.number, record.meta, record.size)
        if record.meta["kind"] == "upload":
            entry = index.uploads[record.number]
            self._samples += entry.samples
            self._bytes += entry.size
            who = text(", ".join(entry.clients))
            row = {"client": who, "state": "in", "samples": entry.samples, "bytes": entry.size}
            self.refused.pop(who, None)
            new.clients[who] = row
        elif record.meta["kind"] == "forgotten" and gone is not None:
            self._samples -= gone.samples
            self._bytes -= gone.size
            new.clients.pop(text(", ".join(gone.clients)), None)

    def _refuse(self, index: LedgerIndex, line: Row, new: News) -> None:
        names = line.get("clients")
        if not isinstance(names, list) or any(index.left(str(name)) for name in names):
            return
        who = text(", ".join(map(str, names)))
        why = text(line.get("text")) or text(line.get("code"))
        when = seconds(line.get("time"))
        self.facts["last"] = when or self.facts.get("last")
        if not all(str(name) in index.of for name in names):  # else it came in, before or after
            self.refused[who] = why
            new.clients[who] = {"client": who, "state": "refused", "why": why, "time": when}

    def _facts(self, index: LedgerIndex) -> Row:
        counts = {"in": len(index.of), "refused": len(self.refused), "silent": 0}
        more = {"samples": self._samples, "up": self._bytes, "forgotten": index.forgotten}
        return {**self.facts, **counts, **more}

    # -- for the run beside it -----------------------------------------------------------------

    def hidden(self, client: str) -> bool:
        """Whether this client was forgotten, and its name may not be shown."""
        return self._open is not None and self._open[0].left(client)

    def holds(self, client: str) -> bool:
        """Whether this client is in."""
        return self._open is not None and client in self._open[0].of

    def forgotten(self) -> int:
        """How many were."""
        return self._open[0].forgotten if self._open is not None else 0

    def nodes(self) -> list[str]:
        """Names that the server knows."""
        try:
            content = json.loads(read_whole(self.path / NODES, _NODES_BYTES) or b"{}")
            known = [str(name) for name in content.get("keys", ())]
        except (ValueError, AttributeError, TypeError, RecursionError):
            return []
        return known
