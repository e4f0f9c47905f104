"""The folder of a deployed run: the model and what led to it, renewed as uploads come.

model.safetensors  the head of all uploads so far: usable after the first
report.html        the report, with the accuracy after each upload if the server can test
results.json       what the report shows, and the digest of the total
events.jsonl       what happened, a line each: uploads, refusals, who was missing

The uploads themselves, and their total, are in the ledger alone, which can forget them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headstart import threads
from headstart.data.datasets import Dataset
from headstart.deploy.ledger import Ledger
from headstart.deploy.nodes import ClientFailure
from headstart.errors import HeadstartError, SolveError
from headstart.evaluate import tested
from headstart.heads.linear import LinearHead
from headstart.pipeline.folder import RunFolder
from headstart.results import Arrival, ClientSummary, DataSummary, Failure, SplitSummary


@dataclass
class Output:
    folder: RunFolder
    arrivals: list[Arrival] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, ledger: str = "") -> Output:
        """A folder, and the arrivals of an earlier run on the same ledger."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HeadstartError(f"output: cannot make {path}: {error.strerror}") from None
        folder = RunFolder(path)
        if not ledger or not (path / "results.json").exists():
            return cls(folder)
        before = folder.result()
        same = before.ledger == ledger and before.head is not None
        return cls(folder, list(before.head.arrivals) if same and before.head else [])

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def failure(self, failure: ClientFailure) -> None:
        self.folder.event("failure", **asdict(failure))

    def solved(
        self, ledger: Ledger, test: Dataset | None, extractor: Mapping[str, Any] | None
    ) -> LinearHead | None:
        """The head of the uploads so far, saved; None where they are too few to solve."""
        sum_ = ledger.total()
        clients, classes = len(ledger.members()), len(sum_.classes)
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
                accuracy = tested(model, test.samples).accuracy
        sent = sum(entry.size for entry in ledger.entries())
        # A later run of the same size, or a smaller one after a forgetting, takes their place.
        self.arrivals[:] = [before for before in self.arrivals if before.clients < clients]
        self.arrivals.append(Arrival(clients, sent, accuracy, classes))
        return model


def facts(
    ledger: Ledger, test: Dataset | None, failures: Sequence[ClientFailure]
) -> dict[str, Any]:
    """What a result says of a collection, whatever followed it."""
    contract, entries, sum_ = ledger.contract, ledger.entries(), ledger.total()
    samples = [entry.samples for entry in entries]
    members = tuple(ledger.members())
    summary = {
        "clients": len(members),
        "samples_mean": sum(samples) / max(len(samples), 1),
        "samples_min": min(samples, default=0),
        "samples_max": max(samples, default=0),
        "answers missing or refused in this run": len(failures),
    }
    return {
        "data": DataSummary(
            f"round {contract.round}",
            sum(samples),
            0 if test is None else len(test),
            contract.dimension,
            tuple(str(label) for label in sum_.classes),
        ),
        "split": SplitSummary("deployed", {"round": contract.round}, members, summary=summary),
        "clients": tuple(
            ClientSummary(", ".join(entry.clients), samples=entry.samples, up=entry.size)
            for entry in entries
        ),
        "reveals": {
            "clients": len(members),
            "under 10 samples": sum(n < 10 for n in samples),
            "fewer samples than dimensions": sum(n < contract.dimension for n in samples),
        },
        "failures": tuple(Failure(**asdict(failure)) for failure in failures),
        "ledger": ledger.id,
    }
