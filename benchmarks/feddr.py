"""The run of docs/feddr.md: frozen heads against each other on 20 classes of CIFAR-100.

    python scripts/cifar_part.py cifar-100-binary cifar20 --classes 20 --train 250
    python benchmarks/feddr.py --data cifar20 --out feddr --curves curves.svg

50 clients, 10 a round, 3 local epochs, batches of 50, momentum 0.9, a tenth of the rate after half
and after three quarters of the rounds. Every cell is a run folder; the same command goes on where
it was stopped. `--only NAME` and `--split NAME` run some of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headstart.console import bar
from headstart.report.compare import write_compare
from headstart.runs.config import make_config
from headstart.runs.stories import run_sentence

SPLITS: dict[str, dict[str, Any]] = {
    "dirichlet": {"name": "dirichlet", "clients": 50, "alpha": 0.1},
    "shards": {"name": "shards", "clients": 50, "shards_per_client": 2},
}
ALIKE = "epochs=3, batch=50, decay=0.00001, local_momentum=0.9"
LONG, SHORT = f"{ALIKE}, drops='25,38'", f"{ALIKE}, drops='10,15'"
CELLS = {  # name: (network, sentence)
    "fedavg": ("small_cnn", f"none + FedAvg-50(f, lr=0.03, {LONG})"),
    "fedbabu": ("small_cnn", f"none + FedBABU-50(lr=0.03, {LONG})"),
    "sphere": ("small_cnn", f"Orthonormal + SphereFed-50(lr=0.5, {LONG})"),
    "dr": ("small_cnn", f"ETF + dot-regression-50(lr=0.15, {LONG})"),
    "drplus": ("small_cnn", f"ETF + FedDr+-50(lr=0.5, {LONG})"),
    "pre-etf": ("mobilenet_v2", f"ETF + FedDr+-20(lr=0.15, {SHORT})"),
    "pre-fed3r": ("mobilenet_v2", f"Fed3R(ridge=gcv) + FedDr+-20(lr=0.15, {SHORT})"),
}
TITLES = {
    "fedavg": "FedAvg",
    "fedbabu": "FedBABU",
    "sphere": "SphereFed",
    "dr": "dot-regression",
    "drplus": "FedDr+",
    "pre-etf": "FedDr+, pre-trained, ETF",
    "pre-fed3r": "FedDr+, pre-trained, Fed3R",
}


def run(name: str, split: str, data: str, out: Path) -> dict[str, Any]:
    network, sentence = CELLS[name]
    config = make_config(
        {
            "data": data,
            "phases": sentence,
            "network": network,
            "pixels": 32,
            "cohort": 10,
            "held_out": 0.0,
            "evaluate_every": 10 if network == "small_cnn" else 5,
            "partition": SPLITS[split],
            "diagnostics": True,
        }
    )
    with bar() as show:
        return run_sentence(config, out / f"{name}-{split}", show)


def series(result: dict[str, Any], key: str) -> tuple[list[float], list[float]]:
    points = [point for point in result["curve"] if point.get(key) is not None]
    return [point["round"] for point in points], [point[key] for point in points]


def show(results: dict[tuple[str, str], dict[str, Any]]) -> None:
    keys = ("observed_alignment", "unobserved_alignment", "observed_gap", "unobserved_gap")
    print("| method | split | accuracy | best | alignment: has | lacks | gap: has | lacks |")
    print("|---" * 8 + "|")
    for (name, split), result in results.items():
        accuracy = series(result, "accuracy")[1]
        last = [values[-1] if (values := series(result, key)[1]) else None for key in keys]
        told = " | ".join("–" if value is None else f"{value:+.3f}" for value in last)
        percent = f"{100 * accuracy[-1]:.1f} | {100 * max(accuracy):.1f}"
        print(f"| {TITLES[name]} | {split} | {percent} | {told} |")


def draw(results: dict[tuple[str, str], dict[str, Any]], path: Path) -> None:
    """Above the accuracy, below the alignment with rows of classes that clients lack."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "feddr", "font.size": 9})
    from matplotlib import pyplot

    columns = {"accuracy": "test accuracy", "unobserved_alignment": "alignment, classes it lacks"}
    splits = sorted({split for _, split in results})
    size = (8, 0.6 + 2.8 * len(splits))
    figure, panels = pyplot.subplots(len(splits), len(columns), figsize=size, squeeze=False)
    for row, split in zip(panels, splits, strict=True):
        for axes, (key, label) in zip(row, columns.items(), strict=True):
            for at, name in enumerate(CELLS):
                if (name, split) in results:
                    known = series(results[name, split], key)
                    axes.plot(*known, f"C{at}o-", ms=3, label=TITLES[name])
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
    args = parser.parse_args()
    results = {
        (name, split): run(name, split, args.data, args.out)
        for split in args.split or SPLITS
        for name in args.only or CELLS
    }
    show(results)
    for split in args.split or SPLITS:
        own = [result for (_, at), result in results.items() if at == split]
        write_compare(own, args.out / f"{split}.html")
    if args.curves:
        draw(results, args.curves)


if __name__ == "__main__":
    main()
