"""Feature extraction beside its limits, both sides in one run: `make bench-features`.

    pipeline    our extraction: decoding ahead in threads, fixed batches on onnxruntime, the cache
    torch       the same images, decoded and run batch by batch on torch eager
    raw         an onnxruntime session of its own, all cores, on a batch that is ready

Ratios are of the medians of interleaved repeats. `--cifar FOLDER` (the binary form that
scripts/cifar100_binary.py writes) adds CIFAR-100 from images to heads, with the time of each part.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image
from rich.console import Console
from rich.table import Table

from headstart.data.backbones import Extractor, extractor
from headstart.data.features import extract
from headstart.data.images import load_images

BARS = {"torch": 1.8, "raw": 0.85}
console = Console()


def make_images(folder: Path, count: int, side: int) -> None:
    """Smooth coloured noise as JPEG files, class/file."""
    rng = np.random.default_rng(0)
    for i in range(count):
        small = rng.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
        place = folder / f"class{i % 4}" / f"{i:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC).save(place)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def pipeline(images: object, network: Extractor) -> float:
    with tempfile.TemporaryDirectory() as cache:
        return timed(lambda: extract(images, network, Path(cache)))  # type: ignore[arg-type]


def plainly(images: object, network: Extractor, batch: int) -> float:
    """Decode a batch, run it, and so on."""

    def work() -> None:
        for start in range(0, len(images), batch):  # type: ignore[arg-type]
            chosen = range(start, min(start + batch, len(images)))  # type: ignore[arg-type]
            network(np.stack([network.preprocess(images.open(i)) for i in chosen]))  # type: ignore[attr-defined]

    return timed(work)


def raw(pixels: np.ndarray, session: Any, rounds: int) -> float:
    return timed(lambda: [session.run(None, {"images": pixels}) for _ in range(rounds)])


def compare(count: int, side: int, repeats: int, name: str) -> dict[str, float]:
    """Median images/s of each side, interleaved."""
    fast, slow = extractor(name), extractor(name, engine="torch")
    rates: dict[str, list[float]] = {"pipeline": [], "torch": [], "raw": []}
    with tempfile.TemporaryDirectory() as place:
        make_images(Path(place), count, side)
        images = load_images(place)
        ready = np.stack([fast.preprocess(images.open(i)) for i in range(fast.batch)])
        fast(ready), slow(ready)  # engines start, networks are exported
        bare = onnxruntime.InferenceSession(fast.source.onnx())
        bare.run(None, {"images": ready})
        for _ in range(repeats):
            rates["pipeline"].append(count / pipeline(images, fast))
            rates["torch"].append(count / plainly(images, slow, slow.batch))
            rounds = max(1, count // fast.batch)
            rates["raw"].append(rounds * fast.batch / raw(ready, bare, rounds))
    return {name: statistics.median(found) for name, found in rates.items()}


def show(rates: dict[str, float]) -> bool:
    table = Table(title="images/s, MobileNetV2 at 224 px, decoding included in ours and torch's")
    for column in ("side", "images/s", "ours is", "bar", "ok"):
        table.add_column(column, justify="left" if column == "side" else "right")
    table.add_row("pipeline (ours)", f"{rates['pipeline']:.1f}", "", "", "")
    good = True
    for name, bar in BARS.items():
        ratio = rates["pipeline"] / rates[name]
        good &= ratio >= bar
        word = "yes" if ratio >= bar else "NO"
        table.add_row(name, f"{rates[name]:.1f}", f"{ratio:.2f}×", f"≥ {bar}", word)
    console.print(table)
    return good


HEADS = (
    "Fed3R",
    "FedNCM",
    "FedCOF",
    "LDA",
    "Fed3R(scatter=within)",
    "shared-variances(kind=diagonal)",
    "Fed3R-RF(dimension=5000)",
)


def end_to_end(folder: Path, clients: int) -> None:
    """CIFAR-100 from images to all heads, the time of each part."""
    from headstart.pipeline.config import make_config, parsed
    from headstart.pipeline.experiment import prepare
    from headstart.pipeline.run import simulate

    config = make_config(
        {
            "data": str(folder),
            "extractor": "mobilenet_v2",
            "partition": {"name": "dirichlet", "clients": clients, "alpha": 0.1},
            "curve_points": 1,
        }
    )
    began = time.perf_counter()
    experiment = prepare(config)
    console.print(f"features and split: {time.perf_counter() - began:.1f} s (0 to read if cached)")
    for head in HEADS:
        began = time.perf_counter()
        found, _, _ = simulate(experiment, parsed(head))
        spent = time.perf_counter() - began
        console.print(
            f"{found.pipeline}: accuracy {100 * (found.accuracy or 0):.1f}, federation, solve, "
            f"calibration and tests {found.seconds:.1f} s, beside pooled data {spent:.1f} s"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=768)
    parser.add_argument("--side", type=int, default=160)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--extractor", default="mobilenet_v2")
    parser.add_argument("--cifar", type=Path, help="cifar-100-binary folder: end to end as well")
    args = parser.parse_args()
    good = show(compare(args.images, args.side, args.repeats, args.extractor))
    if args.cifar:
        end_to_end(args.cifar, 100)
    else:
        console.print("CIFAR-100 end to end: not run (give --cifar FOLDER)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
