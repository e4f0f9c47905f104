"""The heads on sentences: BANKING77 and CLINC150 over 100 very unlike clients: `make bench-text`.

The data are looked for in `text` below the folder that HEADSTART_DATA names: banking77_train.csv
and banking77_test.csv (text, category), clinc150_data_full.json (the full version; its validation
part and what is out of scope are left out). Accuracies are means over seeds, with the spread where
there is one; features come from the cache after the first time.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headstart.files import write_text
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import simulate

HEADS = {
    "FedNCM": "FedNCM",
    "Fed3R, λ = 0.01": "Fed3R(ridge=0.01)",
    "Fed3R, λ by GCV": "Fed3R(ridge=gcv)",
    "FedCOF": "FedCOF",
    "LDA / FedCGS": "LDA",
}
Row = tuple[str, str, str]  # text, label, split


def banking77(folder: Path) -> Iterator[Row]:
    for split in ("train", "test"):
        with (folder / f"banking77_{split}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                yield row["text"], row["category"], split


def clinc150(folder: Path) -> Iterator[Row]:
    held = json.loads((folder / "clinc150_data_full.json").read_text(encoding="utf-8"))
    for split in ("train", "test"):
        for text, label in held[split]:
            yield text, label, split


def table(rows: Iterator[Row], path: Path) -> Path:
    """The one file that `headstart fit` takes."""
    text = io.StringIO()
    csv.writer(text).writerows([("text", "label", "split"), *rows])
    write_text(path, text.getvalue())
    return path


def accuracies(path: Path, clients: int, alpha: float, seeds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in HEADS}
    for seed in range(seeds):
        settings = {
            "data": str(path),
            "text": "text",
            "partition": {"name": "dirichlet", "clients": clients, "alpha": alpha},
            "curve_points": 2,
            "seed": seed,
        }
        experiment = prepare(make_config(settings))
        for name, head in HEADS.items():
            # refuses a federated total that is not that of the pooled data
            result, _, _ = simulate(experiment, parsed(head))
            assert result.accuracy is not None
            assert result.head is not None
            found[name].append(100 * result.accuracy)
            solved, sent = result.head.solved, result.head.bytes_per_client
            print(f"{path.stem} {seed} {name}: {found[name][-1]:.2f} {solved} {sent:.0f} bytes")
    return found


def cell(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.1f}" + (f" ± {spread:.1f}" if spread >= 0.05 else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    folder = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "text"
    if not folder.is_dir():
        print(f"not run: no {folder} (HEADSTART_DATA names the folder of the benchmark data)")
        return 0
    columns = {}
    with tempfile.TemporaryDirectory() as place:
        for name, rows in (("banking77", banking77), ("clinc150", clinc150)):
            path = table(rows(folder), Path(place, f"{name}.csv"))
            columns[name] = accuracies(path, args.clients, args.alpha, args.seeds)
    print(f"| {' | '.join(['', *columns])} |\n|{'---|' * (len(columns) + 1)}")
    for head in HEADS:
        print(f"| {' | '.join([head, *(cell(found[head]) for found in columns.values())])} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
