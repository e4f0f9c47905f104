"""The run of docs/feddr.md: frozen heads against each other on 20 classes of CIFAR-100.

    python scripts/cifar_part.py cifar-100-binary cifar20 --train 250
    python scripts/cifar_part.py cifar-100-binary search20 --train 250 --validate 100
    python benchmarks/feddr.py --data search20 --out search --search
    python benchmarks/feddr.py --data cifar20 --out feddr --curves curves.svg

50 clients, 10 per round, 3 local epochs, batches of 20, momentum 0.9, a tenth of the rate at half
and at three quarters of the rounds. `--search` tries the rates of the table below for a quarter
of the rounds, with the same drops. Every cell is a run folder; the same command goes on where it
was stopped. `--only NAME` and `--split NAME` run some of them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from headstart.console import bar
from headstart.errors import HeadstartError
from headstart.gradient.diagnose import KINDS
from headstart.pipeline.config import make_config
from headstart.pipeline.run import run_config
from headstart.report import write_report
from headstart.results import Point, RunResult

SPLITS: dict[str, dict[str, Any]] = {
    "dirichlet": {"name": "dirichlet", "clients": 50, "alpha": 0.1},
    "shards": {"name": "shards", "clients": 50, "shards_per_client": 2},
}


@dataclass(frozen=True)
class Cell:
    title: str
    start: str
    algorithm: str
    rates: tuple[float, ...]  # searched
    lr: float  # the highest within a point of the best of them, by `--search`
    network: str = "small_cnn"
    rounds: int = 80

    def pipeline(self, lr: float, rounds: int) -> str:
        drops = f"{rounds // 2},{rounds * 3 // 4}"
        alike = f"epochs=3, batch=20, decay=0.00001, local_momentum=0.9, drops='{drops}'"
        part = "f, " if self.algorithm == "FedAvg" else ""
        return f"{self.start} + {self.algorithm}-{rounds}({part}lr={lr:g}, {alike})"


LOW, HIGH = (0.003, 0.01, 0.03, 0.1), (0.05, 0.15, 0.5)
FINE = (0.0001, 0.0003, 0.001, 0.003)
TUNED = ("mobilenet_v2", 10)  # with rates from 0.05 on it is lost in five rounds
CELLS = {
    "fedavg": Cell("FedAvg", "none", "FedAvg", LOW, 0.03),
    "fedbabu": Cell("FedBABU", "none", "FedBABU", LOW, 0.03),
    "sphere": Cell("SphereFed", "Orthonormal", "SphereFed", HIGH, 0.5),
    "dr": Cell("dot-regression", "ETF", "dot-regression", HIGH, 0.15),
    "drplus": Cell("FedDr+", "ETF", "FedDr+", HIGH, 0.5),
    "pre-etf": Cell("FedDr+, pre-trained, ETF", "ETF", "FedDr+", FINE, 0.0003, *TUNED),
    "pre-fed3r": Cell(
        *("FedDr+, pre-trained, Fed3R", "Fed3R(ridge=gcv)", "FedDr+", FINE, 0.0001), *TUNED
    ),
}


def run(cell: Cell, pipeline: str, split: str, data: str, out: Path) -> RunResult:
    config = make_config(
        {
            "data": data,
            "pipeline": pipeline,
            "network": cell.network,
            "pixels": 32,
            "cohort": 10,
            "held_out": 0.0,
            "evaluate_every": 10 if cell.network == "small_cnn" else 5,
            "partition": SPLITS[split],
            "diagnostics": True,
        }
    )
    with bar() as show:
        return run_config(config, out, progress=show)


def search(name: str, split: str, data: str, out: Path) -> None:
    """Accuracy by rate after a quarter of the rounds, or half of a few."""
    cell = CELLS[name]
    rounds = max(5, cell.rounds // 4)
    for lr in cell.rates:
        label = f"{name:10s} {split:10s} lr {lr:<6g}"
        try:
            place = out / f"{name}-{split}-{lr:g}"
            result = run(cell, cell.pipeline(lr, rounds), split, data, place)
        except HeadstartError as error:  # a rate may be too high
            print(label, error, flush=True)
        else:
            print(label, f"{100 * (result.accuracy or 0):.1f}", flush=True)


def series(result: RunResult, key: str) -> tuple[list[int], list[float]]:
    """Rounds, and what was known at each of them."""
    known = [(point.round, value_at(point, key)) for point in result.runs[0].curve]
    points = [(round_, value) for round_, value in known if value is not None]
    return [round_ for round_, _ in points], [value for _, value in points]


def value_at(point: Point, key: str) -> float | None:
    return point.accuracy if key == "accuracy" else (point.diagnosis or {}).get(key)


def show(results: dict[tuple[str, str], RunResult]) -> None:
    """At the end; what a round's local training changes, as the mean over all tests."""
    print("| method | split | accuracy | best | alignment: has | lacks | changes by: has | lacks |")
    print("|---" * 8 + "|")
    for (name, split), result in results.items():
        accuracy = series(result, "accuracy")[1]
        aligned = [series(result, f"{kind}_alignment")[1][-1] for kind in KINDS]
        changes = [mean(series(result, f"{kind}_gap")[1]) for kind in KINDS]
        shown = " | ".join(f"{value:+.3f}" for value in (*aligned, *changes))
        percent = f"{100 * accuracy[-1]:.1f} | {100 * max(accuracy):.1f}"
        print(f"| {CELLS[name].title} | {split} | {percent} | {shown} |")


def draw(results: dict[tuple[str, str], RunResult], path: Path) -> None:
    """Accuracy, and alignment with the rows of classes that clients lack, by round; of trainings
    from random weights, for the others stand far above."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "feddr", "font.size": 9})
    from matplotlib import pyplot

    columns = {
        "accuracy": "test accuracy",
        "unobserved_alignment": "alignment, classes a client lacks",
        "unobserved_gap": "its change by local training",
    }
    splits = sorted({split for _, split in results})
    size = (10, 0.6 + 2.8 * len(splits))
    figure, panels = pyplot.subplots(len(splits), len(columns), figsize=size, squeeze=False)
    for row, split in zip(panels, splits, strict=True):
        for axes, (key, label) in zip(row, columns.items(), strict=True):
            for at, (name, cell) in enumerate(CELLS.items()):
                if (name, split) in results and cell.network == "small_cnn":
                    known = series(results[name, split], key)
                    axes.plot(*known, f"C{at}o-", ms=3, label=cell.title)
            axes.set_title(split)
            axes.set_xlabel("round")
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.5 / size[1], 1, 1))
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="the folder of scripts/cifar_part.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=tuple(CELLS))
    parser.add_argument("--split", action="append", choices=tuple(SPLITS))
    parser.add_argument("--curves", type=Path, help="an SVG file")
    parser.add_argument("--search", action="store_true", help="try rates instead")
    args = parser.parse_args()
    cells = [(name, split) for split in args.split or SPLITS for name in args.only or CELLS]
    if args.search:
        for name, split in cells:
            search(name, split, args.data, args.out)
        return
    results = {
        (name, split): run(
            *(cell := CELLS[name], cell.pipeline(cell.lr, cell.rounds), split, args.data),
            args.out / f"{name}-{split}",
        )
        for name, split in cells
    }
    show(results)
    for split in args.split or SPLITS:
        own = [result for (_, at), result in results.items() if at == split]
        write_report(own, args.out / split)
    if args.curves:
        draw(results, args.curves)


if __name__ == "__main__":
    main()
