"""The folder of a deployed run: the model and what led to it, renewed as uploads come.

model.safetensors  the head of all uploads so far: usable after the first
report.html        the report, with the accuracy after each upload if the server can test
results.json       what the report shows, and the digest of the total
events.jsonl       what happened, a line each: uploads, refusals, who was missing

The uploads themselves, and their total, are in the ledger alone, which can forget them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headstart import __version__, threads
from headstart.data.datasets import Dataset
from headstart.deploy.ledger import Ledger
from headstart.deploy.nodes import Trouble
from headstart.errors import HeadstartError, SolveError
from headstart.evaluate import Personal, scores
from headstart.heads.linear import LinearHead
from headstart.report import write_report
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.summary import changes


@dataclass
class Output:
    folder: RunFolder
    curve: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, ledger: str = "") -> Output:
        """A folder, and the curve of an earlier run on the same ledger."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadstartError(f"output: cannot make {path}: {error.strerror}") from None
        before: dict[str, Any] = {}
        if (path / "results.json").exists():
            try:
                before = json.loads((path / "results.json").read_text(encoding="utf-8"))
            except ValueError:
                raise HeadstartError(f"output: results.json in {path} is damaged") from None
        same = ledger and before.get("ledger") == ledger and "heads" in before
        return cls(RunFolder(path), list(before["heads"][0]["curve"]) if same else [])

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def trouble(self, trouble: Trouble) -> None:
        self.folder.event("trouble", **asdict(trouble))

    def solved(
        self, ledger: Ledger, test: Dataset | None, extractor: Mapping[str, Any] | None
    ) -> LinearHead | None:
        """The head of the uploads so far, saved; None where they are too few to solve."""
        sum_ = ledger.total()
        point = {"clients": len(ledger.members()), "classes": len(sum_.classes)}
        model: LinearHead | None
        with threads.for_size(sum_.dimension):
            try:
                model = ledger.contract.head.solve(sum_)
            except SolveError:
                model = None
        accuracy = None
        if model is not None:
            model.provenance["extractor"] = None if extractor is None else dict(extractor)
            ledger.save_model(model, self.model_path)
            if test is not None:
                accuracy = scores(model, test.features, test.labels).accuracy
        sent = sum(entry.size for entry in ledger.entries())
        # A later run of the same size, or a smaller one after a forgetting, takes their place.
        self.curve[:] = [before for before in self.curve if before["clients"] < point["clients"]]
        self.curve.append({**point, "bytes": sent, "accuracy": accuracy})
        return model

    @staticmethod
    def facts(ledger: Ledger, troubles: Sequence[Trouble]) -> dict[str, Any]:
        """Of the collection, whatever followed it."""
        return {
            "ledger": ledger.id,
            "total": ledger.total().digest(),
            "members": ledger.members(),
            "troubles": [asdict(trouble) for trouble in troubles],
        }

    def report(
        self,
        ledger: Ledger,
        model: LinearHead,
        test: Dataset | None,
        personal: Personal | None,
        troubles: Sequence[Trouble],
    ) -> dict[str, Any]:
        """results.json and report.html of a head."""
        results = _results(self.curve, ledger, model, test, personal, troubles)
        self.folder.save_results(results)
        write_report(results, self.folder.path / "report.html")
        return results


def _results(
    curve: list[dict[str, Any]],
    ledger: Ledger,
    model: LinearHead,
    test: Dataset | None,
    personal: Personal | None,
    troubles: Sequence[Trouble],
) -> dict[str, Any]:
    contract, entries, sum_ = ledger.contract, ledger.entries(), ledger.total()
    found = None if test is None else scores(model, test.features, test.labels)
    samples = [entry.samples for entry in entries]
    digest = sum_.digest()
    return {
        "headstart": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "title": f"{contract.head.title}, {len(ledger.members())} clients, deployed",
        **Output.facts(ledger, troubles),
        "data": {
            "name": f"round {contract.round}",
            "samples": sum(samples),
            "test": 0 if test is None else len(test),
            "dimension": contract.dimension,
            "classes": [str(label) for label in sum_.classes],
        },
        "partition": {
            "name": "deployed",
            "settings": {"round": contract.round, "total": digest},
            "summary": {
                "clients": len(ledger.members()),
                "samples_mean": sum(samples) / max(len(samples), 1),
                "samples_min": min(samples, default=0),
                "samples_max": max(samples, default=0),
                "answers missing or refused in this run": len(troubles),
            },
        },
        "clients": [
            {
                "client": ", ".join(entry.clients),
                "samples": entry.samples,
                "bytes": entry.size,
                "personal": _own(personal, entry.clients),
            }
            for entry in entries
        ],
        "heads": [_head(curve, ledger, model, found, personal, sum_)],
        "confusion": None
        if found is None
        else {
            "classes": [str(label) for label in found.classes],
            "matrix": found.confusion.tolist(),
        },
        "worst_pairs": None if found is None else found.worst_pairs(),
        "reveals": {
            "clients": len(ledger.members()),
            "under 10 samples": sum(n < 10 for n in samples),
            "fewer samples than dimensions": sum(n < contract.dimension for n in samples),
        },
    }


def _own(personal: Personal | None, clients: tuple[str, ...]) -> dict[str, float] | None:
    known = personal is not None and len(clients) == 1 and clients[0] in personal.clients
    return personal.of(clients[0]) if personal is not None and known else None


def _head(
    curve: list[dict[str, Any]],
    ledger: Ledger,
    model: LinearHead,
    found: Any,
    personal: Personal | None,
    sum_: Any,
) -> dict[str, Any]:
    head, entries = ledger.contract.head, ledger.entries()
    path = head.path(sum_) if hasattr(head, "path") else None
    return {
        "name": head.name,
        "title": head.title,
        "settings": model.provenance["settings"],
        "solved": model.provenance["solved"],
        "main": True,
        "accuracy": None if found is None else found.accuracy,
        "balanced_accuracy": None if found is None else found.balanced_accuracy,
        "personal": personal.weighted() if personal else None,
        "personal_mean": personal.mean() if personal else None,
        "personal_change": changes(personal) if personal else None,
        "temperature": model.temperature,
        "bytes_per_client": sum(entry.size for entry in entries) / max(len(entries), 1),
        "curve": curve,
        "path": None
        if path is None
        else {
            "ridges": path.ridges.tolist(),
            "scores": path.scores.tolist(),
            "freedom": path.freedom.tolist(),
            "best": path.best,
        },
    }
