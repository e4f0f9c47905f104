"""Peak memory of training a network on images: 1,000 and 10,000 of them, in fresh processes.

    python images.py            both, and their ratio
    python images.py COUNT      one of them, in this process

Images of noise, JPEG of 64 pixels, in the folders of 50 clients; two rounds of FedAvg with 10
clients on `small_cnn` at 32 pixels. Every image is decoded before (to find corrupt ones), the
clients' again in a round, and the test set's for the accuracy. Bytes beyond what the imports take,
the least of two runs. glibc keeps freed pieces for itself, the more the longer a program runs: the
bar is on runs in which it gives them back at once (what the program holds), and the figure of a run
as users start it is printed beside it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from headstart.gradient import steps  # noqa: F401  # torch is there before memory is measured
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import simulate
from memory import in_fresh_process, peak_of

COUNTS, RUNS = (1_000, 10_000), 2
CLIENTS, SIZE, CLASSES = 50, 64, 10
BAR = 1.25


def paint(folder: Path, count: int) -> None:
    """`count` images, a folder per client and class."""
    rng = np.random.default_rng(0)
    for at in range(count):
        place = folder / f"c{at % CLIENTS}" / f"k{at // CLIENTS % CLASSES}" / f"{at}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(place)


def train(folder: Path) -> None:
    how = {"data": str(folder), "network": "small_cnn", "pixels": 32, "cohort": 10}
    simulate(prepare(make_config(how)), parsed("none + FedAvg-2(f, batch=10)"))


def peaks() -> tuple[int, int]:
    few, many = (
        min(in_fresh_process(count, script=__file__) for _ in range(RUNS)) for count in COUNTS
    )
    return few, many


def main() -> None:
    resident = peaks()
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**20)
    held = peaks()
    for name, (few, many) in {"as started": resident, "held": held}.items():
        print(f"{name}: {few / 1e6:.0f} MB at {COUNTS[0]:,} images, ", end="")
        print(f"{many / 1e6:.0f} MB at {COUNTS[1]:,}, ratio {many / few:.2f}")
    print(f"bar {BAR:g} on what is held")
    sys.exit(held[1] / held[0] > BAR)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    with tempfile.TemporaryDirectory() as root:
        os.environ["HEADSTART_CACHE"] = f"{root}/cache"
        paint(Path(root) / "photos", int(sys.argv[1]))
        print(json.dumps({"peak": peak_of(lambda: train(Path(root) / "photos"))}))
