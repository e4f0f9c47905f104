"""What a run found: frozen values that pages, tables, files and the command line all read.

`SeedResult` is one run with one seed, as `results.json` in its folder holds it. `RunResult` is one
pipeline over one or more seeds: its numbers are means with their deviations. Shares are from 0 to
1, bytes are those of the whole federation, FLOPs those of one client (the mean over all).
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.errors import HeadstartError
from headstart.files import write_bytes
from headstart.optional import require
from headstart.privacy.statement import Statement

FORMAT = 1  # of results.json
Row = dict[str, Any]  # of a table: column → value


@dataclass(frozen=True)
class DataSummary:
    """The samples of a run. `classes` are the labels as text; `digest` is a SHA-256 of the data."""

    name: str
    samples: int
    test: int
    dimension: int
    classes: tuple[str, ...] = ()
    digest: str = ""
    shift: float | None = None  # δ of the domain shift of images
    augment: str | None = None


@dataclass(frozen=True)
class SplitSummary:
    """How samples came to clients. `counts`: a row per client, a column per class."""

    name: str
    settings: Mapping[str, Any]
    clients: tuple[str, ...]
    held_out: float = 0.0  # of each client's samples, for personal accuracy
    test_fraction: float | None = None  # None: the data have a test part of their own
    summary: Mapping[str, float] = field(default_factory=dict)
    counts: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Point:
    """A point of the curve: after `round` rounds of phase number `phase` (0: the initial head).

    Bytes and FLOPs are counted from the beginning of the pipeline.
    """

    phase: int
    round: int
    accuracy: float | None
    up: float = 0.0
    down: float = 0.0
    flops: float = 0.0  # as done
    counted: float = 0.0  # as torch counts them
    formula_up: float = 0.0
    formula_flops: float = 0.0
    diagnosis: Mapping[str, float] | None = None
    pixels: Mapping[str, float] | None = None  # of scenes: mean_iou, seen_mean_iou, seen_accuracy

    def values(self) -> dict[str, float | None]:
        """Every number by its name, those of the diagnosis and of pixels too."""
        plain = asdict(self)
        return plain | dict(plain.pop("diagnosis") or {}) | dict(plain.pop("pixels") or {})


@dataclass(frozen=True)
class Arrival:
    """The head of the first `clients` uploads."""

    clients: int
    up: int
    accuracy: float | None
    classes: int


@dataclass(frozen=True)
class RidgePath:
    """GCV scores and degrees of freedom over λ."""

    ridges: tuple[float, ...]
    scores: tuple[float, ...]
    freedom: tuple[float, ...]
    best: float


@dataclass(frozen=True)
class HeadSummary:
    """The closed-form head that a pipeline begins with, and what it cost to collect."""

    name: str
    title: str
    settings: Mapping[str, Any]
    solved: Mapping[str, Any]  # what it chose itself
    temperature: float | None = None
    bytes_per_client: float | None = None
    formula_bytes_per_client: float | None = None
    sizes: Mapping[str, float] = field(default_factory=dict)  # bytes at other precisions
    arrivals: tuple[Arrival, ...] = ()
    path: RidgePath | None = None
    digest: str = ""  # of the exact total


@dataclass(frozen=True)
class Pooled:
    """The same head from all data in one place: only a simulation can make this comparison."""

    accuracy: float | None
    digest: str = ""


@dataclass(frozen=True)
class ClientSummary:
    """One client, as far as the server knows it."""

    client: str
    domain: str | None = None  # where the colours of images were shifted
    samples: int | None = None
    classes: int | None = None
    up: int | None = None  # bytes of its upload for the initial head
    formula_up: float | None = None


@dataclass(frozen=True)
class PersonalScores:
    """Hits on the clients' own test parts, by model: a tuple over `clients` for each.

    `models` begins with "global", the shared model; `final` names the one the pipeline ends with.
    """

    clients: tuple[str, ...]
    tested: tuple[float, ...]
    models: Mapping[str, tuple[float, ...]]
    final: str = "global"

    @classmethod
    def of(
        cls, tallies: Mapping[str, NDArray[np.float64]], models: Sequence[str]
    ) -> PersonalScores:
        """From each client's tally: its test samples, then its hits with each of `models`."""
        rows = np.array(list(tallies.values()), float).reshape(len(tallies), 1 + len(models))
        tested, *hits = (tuple(column) for column in rows.T.tolist())
        return cls(tuple(tallies), tested, dict(zip(models, hits, strict=True)))

    def weighted(self, model: str | None = None) -> float:
        """Mean accuracy, clients weighed by their test samples."""
        return float(sum(self.models[model or self.final]) / max(sum(self.tested), 1.0))

    def shares(self, model: str | None = None) -> NDArray[np.float64]:
        """The accuracy of each client that tested."""
        tested = np.array(self.tested, float)
        hits = np.array(self.models[model or self.final], float)
        return hits[tested > 0] / tested[tested > 0]

    def by_client(self) -> dict[str, dict[str, float]]:
        """Each client's test samples and, where it has some, its accuracy by model."""
        rows = {}
        for at, (client, tested) in enumerate(zip(self.clients, self.tested, strict=True)):
            hits = {
                f"accuracy_{model}": hits_of[at] for model, hits_of in self.models.items() if tested
            }
            rows[client] = {"tested": tested, **{key: hit / tested for key, hit in hits.items()}}
        return rows

    def mean(self, model: str | None = None) -> float:
        """Mean accuracy, every client that tested counting the same."""
        shares = self.shares(model)
        return float(shares.mean()) if len(shares) else 0.0

    def change(self, model: str | None = None, base: str = "global") -> NDArray[np.float64]:
        """What each client that tested gains by `model`, or loses, against `base`."""
        return self.shares(model) - self.shares(base)


