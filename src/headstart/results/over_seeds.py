"""One pipeline over one or more seeds, and several pipelines side by side."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError
from headstart.optional import require
from headstart.results.estimate import Estimate, estimate, in_a_line
from headstart.results.rows import Row, client_rows, curve_rows, seed_rows
from headstart.results.seed import SeedResult


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
        end = in_a_line(self.accuracy, self.personal_accuracy)
        return f"<RunResult {self.pipeline}, {seeds}: {end}>"

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


def _frame(rows: list[Row]) -> Any:
    return require("pandas", "pandas").DataFrame(rows)
