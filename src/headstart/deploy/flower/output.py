"""The folder of a deployed run: the model and what led to it, renewed as uploads come.

model.safetensors  the head of all uploads so far: usable after the first
report.html        the report, with the accuracy after each upload if the server can test
results.json       what the run found, with the digest of the total
events.jsonl       what happened, a line each: uploads, refusals, who was missing

The uploads themselves, and their total, are in the ledger alone, which can forget them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headstart import threads
from headstart.data.datasets import Dataset
from headstart.deploy.ledger import Ledger
from headstart.deploy.nodes import Trouble
from headstart.errors import HeadstartError, SolveError
from headstart.evaluate import scores
from headstart.heads.linear import LinearHead
from headstart.report import write_report
from headstart.results import (
    Arrival,
    ClientSummary,
    DataSummary,
    Failure,
    PersonalScores,
    Point,
    RunResult,
    SeedResult,
    SplitSummary,
)
from headstart.runs.folder import RunFolder
from headstart.runs.outcome import confusion_of, head_summary, stamp


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
        before = folder.results()[0]
        same = before.ledger == ledger and before.head is not None
        return cls(folder, list(before.head.arrivals) if before.head and same else [])

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
        now = Arrival(len(ledger.members()), sent, accuracy, len(sum_.classes))
        # A later run of the same size, or a smaller one after a forgetting, takes their place.
        self.arrivals[:] = [before for before in self.arrivals if before.clients < now.clients]
        self.arrivals.append(now)
        return model

    def report(self, result: SeedResult) -> None:
        """The report, its figures and its numbers."""
        write_report([RunResult((result,), self.folder.path)], self.folder.path)

    def collected(
        self, result: SeedResult, ledger: Ledger, troubles: Sequence[Trouble]
    ) -> SeedResult:
        """A result, and what is known of the collection that it began with."""
        head, arrivals, digest = result.head, tuple(self.arrivals), ledger.total().digest()
        return replace(
            result,
            head=head and replace(head, arrivals=arrivals, digest=digest),
            clients=_clients(ledger),
            failures=tuple(Failure(one.client, one.code, one.text) for one in troubles),
            ledger=ledger.id,
        )


def _clients(ledger: Ledger) -> tuple[ClientSummary, ...]:
    """Those in the total; of a masked group nothing is known apart."""
    found = []
    for entry in ledger.entries():
        own = entry.samples, None, entry.size
        alone = len(entry.clients) == 1
        found += [ClientSummary(client, *(own if alone else ())) for client in entry.clients]
    return tuple(found)


def head_result(
    ledger: Ledger,
    model: LinearHead,
    test: Dataset | None,
    personal: PersonalScores | None,
    settings: Mapping[str, Any],
) -> SeedResult:
    """What a deployed head has to show."""
    contract, entries, sum_ = ledger.contract, ledger.entries(), ledger.total()
    found = None if test is None else scores(model, test.features, test.labels)
    samples = [entry.samples for entry in entries]
    up = sum(entry.size for entry in entries)
    accuracy = None if found is None else found.accuracy
    members = tuple(ledger.members())
    head = head_summary(
        contract.head, model, total=sum_, bytes_per_client=up / max(len(members), 1)
    )
    return SeedResult(
        pipeline=contract.head.title,
        phases=(contract.head.title,),
        seed=int(settings.get("seed", 0)),
        data=DataSummary(
            name=f"round {contract.round}",
            samples=sum(samples),
            test=0 if test is None else len(test),
            dimension=contract.dimension,
            classes=tuple(map(str, sum_.classes.tolist())),
        ),
        split=SplitSummary("deployed", {"round": contract.round}, members, summary=_sizes(samples)),
        settings=settings,
        curve=(Point(0, 0, accuracy, float(up)),),
        accuracy=accuracy,
        balanced_accuracy=None if found is None else found.balanced_accuracy,
        head=head,
        personal=personal,
        confusion=None if found is None else confusion_of(found),
        reveals={
            "clients": len(members),
            "under 10 samples": sum(n < 10 for n in samples),
            "fewer samples than dimensions": sum(n < contract.dimension for n in samples),
        },
        **stamp(),
    )


def _sizes(samples: Sequence[int]) -> dict[str, float]:
    return {
        "uploads": len(samples),
        "samples_mean": sum(samples) / max(len(samples), 1),
        "samples_min": min(samples, default=0),
        "samples_max": max(samples, default=0),
    }