@dataclass(frozen=True)
class Epoch:
    """Local fine-tuning after an epoch: the own test part; outside, own classes and the others."""

    epoch: int
    own: float
    local: float
    absent: float


@dataclass(frozen=True)
class Confusion:
    """Rows are true classes, columns predictions."""

    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PixelScores:
    """A dense network on masks, by one confusion matrix over all pixels of a test.

    `test`: "unseen", the server's own images, or "seen", those of clients. `inference`: what it was
    normalized with. `iou`: of each class that is in the truth, of which `mean_iou` is the mean.
    """

    test: str
    inference: str
    mean_iou: float
    accuracy: float  # of pixels
    iou: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LastEvaluations:
    """The mean and the deviation of mIoU over the last points of a curve, and which these are."""

    first: int  # rounds
    last: int
    count: int
    mean: float
    deviation: float


@dataclass(frozen=True)
class Failure:
    """Something expected of a client that did not come, or was refused."""

    client: str
    code: str
    text: str


@dataclass(frozen=True, repr=False)
class SeedResult:
    """One pipeline, run once. `settings`: all settings of the run, resolved."""

    pipeline: str  # as the papers write it
    phases: tuple[str, ...]
    seed: int
    data: DataSummary
    split: SplitSummary
    settings: Mapping[str, Any]
    curve: tuple[Point, ...]
    accuracy: float | None  # of the shared model at the end
    balanced_accuracy: float | None = None
    mean_iou: float | None = None  # of scenes; their accuracy is that of pixels
    pixels: tuple[PixelScores, ...] = ()  # of a dense network, by test and inference
    head: HeadSummary | None = None
    pooled: Pooled | None = None
    personal: PersonalScores | None = None
    epochs: tuple[Epoch, ...] = ()
    domains: Mapping[str, float] | None = None  # accuracy by domain of the test images
    confusion: Confusion | None = None
    clients: tuple[ClientSummary, ...] = ()
    reveals: Mapping[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()  # what the reader must know: stated temperatures, refused tallies …
    ledger: str = ""  # of a deployed run
    privacy: Statement | None = None  # what is promised of the released head
    seconds: float | None = None
    created: str = ""
    version: str = ""
    format: int = FORMAT

    def __repr__(self) -> str:
        return f"<SeedResult {self.pipeline}, seed {self.seed}: {_ends(self)}>"

    def pixel_scores(self, test: str, inference: str | None = None) -> PixelScores | None:
        """Of a dense network; without an inference, by the one that its curve is of."""
        rows = (row for row in self.pixels if row.test == test)
        return next((row for row in rows if inference in (None, row.inference)), None)

    @property
    def personal_accuracy(self) -> float | None:
        """Of the models the pipeline ends with, on the clients' own test parts."""
        return self.personal.weighted() if self.personal else None

    def last_evaluations(self, test: str = "unseen") -> LastEvaluations | None:
        """FedDrive's figure: mIoU over the last fifth of a training's evaluations, at most 20."""
        key = "mean_iou" if test == "unseen" else f"{test}_mean_iou"
        final = max((point.phase for point in self.curve), default=0)
        rows = [
            (point.round, point.pixels[key])
            for point in self.curve
            if point.phase == final and point.pixels and key in point.pixels
        ]
        rows = rows[-max(1, min(20, len(rows) // 5)) :]
        if not rows:
            return None
        rounds, values = zip(*rows, strict=True)
        return LastEvaluations(
            rounds[0], rounds[-1], len(rows), float(np.mean(values)), float(np.std(values))
        )

    def to_json(self) -> str:
        """Text that `from_json` reads back; the same result gives the same text."""
        text = json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)
        # a lone surrogate becomes \\udXXX, which is how JSON writes it
        return text.encode(errors="backslashreplace").decode()

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "results") -> SeedResult:
        """Read a result; a HeadstartError in one line if the text is none of this version."""
        try:
            plain = json.loads(text)
            format_ = plain.get("format")
        except (ValueError, AttributeError, RecursionError):
            raise HeadstartError(
                f"{where}: expected the results of a run, got other text"
            ) from None
        if format_ != FORMAT:
            raise HeadstartError(
                f"{where}: expected results of format {FORMAT}, got {format_!r} "
                "(written by another version of Headstart); run it again in a new folder"
            )
        try:
            result: SeedResult = _adapter().validate_python(plain)
        except ValueError:
            raise HeadstartError(f"{where}: the results of this run are damaged") from None
        return result


def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(SeedResult)


class Estimate(float):
    """A mean over seeds that also knows its values: prints as 0.921 ± 0.004."""

    values: tuple[float, ...]

    def __new__(cls, values: Iterable[float]) -> Estimate:
        held = tuple(values)
        made = super().__new__(cls, sum(held) / len(held))
        made.values = held
        return made

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (n − 1); None for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def __repr__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.4f}"
        return f"{float(self):.4f}{spread}"

    __str__ = __repr__


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Of the values that all seeds have; None where one lacks it."""
    present = list(values)
    if not present or any(value is None for value in present):
        return None
    return Estimate(value for value in present if value is not None)


def _ends(result: SeedResult | RunResult) -> str:
    """What a result ends with, in a line."""
    numbers = {"accuracy": result.accuracy, "personal": result.personal_accuracy}
    parts = (
        f"{name} {value if isinstance(value, Estimate) else Estimate((value,))}"
        for name, value in numbers.items()
        if value is not None
    )
    return ", ".join(parts) or "nothing was tested"


@dataclass(frozen=True, repr=False)
class RunResult:
    """One pipeline over one or more seeds."""

    runs: tuple[SeedResult, ...]
    path: Path | None = None  # the folder it was saved in

    def __post_init__(self) -> None:
        if not self.runs:
            raise HeadstartError("runs: expected at least one, got none")
        others = {run.pipeline for run in self.runs} - {self.pipeline}
        if others:
            raise HeadstartError(
                f"runs: expected seeds of {self.pipeline}, got also {', '.join(sorted(others))}"
            )

    def __repr__(self) -> str:
        seeds = f"{len(self.runs)} seeds" if len(self.runs) > 1 else "one seed"
        return f"<RunResult {self.pipeline}, {seeds}: {_ends(self)}>"

    @property
    def pipeline(self) -> str:
        return self.runs[0].pipeline

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def model(self) -> Any:
        """The model of the first seed: a `LinearHead`, or the path of a trained network's file."""
        return self.models[0]

    @property
    def models(self) -> tuple[Any, ...]:
        """The model of every seed."""
        from headstart.heads.linear import LinearHead

        places = [place / "model.safetensors" for place in self._folders()]
        network = self.runs[0].settings.get("network")
        return tuple(place if network else LinearHead.load(place) for place in places)

    def _folders(self) -> list[Path]:
        """Where the run of each seed lies."""
        if self.path is None:
            raise HeadstartError(
                "result: expected one that was saved in a folder, got one in memory"
            )
        if (self.path / "results.json").exists():
            return [self.path]
        return [self.path / f"seed-{seed}" for seed in self.seeds]

    def to_pandas(self) -> Any:
        """A row per seed (needs pandas)."""
        return Comparison((self,)).to_pandas()

    def curves(self) -> Any:
        """A row per seed and point of the curve, as a DataFrame."""
        return Comparison((self,)).curves()

    def clients(self) -> Any:
        """A row per seed and client, as a DataFrame."""
        return Comparison((self,)).clients()

    def figure(self, by: str = "round") -> Any:
        """Accuracy by round, or by a cost, as a matplotlib figure."""
        return Comparison((self,)).figure(by)

    def report(self, folder: str | Path) -> Path:
        """Write the report, its figures and its tables into a folder; the page's path."""
        return Comparison((self,)).report(folder)

    def save(self, folder: str | Path, *, report: bool = True) -> Path:
        """Copy the runs into a new folder, which `load_result` reads."""
        place = Path(folder)
        if place.exists() and any(place.iterdir()):
            raise HeadstartError(f"save: {place} is not empty; name a new folder")
        for source in self._folders():
            shutil.copytree(
                source, place / source.name if source != self.path else place, dirs_exist_ok=True
            )
        if report:
            self.report(place)
        return place

    def export(self, path: str | Path) -> Path:
        """Write the model of the first seed as ONNX; extractor and head, where images are known."""
        importlib.import_module("headstart.pipeline.exporting").export_model(self.model, Path(path))
        return Path(path)

    def over_seeds(self, read: Callable[[SeedResult], float | None]) -> Estimate | None:
        """The mean over seeds of anything a run knows."""
        return estimate(read(run) for run in self.runs)

    @property
    def accuracy(self) -> Estimate | None:
        """Of the shared model on the outside test set."""
        return self.over_seeds(lambda run: run.accuracy)

    @property
    def mean_iou(self) -> Estimate | None:
        """Of scenes: over the classes of all test pixels."""
        return self.over_seeds(lambda run: run.mean_iou)

    @property
    def personal_accuracy(self) -> Estimate | None:
        """Of the clients' own models on their own test parts, weighted by test samples."""
        return self.over_seeds(lambda run: run.personal_accuracy)

    @property
    def pooled_accuracy(self) -> Estimate | None:
        """Of the same head from pooled data."""
        return self.over_seeds(lambda run: run.pooled.accuracy if run.pooled else None)


@dataclass(frozen=True, repr=False)
class Comparison(Sequence[RunResult]):
    """Results of several pipelines on the same splits, in their order."""

    results: tuple[RunResult, ...]

    def __repr__(self) -> str:
        return "\n".join(["<Comparison", *(f"  {result!r}" for result in self.results)]) + ">"

    def __getitem__(self, at: Any) -> Any:
        return self.results[at]

    def __len__(self) -> int:
        return len(self.results)

    @property
    def runs(self) -> list[SeedResult]:
        """Those of all pipelines and seeds."""
        return [run for result in self.results for run in result.runs]

    def to_pandas(self) -> Any:
        """A row per pipeline and seed (needs pandas)."""
        return _frame(seed_rows(self.runs))

    def curves(self) -> Any:
        """A row per pipeline, seed and point of the curve, as a DataFrame."""
        return _frame(curve_rows(self.runs))

    def clients(self) -> Any:
        """A row per pipeline, seed and client, as a DataFrame."""
        return _frame(client_rows(self.runs))

    def figure(self, by: str = "round") -> Any:
        """Accuracy of every pipeline by round, bytes, flops or formula, as a matplotlib figure."""
        return _report().figure(self.results, by)

    def report(self, folder: str | Path) -> Path:
        """Write the report, its figures and its tables into a folder; the page's path."""
        _report().write_report(self.results, Path(folder))
        return Path(folder) / "report.html"

    def save(self, folder: str | Path) -> Path:
        """Copy the runs and the report into a new folder, which `load_result` reads."""
        for number, result in enumerate(self.results, 1):
            result.save(Path(folder) / f"{number:02d}", report=False)
        self.report(folder)
        return Path(folder)


def _report() -> Any:
    """The page is made above results: imported when one is made."""
    return importlib.import_module("headstart.report")


def seed_rows(runs: Iterable[SeedResult]) -> list[Row]:
    """A row per run: its accuracies and its costs at the end."""
    return [
        {
            "pipeline": run.pipeline,
            "seed": run.seed,
            "accuracy": run.accuracy,
            "balanced_accuracy": run.balanced_accuracy,
            "mean_iou": run.mean_iou,
            "personal_before": run.personal.weighted("global") if run.personal else None,
            "personal_after": run.personal_accuracy,
            "bytes_up": run.curve[-1].up,
            "bytes_down": run.curve[-1].down,
            "flops_per_client": run.curve[-1].flops,
            "seconds": run.seconds,
        }
        for run in runs
    ]


def curve_rows(runs: Iterable[SeedResult]) -> list[Row]:
    """A row per run and point of its curve."""
    return [
        {"pipeline": run.pipeline, "seed": run.seed, **point.values()}
        for run in runs
        for point in run.curve
    ]


def client_rows(runs: Iterable[SeedResult]) -> list[Row]:
    """A row per run and client, with its accuracy on its own test part by each model."""
    rows = []
    for run in runs:
        scores = run.personal.by_client() if run.personal else {}
        for client in run.clients:
            row = {"pipeline": run.pipeline, "seed": run.seed, **asdict(client)}
            rows.append(row | scores.get(client.client, {}))
    return rows


def _frame(rows: list[Row]) -> Any:
    return require("pandas", "pandas").DataFrame(rows)


def save_result(result: SeedResult, path: Path) -> None:
    """Write results.json, whole or not at all."""
    write_bytes(path, result.to_json().encode())
