"""FedDrive in small: CamVid's drives as clients, natural and recoloured.

    python benchmarks/feddrive.py --data camvid_480x360.zip --out drives
    python benchmarks/feddrive.py --data camvid_480x360.zip --out drives --only natural --seeds 0

15 clients are runs of about 25 consecutive frames of three drives (every other frame of the
longest); the last fifth of each is a test of what is seen, all of the drive Seq05VD of what is not.
DeepLabV3 on MobileNetV2 (64 wide, stride 16, 96×128 pixels), 5 clients per round, one epoch,
batches of 8, rate 0.02, momentum 0.9, decay 5e-4, the hardest quarter of pixels: FedDrive's form,
cut to 16 rounds (20 of natural drives). Recoloured: each training drive has another channel ×2 and
the others ×½, the unseen one is as it was filmed.

Every cell is a run folder; the same command goes on where it was stopped. The bars are on means
over seeds of recoloured drives: SiloBN's standard inference, the statistics of each batch of 8 test
images as in FedDrive's program, is better than FedAvg by 1.5 points where drives are seen and 2
where they are not; a client's own statistics, measured, by 0.5.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import zipfile
from collections import defaultdict
from pathlib import Path, PurePosixPath
from statistics import mean, stdev
from typing import Any

import numpy as np
from PIL import Image

from headstart.console import bar
from headstart.data.augment.domain_shift import CHANNELS, DomainShift
from headstart.data.scenes import CAMVID
from headstart.pipeline.config import make_config
from headstart.pipeline.run import run_config
from headstart.results import SeedResult

UNSEEN, FRAMES, DELTA = "Seq05VD", 25, 2.0
LONG = 300  # frames, of which every other one is taken
HOW = "batch=8, lr=0.02, momentum=0.9, decay=0.0005, hardest=0.25"
ROUNDS = {"recoloured": 16, "natural": 20}
CELLS = [("FedAvg", None), ("SiloBN", None), ("FedAvg", "lab"), ("FedAvg", "cfsi")]
INFERENCES = {  # of one training: the row of a table
    "averaged": "FedAvg",
    "standard": "SiloBN, standard (batches of 8)",
    "whole": "SiloBN, standard (all test images)",
    "by-domain": "SiloBN, by domain (running)",
    "by-domain-measured": "SiloBN, by domain (measured)",
}
BARS = [
    ("standard", "seen", 1.5),
    ("standard", "unseen", 2.0),
    ("by-domain-measured", "seen", 0.5),
    ("whole", "seen", None),  # mixes drives of all colours: told, without a bar
    ("whole", "unseen", None),
]
Scores = dict[tuple[str, str], list[float]]  # mIoU of each seed, by inference and test


def prepare(data: Path, folder: Path, recoloured: bool) -> Path:
    """The frames in a layout of their own, each with its client; made once."""
    if (folder / "meta.csv").exists():
        return folder
    rows = [("name", "split", "client")]
    with zipfile.ZipFile(data) as archive:
        drives = by_drive(archive.namelist())
        training = [name for name in sorted(drives) if name != UNSEEN]
        for drive, frames in drives.items():
            kept = frames[::2] if len(frames) > LONG else frames
            seen = drive != UNSEEN
            colour = CHANNELS[training.index(drive)] if seen and recoloured else ""
            for part, own in enumerate(np.array_split(kept, round(len(kept) / FRAMES))):
                for place in own.tolist():
                    name = put(archive, place, folder, DomainShift(DELTA, colour))
                    rows.append((name, "train" if seen else "test", f"{drive}-{part}"))
    classes = [f"{place},{name}," for place, name in enumerate(CAMVID)]
    (folder / "classes.csv").write_text("\n".join(["id,name,void", *classes, "11,void,1", ""]))
    with (folder / "meta.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


def by_drive(names: list[str]) -> dict[str, list[str]]:
    """The frames of every drive in their order, of all splits."""
    found: dict[str, list[str]] = defaultdict(list)
    photos = [name for name in names if name.endswith(".webp")]
    for name in sorted(photos, key=lambda name: PurePosixPath(name).name):
        found[PurePosixPath(name).name.split("_")[0]].append(name)
    return found


def put(archive: zipfile.ZipFile, place: str, folder: Path, shift: DomainShift) -> str:
    """An image in the colours of its domain and its mask as it is; their name."""
    split, stem = PurePosixPath(place).parts[0], PurePosixPath(place).stem
    for below in ("images", "masks"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(archive.read(place))).convert("RGB")
    shift.image(image).save(folder / "images" / f"{stem}.png")
    (folder / "masks" / f"{stem}.png").write_bytes(archive.read(f"{split}annot/{stem}.png"))
    return stem


def trained(
    folder: Path, out: Path, kind: str, cell: tuple[str, str | None], seeds: list[int], show: Any
) -> tuple[SeedResult, ...]:
    """A cell, run or read."""
    method, augment = cell
    settings = {
        "data": str(folder),
        "network": "deeplabv3_narrow",
        "pixels": "96x128",
        "held_out": 0.2,
        "cohort": 5,
        "evaluate_every": 4,
        "checkpoint_every": 2,
        "augment": augment,
        "pipeline": f"{method}-{ROUNDS[kind]}(f, {HOW})",
    }
    place = out / f"{kind}-{method.lower()}{f'-{augment}' if augment else ''}"
    runs: list[SeedResult] = []
    for seed in seeds:
        config = make_config({**settings, "seed": seed})
        runs += run_config(config, place / f"{seed}", progress=show).runs
    return tuple(runs)


def scores(runs: tuple[SeedResult, ...]) -> Scores:
    found: Scores = defaultdict(list)
    for run in runs:
        for row in run.pixels:
            found[row.inference, row.test].append(100 * row.mean_iou)
    return found


def told(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"


def table(kind: str, of: dict[str | None, dict[str, Scores]]) -> None:
    print(f"\n{kind} drives, {ROUNDS[kind]} rounds: mIoU, seen | unseen\n")
    names = {None: "as it is", "lab": "+ LAB", "cfsi": "+ CFSI"}
    print("| | " + " | ".join(names[augment] for augment in of) + " |")
    print("|---|" + "---|" * len(of))
    for inference, title in INFERENCES.items():
        cells = []
        for methods in of.values():
            held: Scores = {}
            for scores_ in methods.values():
                held = {**scores_, **held}
            both = [told(held.get((inference, test), [])) for test in ("seen", "unseen")]
            cells.append(" \\| ".join(both))
        print(f"| {title} | " + " | ".join(cells) + " |")


def judged(found: Scores) -> bool:
    """The bars, on the differences seed by seed."""
    passed = True
    for inference, test, least in BARS:
        gains = np.subtract(found[inference, test], found["averaged", test])
        met = least is None or bool(gains.mean() >= least)
        passed &= met
        each = ", ".join(f"{gain:+.1f}" for gain in gains)
        verdict = "" if least is None else f", bar {least:+.1f}: {'met' if met else 'NOT met'}"
        print(f"{INFERENCES[inference]} − FedAvg, {test}: {gains.mean():+.2f} ({each}){verdict}")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="CamVid's archive")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", choices=list(ROUNDS))
    parser.add_argument("--cells", default="0,1,2,3", help="of FedAvg, SiloBN, LAB, CFSI")
    given = parser.parse_args()
    passed, seeds = True, [int(seed) for seed in given.seeds.split(",")]
    for kind in [given.only] if given.only else ROUNDS:
        folder = prepare(given.data, given.out / "frames" / kind, kind == "recoloured")
        of: dict[str | None, dict[str, Scores]] = defaultdict(dict)
        for number in map(int, given.cells.split(",")):
            method, augment = CELLS[number]
            with bar() as show:
                runs = trained(folder, given.out, kind, CELLS[number], seeds, show)
            of[augment][method] = scores(runs)
            spent = mean(run.seconds or 0.0 for run in runs)
            print(f"{kind} {method} {augment or ''}: {spent:.0f} s per run", flush=True)
        table(kind, of)
        if kind == "recoloured" and "FedAvg" in of.get(None, {}):
            passed &= judged(of[None]["FedAvg"])
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
