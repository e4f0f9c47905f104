"""The folder of a run: configuration, uploads, total, model and results, in files.

config.yaml        the configuration
data.sha256        of the clients' samples: a resumed run must find the same
events.jsonl       what happened, a line each
clients.json       who is in the total, where those who joined later had their samples, and the
                   digest of that total
total.safetensors  the sum of all uploads
uploads/           each client's own message (unless `keep_uploads` is false)
model.safetensors  the head
results.json       what the report shows
report.html        the report
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headstart import heads
from headstart.errors import HeadstartError
from headstart.federation.protocol import Answer, Step
from headstart.files import append_line, write_bytes, write_text
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.pipeline.config import RunConfig, dump_config, kept_plugins, read_config
from headstart.registry import require_plugins
from headstart.results import ClientSummary, SeedResult, save_result
from headstart.statistics.base import total


def event_line(what: str, **facts: Any) -> str:
    """What happened now, as a line of events.jsonl."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "event": what, **facts})


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run: its settings, uploads, events, model and results."""

    path: Path

    def create(self, config: RunConfig, data: str) -> None:
        """A new folder, or one left unfinished by the same configuration on the same `data`."""
        self.check(config, data)
        if (self.path / "model.safetensors").exists():
            raise HeadstartError(f"output: {self.path} holds this run already; name a new one")
        try:
            (self.path / "uploads").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadstartError(f"output: cannot make {self.path}: {error.strerror}") from None
        write_text(self.path / "data.sha256", data)
        write_text(self.path / "config.yaml", dump_config(self._as_begun(config)))

    def check(self, config: RunConfig, data: str) -> None:
        """Refuse a place that holds something else than this run."""
        if self.path.exists() and not self.path.is_dir():
            raise HeadstartError(f"output: expected a folder, got the file {self.path}")
        if (self.path / "config.yaml").exists():
            self.check_plugins()
            if not self._says(config):
                raise HeadstartError(f"output: {self.path} holds another run; name a new folder")
            if self._read("data.sha256") != data.encode():
                raise HeadstartError(
                    f"output: {self.path} was begun with other data than {config.data} holds now; "
                    "name a new folder"
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise HeadstartError(f"output: {self.path} is not empty; name a new folder")

    def is_of(self, config: RunConfig, data: str) -> bool:
        """Whether this folder holds that configuration on that data."""
        if not (self.path / "config.yaml").exists():
            return False
        return self._says(config) and self._read("data.sha256") == data.encode()

    def _says(self, config: RunConfig) -> bool:
        return self._read("config.yaml") == dump_config(self._as_begun(config)).encode()

    def _as_begun(self, config: RunConfig) -> RunConfig:
        """With the plugins that the run began with, where all of them are loaded again.

        One more, or the same bytes in another place, make no other run.
        """
        if not (self.path / "config.yaml").exists():
            return config
        kept = kept_plugins(self._read("config.yaml"))
        loaded = {plugin.sha256 for plugin in config.plugins}
        all_loaded = all(plugin.sha256 in loaded for plugin in kept)
        return config.model_copy(update={"plugins": kept}) if all_loaded else config

    def check_plugins(self) -> None:
        """Refuse to go on without the plugins that this run began with."""
        if not (self.path / "config.yaml").exists():
            return
        try:
            kept = kept_plugins(self._read("config.yaml"))
            require_plugins({plugin.path: plugin.sha256 for plugin in kept})
        except HeadstartError as error:
            raise HeadstartError(f"output: {self.path} was begun with a plugin: {error}") from None

    @property
    def config(self) -> RunConfig:
        if not (self.path / "config.yaml").exists():
            inner = sorted(place.parent.name for place in self.path.glob("*/config.yaml"))
            hint = f"; it holds {', '.join(inner[:5])}: name one of them" if inner else ""
            raise HeadstartError(f"run: {self.path} is no run folder (no config.yaml in it){hint}")
        return read_config(self.path / "config.yaml")

    def data_digest(self) -> str:
        """The SHA-256 of the samples that the run began with."""
        return self._read("data.sha256").decode()

    def event(self, what: str, **facts: Any) -> None:
        self.append_events(event_line(what, **facts))

    def append_events(self, lines: str) -> None:
        """One event or more, each a line as `event_line` makes it."""
        try:
            append_line(self.path / "events.jsonl", lines)
        except OSError as error:
            raise HeadstartError(f"output: cannot write in {self.path}: {error.strerror}") from None

    # -- uploads and their total ---------------------------------------------------------------

    def upload_path(self, client: str) -> Path:
        """A file name for any client id: readable where it can be, unique always."""
        name = quote(client, safe="")
        if len(name) > 100 or name.startswith("."):
            name = hashlib.sha256(client.encode()).hexdigest()
        return self.path / "uploads" / f"{name}.safetensors"

    def save_total(
        self,
        statistic: Any,
        dimension: int,
        clients: Mapping[str, str],
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """The total, then who is in it. `clients`: the SHA-256 of each one's message.

        `sources`: where the samples of those who joined later were (None: as known before).
        """
        write_bytes(self.path / "total.safetensors", statistic.to_bytes("float64"))
        members = dict(sorted(clients.items()))
        state = {"total": statistic.digest(), "dimension": dimension, "clients": members}
        if sources is None and (self.path / "clients.json").exists():
            sources = self.sources()
        if sources:
            state["sources"] = {name: sources[name] for name in members if name in sources}
        write_text(self.path / "clients.json", json.dumps(state, indent=1, ensure_ascii=False))

    def members(self) -> dict[str, str]:
        """Who is in the total, and the SHA-256 of each one's message."""
        return dict(self._state()["clients"])

    def sources(self) -> dict[str, str]:
        """Where the samples of those who joined later were."""
        return dict(self._state()["sources"])

    @property
    def dimension(self) -> int:
        """Of the features a client of this run measures."""
        return int(self._state()["dimension"])

    def load_total(self, head: Head) -> Any:
        """The total of the members; refolded from the uploads if a change was cut short."""
        state = self._state()
        with suppress(HeadstartError):  # gone or damaged: fold it again
            statistic = head.statistic.from_bytes(self._read("total.safetensors"))
            if statistic.digest() == state["total"]:
                return statistic
        return total(head.statistic.from_bytes(message) for message in self._messages(state))

    def _messages(self, state: Mapping[str, Any]) -> Iterator[bytes]:
        """The members' kept uploads, each the one whose SHA-256 is on the list."""
        for name, mark in state["clients"].items():
            path = self.upload_path(name)
            message = path.read_bytes() if path.exists() else b""
            if hashlib.sha256(message).hexdigest() != mark:
                raise HeadstartError(
                    f"run: the total in {self.path} is damaged or not that of its clients, and the "
                    f"upload of {name!r} is not kept to fold it again"
                )
            yield message

    def _state(self) -> dict[str, Any]:
        text = self._read("clients.json")
        try:
            state = json.loads(text)
            return {
                "total": str(state["total"]),
                "dimension": int(state["dimension"]),
                "clients": dict(state["clients"]),
                "sources": dict(state.get("sources", {})),
            }
        except (ValueError, KeyError, TypeError, RecursionError):
            raise HeadstartError(f"run: clients.json in {self.path} is damaged") from None

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise HeadstartError(f"run: cannot read {self.path / name}: {error.strerror}") from None

    # -- clients that are no longer in the total -----------------------------------------------

    def strangers(self) -> set[str]:
        """Who is named by events or results and is not in the total."""
        named = {str(event["client"]) for event in self._events() if "client" in event}
        return (named | {row.client for row in self.client_rows()}) - set(self.members())

    def purge(self) -> None:
        """Without the events and the uploads of anybody who is not in the total."""
        members = self.members()
        kept = {None, *members}
        events = [
            event
            for event in self._events()  # why a run stopped may name anybody
            if event.get("client") in kept and event.get("event") != "stopped"
        ]
        lines = "".join(json.dumps(event) + "\n" for event in events)
        write_text(self.path / "events.jsonl", lines)
        for path in self.lost_uploads():
            path.unlink()

    def lost_uploads(self) -> set[Path]:
        """Files of uploads that are nobody's."""
        kept = {self.upload_path(name) for name in self.members()}
        return set((self.path / "uploads").glob("*")) - kept

    def _events(self) -> list[dict[str, Any]]:
        """What happened; a line that was cut short is none."""
        path, events = self.path / "events.jsonl", []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            with suppress(ValueError):
                events.append(json.loads(line))
        return [event for event in events if isinstance(event, dict)]

    def client_rows(self) -> list[ClientSummary]:
        """What results.json says of each client; nothing, if it cannot be read."""
        try:
            return list(self.result().clients)
        except HeadstartError:
            return []

    # -- results -------------------------------------------------------------------------------

    def model(self) -> LinearHead:
        return LinearHead.load(self.path / "model.safetensors")

    def head(self) -> Head:
        """The head as the run solved it: a bandwidth "auto" is a number by now."""
        _ = self.config  # a folder that is no run says so
        about = self.model().provenance
        return heads.make(about["method"], about["settings"])

    def save_result(self, result: SeedResult) -> None:
        save_result(result, self.path / "results.json")

    def result(self) -> SeedResult:
        """What the run found; refused where it is damaged, or of another version."""
        where = self.path / "results.json"
        return SeedResult.from_json(self._read("results.json"), f"run: {where}")


@dataclass
class FolderStore:
    """The kept messages of one head, for `Recorded`: a run that was cut short asks for the rest."""

    folder: RunFolder
    head: str
    clients: Sequence[str]
    step: Step | None = None

    def holds(self, step: Step) -> bool:
        ours = step.name == "measure" and step.params["head"] == self.head and not step.silent
        if ours:
            self.step = step
        return ours

    def members(self) -> list[tuple[str, ...]]:
        return [(name,) for name in self.clients if self.folder.upload_path(name).exists()]

    def messages(self, wanted: Sequence[tuple[str, ...]]) -> Iterator[bytes]:
        for (name,) in wanted:
            yield self.folder.upload_path(name).read_bytes()

    def keep(self, answer: Answer) -> None:
        (name,) = answer.clients
        assert answer.payload is not None
        write_bytes(self.folder.upload_path(name), answer.payload)
        self.folder.event("upload", client=name, head=self.head, bytes=len(answer.payload))

    def total(self) -> None:
        """Not at hand: it is folded from the messages."""
