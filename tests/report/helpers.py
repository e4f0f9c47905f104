"""Results by hand, and what holds for every page."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from headstart.results import (
    Arrival,
    ClientSummary,
    Confusion,
    DataSummary,
    Epoch,
    Failure,
    HeadSummary,
    PersonalScores,
    Point,
    Pooled,
    RidgePath,
    RunResult,
    SeedResult,
    SplitSummary,
)

HOSTILE = '<script>alert("x")</script> & $x^$ \' | \x00\ud800 猫'


def point(phase: int, round_: int, accuracy: float | None, up: float, **more: Any) -> Point:
    made: dict[str, Any] = {"down": up / 2, "flops": 10.0 * up, "counted": 8.0 * up}
    made |= {"formula_up": 2.0 * up, "formula_flops": 30.0 * up, **more}
    return Point(phase, round_, accuracy, up, **made)


def bare(pipeline: str = "Fed3R", points: Any = (), seed: int = 0, **more: Any) -> SeedResult:
    """A result of nothing but a curve."""
    curve = tuple(points) or (point(0, 0, 0.66, 1e6),)
    known = [p.accuracy for p in curve if p.accuracy is not None]
    given = {
        "phases": tuple(pipeline.split(" + ")),
        "data": DataSummary("toy", 40, 20, 4, ("a", "b", "c"), "d1" * 32),
        "split": SplitSummary("dirichlet", {"clients": 4, "alpha": 0.1}, tuple("wxyz")),
        "settings": {"exact": True, "precision": None, "cohort": 10},
        "accuracy": known[-1] if known else None,
        "version": "0.1.0",
        **more,
    }
    return SeedResult(pipeline=pipeline, seed=seed, curve=curve, **given)


OWN = PersonalScores(
    tuple("wxyz"), (10, 30, 0, 4), {"global": (5, 15, 0, 4), "FP": (8, 12, 0, 4)}, "FP"
)


def fitted(
    title: str = "Fed3R", accuracy: float = 0.9, clients: int = 6, **more: Any
) -> SeedResult:
    """A head as `headstart fit` leaves it: everything that a result can hold."""
    names = tuple(f"c{k:02d}" for k in range(clients))
    classes = ("a", "b", "c")
    counts = [[(k * c) % 4 for c in range(3)] for k in range(clients)]
    counts[0][0] = 7
    tested = tuple(float(k % 3) for k in range(clients))
    ridges = np.logspace(-3, 3, 9)
    hits = {
        "global": tuple(0.5 * n for n in tested),
        "oll": tuple(0.75 * n for n in tested),
        "prior": tested,
        "ridge": tested,
    }
    head = HeadSummary(
        name=title.lower(),
        title=title,
        settings={"ridge": "gcv", "normalize": True, "noise": None},
        solved={"ridge": 1.0},
        temperature=0.1,
        bytes_per_client=900.0,
        formula_bytes_per_client=1800.0,
        sizes={"float32": 500.0, "int8": 200.0},
        arrivals=tuple(
            Arrival(k, 900 * k, accuracy * k / clients, min(k, 3)) for k in range(1, clients + 1)
        ),
        path=RidgePath(
            tuple(ridges.tolist()),
            tuple((0.2 + np.log10(ridges) ** 2 / 40).tolist()),
            tuple((4 / (1 + ridges)).tolist()),
            1.0,
        ),
        digest="ab" * 32,
    )
    plain = bare(title, [Point(0, 0, accuracy, 900.0 * clients, 10.0, formula_up=1800.0 * clients)])
    made = replace(
        plain,
        data=DataSummary("toy", 40, 20, 4, classes, "d1" * 32),
        split=SplitSummary(
            "dirichlet",
            {"clients": clients, "alpha": 0.1},
            names,
            held_out=0.3,
            test_fraction=0.2,
            summary={"clients": clients, "jaccard": 0.2, "size_mean": 6.5, "size_max": 11},
            counts=tuple(map(tuple, counts)),
        ),
        balanced_accuracy=accuracy - 0.01,
        head=head,
        pooled=Pooled(accuracy, "ab" * 32),
        personal=PersonalScores(names, tested, hits),
        confusion=Confusion(classes, ((6, 1, 1), (1, 6, 1), (1, 3, 6))),
        clients=tuple(
            ClientSummary(name, None, 5 + k, 2, 800 + 50 * k, 1800.0)
            for k, name in enumerate(names)
        ),
        reveals={"clients": clients, "under 10 samples": 5},
        failures=(Failure("late", "missing", "no answer in 3 s"),),
        notes=("The first is the model.",),
        seconds=0.4,
        created="2026-11-15T21:00:00+00:00",
    )
    return replace(made, **more)


ONCE = bare("Fed3R")
ROUNDS = bare(
    "FedAvg-20(ψ)",
    [point(0, 0, 0.01, 0.0), *(point(1, r, 0.1 + 0.03 * r, 2e5 * r) for r in range(1, 21))],
)
LONG = bare(
    "Fed3R + FedAvg-3(ψ) + FedAlt-2 + FP-25(ψ)",
    [
        point(0, 0, 0.66, 1e6),
        *(point(1, r, 0.66 + r / 100, 1e6 + 1e5 * r) for r in (1, 2, 3)),
        *(point(2, r, None, 1.3e6 + 1e5 * r) for r in (1, 2)),
        point(3, 25, None, 1.5e6, flops=9e7),
    ],
    personal=OWN,
    epochs=tuple(Epoch(e, 0.7 + e / 100, 0.6, 0.5) for e in range(3)),
    seconds=1.5,
)


def alone(*runs: SeedResult) -> list[RunResult]:
    """Each a result of its own."""
    return [RunResult((run,)) for run in runs]


ALL = alone(ONCE, ROUNDS, LONG)


def seeded(run: SeedResult, gains: tuple[float, ...] = (0.0, 0.01, 0.03)) -> RunResult:
    """The same with other seeds: accuracies higher by `gains`, the data otherwise dealt."""
    runs = []
    for seed, gain in enumerate(gains):
        curve = tuple(
            replace(p, accuracy=None if p.accuracy is None else p.accuracy + gain)
            for p in run.curve
        )
        accuracy = None if run.accuracy is None else run.accuracy + gain
        data = replace(run.data, digest=f"d{seed}" * 32)
        runs.append(replace(run, seed=seed, curve=curve, accuracy=accuracy, data=data))
    return RunResult(tuple(runs))


class Outline(HTMLParser):
    """Tags, ids, references and text of a page; complains when tags do not match."""

    VOID = frozenset(("meta", "br", "input"))

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.references: list[str] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    @property
    def names(self) -> list[str]:
        return [tag for tag, _ in self.tags]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.pieces.append(data)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        for name, value in attrs:
            if name == "href" and (value or "").startswith("#"):
                self.references.append((value or "")[1:])
            self.references += re.findall(r"url\(#([^)]+)\)", value or "")
            assert not name.startswith("on")


def check(source: str) -> Outline:
    """What holds for every page; gives its outline."""
    source.encode()
    plain = re.sub(r"data:image/png;base64,[A-Za-z0-9+/= ]+", "", source)
    assert not re.search(r"https?://|//[a-z]+\.|@import", plain)
    assert "\x00" not in plain
    outline = Outline(source)
    assert not re.search(r"\b(nan|inf|infinity|None|Undefined)\b", outline.text)
    assert not {"script", "link", "iframe", "object", "img"} & set(outline.names)
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert set(outline.references) <= set(ids)
    return outline


def headings(source: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", source)


def cells(source: str, row: str, after: str = "") -> list[str]:
    """The cells of the first row of this name, after some text."""
    rest = source[source.index(after) :] if after else source
    line = rest[rest.index(f'<tr><th scope="row">{row}</th>') :]
    return re.findall(r"<td[^>]*>(.*?)</td>", line[: line.index("</tr>")])


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
