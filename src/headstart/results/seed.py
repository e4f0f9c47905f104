"""One run with one seed, as `results.json` in its folder holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import HeadstartError
from headstart.files import write_bytes
from headstart.privacy.statement import Statement
from headstart.results.estimate import in_a_line
from headstart.results.parts import (
    ClientSummary,
    Confusion,
    DataSummary,
    Epoch,
    Failure,
    HeadSummary,
    LastEvaluations,
    PersonalScores,
    PixelScores,
    Point,
    Pooled,
    SplitSummary,
)

FORMAT = 1  # of results.json


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
        end = in_a_line(self.accuracy, self.personal_accuracy)
        return f"<SeedResult {self.pipeline}, seed {self.seed}: {end}>"

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


def save_result(result: SeedResult, path: Path) -> None:
    """Write results.json, whole or not at all."""
    write_bytes(path, result.to_json().encode())
