"""The folder of a run: what was asked, what came, and the model, in files that outlive us.

config.yaml        what the run was told
data.sha256        of the clients' samples: a resumed run must find the same
events.jsonl       what happened, a line each
clients.json       who is in the total, and the digest of that total
total.safetensors  the sum of all uploads
uploads/           each client's own message (unless told otherwise)
model.safetensors  the head
results.json       what the run found; of several heads, the first's, whose model is kept
results/           those of the other heads
report.html        the report; beside it figures/ (SVG, PDF) and its numbers as CSV
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
from headstart.files import write_bytes, write_text
from headstart.heads.linear import LinearHead
from headstart.results import SeedResult, save_result
from headstart.runs.config import RunConfig, dump_config, read_config
from headstart.statistics.base import total


@dataclass(frozen=True)
class RunFolder:
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
        write_text(self.path / "config.yaml", dump_config(config))

    def check(self, config: RunConfig, data: str) -> None:
        """Refuse a place that holds something else than this run."""
        if self.path.exists() and not self.path.is_dir():
            raise HeadstartError(f"output: expected a folder, got the file {self.path}")
        if (self.path / "config.yaml").exists():
            if self._read("config.yaml") != dump_config(config).encode():
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
        same = self._read("config.yaml") == dump_config(config).encode()
        return same and self._read("data.sha256") == data.encode()

    @property
    def config(self) -> RunConfig:
        if not (self.path / "config.yaml").exists():
            raise HeadstartError(f"run: {self.path} is no run folder (no config.yaml in it)")
        return read_config(self.path / "config.yaml")

    def event(self, what: str, **facts: Any) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        try:
            with open(self.path / "events.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"time": now, "event": what, **facts}) + "\n")
        except OSError as error:
            raise HeadstartError(f"output: cannot write in {self.path}: {error.strerror}") from None

    # -- uploads and their total ---------------------------------------------------------------

    def upload_path(self, client: str) -> Path:
        """A file name for any client id: readable where it can be, unique always."""
        name = quote(client, safe="")
        if len(name) > 100 or name.startswith("."):
            name = hashlib.sha256(client.encode()).hexdigest()
        return self.path / "uploads" / f"{name}.safetensors"

    def save_total(self, statistic: Any, dimension: int, clients: Mapping[str, str]) -> None:
        """The total, then who is in it. `clients`: the SHA-256 of each one's message."""
        write_bytes(self.path / "total.safetensors", statistic.to_bytes("float64"))
        members = dict(sorted(clients.items()))
        state = {"total": statistic.digest(), "dimension": dimension, "clients": members}
        write_text(self.path / "clients.json", json.dumps(state, indent=1, ensure_ascii=False))

    def members(self) -> dict[str, str]:
        """Who is in the total, and the SHA-256 of each one's message."""
        return dict(self._state()["clients"])

    @property
    def dimension(self) -> int:
        """Of the features a client of this run measures."""
        return int(self._state()["dimension"])

    def load_total(self, head: Any) -> Any:
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
            }
        except (ValueError, KeyError, TypeError, RecursionError):
            raise HeadstartError(f"run: clients.json in {self.path} is damaged") from None

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise HeadstartError(f"run: cannot read {self.path / name}: {error.strerror}") from None

    # -- results -------------------------------------------------------------------------------

    def model(self) -> LinearHead:
        return LinearHead.load(self.path / "model.safetensors")

    def head(self) -> Any:
        """The head as the run solved it: a bandwidth "auto" is a number by now."""
        _ = self.config  # a folder that is no run says so
        about = self.model().provenance
        return heads.make(about["method"], about["settings"])

    def save_results(self, results: Sequence[SeedResult]) -> None:
        """The first as results.json, others as results/02-NAME.json and so on."""
        if len(results) > 1:
            (self.path / "results").mkdir(exist_ok=True)
        for number, result in enumerate(results[1:], 2):
            name = result.head.name if result.head else "none"
            save_result(result, self.path / "results" / f"{number:02d}-{name}.json")
        if results:
            save_result(results[0], self.path / "results.json")

    def results(self) -> tuple[SeedResult, ...]:
        """What was saved, in its order; results of another format are refused."""
        others = sorted((self.path / "results").glob("*.json"))
        paths = [self.path / "results.json", *others]
        return tuple(
            SeedResult.from_json(self._read(str(path.relative_to(self.path))), str(path))
            for path in paths
        )
