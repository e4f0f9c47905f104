"""A source with labels, clients without: LADD next to its baselines, on the drives of CamVid.

    python benchmarks/ladd.py closed                       # closed form over frozen cells
    python benchmarks/ladd.py rounds --seeds 3             # with gradients, 96×128
    python benchmarks/ladd.py rounds --source drawn        # the same from drawn scenes

The source is drive 0016E5 (204 labelled frames); clients are runs of about 16 frames of the other
three drives, tested on the last five of each, which nobody trains on and no style is measured on.
Scores are enlarged to the full masks. With gradients every cell of the table (a method, a seed) is
a file in `--out`, so that a command that was cut short goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from headstart.console import bar
from headstart.data import drawn, styles
from headstart.data.augment.base import Draw
from headstart.data.augment.restyle import FDA
from headstart.data.backbones.preprocess import as_rgb
from headstart.data.cells import CellSamples, CellSet, cell_extractor
from headstart.data.features import extract
from headstart.data.partition import runs
from headstart.data.samples import ArraySamples
from headstart.data.scene_layouts import load_scenes
from headstart.data.scenes import SceneSet
from headstart.federation import steps
from headstart.federation.judging import confusion
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.files import write_bytes
from headstart.gradient.cluster_models import AveragedTeacher
from headstart.gradient.clustered import Clustering, begin_clustered, clustered_rounds
from headstart.gradient.clusters import Clusters, clustered
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, rounds
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.segmenting import predicted_masks, with_measured_statistics
from headstart.gradient.steps import Job
from headstart.heads.lda import LDA
from headstart.pipeline.adapting import CellSource, ClientStyles, adapted
from headstart.pipeline.networks import published
from headstart.statistics.confusion import Confusion

DATA = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "camvid/camvid_480x360.zip"
SOURCE, FRAMES, TESTED = "0016E5", 15, 5
SIZE = (128, 96)  # width and height of what a network trains on
NETWORK, WIDTH = "deeplabv3_narrow", 64
PRETRAINING = Training(rate=0.05, epochs=8, batch=8, momentum=0.9)  # 208 steps of 204 frames
ADAPTING = Training(rate=0.005, batch=6, momentum=0.9)
HARDEST = 0.25  # of the pixels of an image, where there are labels
ROUNDS, COHORT, START = 20, 4, 5
Params = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Streets:
    """The source, the clients and the tests."""

    source: SceneSet
    target: SceneSet
    train: dict[str, np.ndarray]  # of each client: places in `target`
    test: dict[str, np.ndarray]

    @classmethod
    def of(cls, source: str) -> Streets:
        whole = load_scenes(DATA)
        drives = np.asarray(whole.clients)
        target = whole.subset(drives != SOURCE)
        held = drawn_source() if source == "drawn" else whole.subset(drives == SOURCE)
        parts = dict(runs(target.clients, FRAMES).items())
        train = {name: rows[:-TESTED] for name, rows in parts.items()}
        return cls(held, target, train, {name: rows[-TESTED:] for name, rows in parts.items()})

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """The style of each client: the mean low amplitudes of its training frames."""
        return {
            name: np.mean([self.style(i) for i in own], axis=0) for name, own in self.train.items()
        }

    @cached_property
    def clusters(self) -> Clusters:
        return clustered(self.rows)

    def style(self, i: int) -> np.ndarray:
        return FDA().measured(as_rgb(self.target.open(int(i))))

    @cached_property
    def nearest(self) -> dict[int, int]:
        """The cluster of each test frame, by the style of the frame alone."""
        every = np.concatenate(list(self.test.values())).tolist()
        return {i: self.clusters.nearest(self.style(i)) for i in every}

    def drive(self, i: int) -> str:
        return str(self.target.clients[i])


def drawn_source() -> SceneSet:
    """500 drawn scenes."""
    made = drawn.streets(drives=25, frames=20, size=(192, 256))
    return replace(made, test=None)


def small(scenes: SceneSet, places: Any) -> ArraySamples:
    """Frames and masks at the size that a network trains on."""
    x, y = [], []
    for i in places:
        x.append(np.asarray(as_rgb(scenes.open(int(i))).resize(SIZE)).transpose(2, 0, 1))
        mask = scenes.mask(int(i))
        rows, columns = (
            (np.arange(out) * size + size // 2) // out
            for out, size in zip(SIZE[::-1], mask.shape, strict=True)
        )
        y.append(mask[rows[:, None], columns])
    return ArraySamples(np.stack(x).astype(np.uint8), np.stack(y))


@dataclass(frozen=True, eq=False)
class StyledSamples:
    """Samples that take, whenever they are read for training, the style of a random client."""

    inner: ArraySamples
    windows: np.ndarray  # N×3×3×3

    @property
    def labels(self) -> Any:
        return self.inner.labels

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape

    def __len__(self) -> int:
        return len(self.inner)

    def read(self, positions: Any = slice(None), key: bytes | None = None) -> Any:
        x, y = self.inner.read(positions)
        if key is None:
            return x, y
        at = np.arange(len(self))[positions].tolist()
        chosen = [Draw(key, "fda", place).below(len(self.windows)) for place in at]
        return styles.fda(x, self.windows[chosen]), y


# -- the measure -----------------------------------------------------------------------------------


def judged(streets: Streets, predict: Callable[[np.ndarray, int], np.ndarray]) -> dict[str, float]:
    """mIoU of all test frames, and of each drive's; `predict`: frames at the small size."""
    found: dict[str, Confusion] = {}
    target = streets.target
    for rows in streets.test.values():
        x = small(target, rows).features
        for place, i in enumerate(rows.tolist()):
            guess = predict(x[place : place + 1], i)[0]
            one = Confusion.of([(target.mask(i), guess)], np.arange(len(target.names)))
            drive = streets.drive(i)
            found[drive] = found[drive] + one if drive in found else one
    total = sum(list(found.values())[1:], next(iter(found.values())))
    return {"all": total.mean_iou, **{drive: one.mean_iou for drive, one in found.items()}}


def printed(scores: dict[str, float]) -> str:
    per_drive = " / ".join(f"{100 * scores[name]:.1f}" for name in sorted(scores) if name != "all")
    return f"{100 * scores['all']:.1f} ({per_drive})"


# -- in closed form --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured(CellSource):
    """A source that is measured once in each style."""

    kept: dict[Any, Any] = field(default_factory=dict)

    def measured(
        self, head: Any, style: Any = None, rows: Any = None, *more: Any, **how: Any
    ) -> Any:
        key = style, None if rows is None else rows.tobytes()
        if key not in self.kept:
            self.kept[key] = super().measured(head, style, rows, *more, **how)
        return self.kept[key]


def in_closed_form(options: argparse.Namespace) -> None:
    """A head per row: the source as it is, restyled, by cluster, with pseudo-labels."""
    streets = Streets.of(options.source)
    clusters(streets)
    every_frame_styles(streets)
    target = streets.target
    network = cell_extractor("mobilenet_v2", target.size(0))
    with bar() as show:
        cells = CellSet.of(target, extract(target, network, progress=show), network.grid)
        federation = Simulator(
            {name: ClientData(cells.picked(own)) for name, own in streets.train.items()}
        )
        source, head = Measured(streets.source, network), LDA(shrinkage=1e-3)
        tests: dict[str, list[int]] = {}
        for rows in streets.test.values():
            tests.setdefault(streets.drive(rows[0]), []).extend(rows.tolist())
        clients = ClientStyles.of(federation, "fda", "lab")

        def row(name: str, confusion: Callable[[CellSamples], Confusion], began: float) -> None:
            parts = {n: confusion(cells.picked(np.array(own))) for n, own in tests.items()}
            whole = sum(list(parts.values())[1:], next(iter(parts.values())))
            scores = {"all": whole.mean_iou, **{n: one.mean_iou for n, one in parts.items()}}
            print(f"| {name} | {printed(scores)} | {time.process_time() - began:.0f} |", flush=True)

        print("| head | mIoU, all tests (by drive) | CPU s |\n|---|---|---|")
        names = np.array(target.names)
        for style in (None, "fda", "lab"):
            began = time.process_time()
            rows = None if style is None else clients.rows(style)
            solved = head.solve(source.measured(head, style, rows, progress=show))
            said = "as it is" if style is None else f"with all clients' {style} styles"
            row(f"source {said}", lambda own, h=solved: confusion(h, own, names), began)
        for style in ("fda", "lab"):
            for trust in (0, 1, 2, 4):
                began = time.process_time()
                found = adapted(
                    federation, source, head, clients, style=style, trust=trust, progress=show
                )
                said = f"pseudo-labels ×{trust}" if trust else "no pseudo-labels"
                row(
                    f"per cluster, {style}, {said}", lambda o, f=found: f.confusion(o, names), began
                )
        began = time.process_time()
        answer = federation.total(steps.measure(head, **source.how))
        solved = head.solve(answer.statistic)
        row(
            "the clients' own labels (oracle)",
            lambda own, h=solved: confusion(h, own, names),
            began,
        )


def every_frame_styles(streets: Streets) -> None:
    """What the number of clusters would be with styles of all frames, tests too."""
    rows = {
        name: np.mean([streets.style(i) for i in (*own, *streets.test[name])], axis=0)
        for name, own in streets.train.items()
    }
    found = clustered(rows)
    close = {count: round(value, 3) for count, value in list(found.silhouettes.items())[:4]}
    print(f"with the styles of all frames: {len(found)} clusters (silhouettes {close})")


# -- with gradients --------------------------------------------------------------------------------


class Table:
    """The cells of one seed, each made when it is asked for and kept in a file."""

    def __init__(self, streets: Streets, seed: int, folder: Path, epochs: int) -> None:
        self.streets, self.seed, self.folder, self.epochs = streets, seed, folder, epochs
        spec = Spec(len(streets.target.names), WIDTH, network=NETWORK, batch_norm="average")
        self.spec, self.model = spec, build(spec)
        self.hard = replace(spec, hardest=HARDEST)
        self.classes = np.arange(spec.classes)
        self.train = {name: small(streets.target, own) for name, own in streets.train.items()}

    def cell(self, name: str) -> dict[str, Any]:
        path = self.folder / f"{name}-{self.seed}.json"
        if not path.exists():
            began = time.process_time()
            scores = getattr(self, name.replace("-", "_"))()
            made = {"scores": scores, "cpu_seconds": time.process_time() - began}
            write_bytes(path, json.dumps(made).encode())
        found: dict[str, Any] = json.loads(path.read_bytes())
        return found

    # each gives the scores of one row

    def source_only(self) -> Any:
        return self.scored(self.pretrained(False))

    def source_and_fda(self) -> Any:
        return self.scored(self.pretrained(True))

    def adabn(self) -> Any:
        """The source model with the statistics of the clients' frames and nothing else."""
        x = np.concatenate([own.features for own in self.train.values()])
        blocks = [x[at : at + 32] for at in range(0, len(x), 32)]
        return self.scored(with_measured_statistics(self.model, self.pretrained(False), blocks))

    def self_training(self) -> Any:
        """FedAvg on the pseudo-labels of the received model."""
        job = Job("ladd", self.spec, ADAPTING, "model", {"kd": 0.0})
        return self.fedavg(job, self.pretrained(False), self.unlabelled())

    def ladd(self, own: str = "all", fda: bool = False) -> Any:
        job = Job("ladd", self.spec, ADAPTING, "model", {"kd": 1.0})
        how = Clustering.by_style(
            self.streets.clusters,
            own=own,
            teacher=AveragedTeacher(START),
        )
        start = begin_clustered(job, how, self.pretrained(fda))
        federation, curve = Simulator(self.unlabelled(), seed=self.seed), {}
        for state in clustered_rounds(job, self.plan, federation, self.classes, how, start):
            if state.round % 10 == 0:
                models = {cluster: state.params(cluster) for cluster in range(how.count)}
                curve[str(state.round)] = self.scored_by(models)
        return {**curve[str(ROUNDS)], "curve": curve}

    def ladd_without_clusters(self) -> Any:
        return self.ladd(own="none")

    def ladd_from_fda(self) -> Any:
        return self.ladd(fda=True)

    def ftda(self) -> Any:
        """From the source, then with the clients' labels: an upper bound."""
        return self.fedavg(self.supervised(ADAPTING), self.pretrained(False), self.labelled())

    def oracle(self) -> Any:
        """The clients' labels in one place, as many steps as the source has."""
        every = list(self.train.values())
        x, y = (np.concatenate([getattr(o, n) for o in every]) for n in ("features", "labels"))
        steps = PRETRAINING.batch * self.epochs * 204 / 8
        training = replace(PRETRAINING, epochs=max(1, round(steps / len(x))))
        job = self.supervised(training)
        return self.scored(self.alone(job, self.begin(), ArraySamples(x, y)))

    # and how

    @property
    def plan(self) -> Plan:
        return Plan(rounds=ROUNDS, clients=COHORT, seed=self.seed)

    def supervised(self, training: Training) -> Job:
        return Job("fedavg", self.hard, training, "model")

    def begin(self) -> Params:
        return {**initial(self.model, None, self.seed), **published(NETWORK, None)}

    def pretrained(self, fda: bool) -> Params:
        """The model of the source, from ImageNet's weights; kept."""
        path = self.folder / f"source{'-fda' if fda else ''}-{self.seed}.npz"
        if not path.exists():
            samples: Any = small(self.streets.source, range(len(self.streets.source)))
            if fda:
                windows = np.stack(list(self.streets.rows.values())).reshape(-1, 3, 3, 3)
                samples = StyledSamples(samples, windows)
            epochs = max(1, round(self.epochs * 204 / len(samples)))
            job = self.supervised(replace(PRETRAINING, epochs=epochs))
            params = self.alone(job, self.begin(), samples)
            np.savez(path, **params)
        with np.load(path) as held:
            return {name: held[name] for name in held.files}

    def alone(self, job: Job, params: Params, samples: Any) -> Params:
        """A training in one place is a federation of one client."""
        federation = Simulator({"server": ClientData(samples)}, seed=self.seed)
        (end,) = rounds(job, Plan(1, 1), federation, self.classes, begin(job, params))
        return end.params

    def fedavg(self, job: Job, params: Params, clients: dict[str, ClientData]) -> Any:
        federation, curve = Simulator(clients, seed=self.seed), {}
        for state in rounds(job, self.plan, federation, self.classes, begin(job, params)):
            if state.round % 10 == 0:
                curve[str(state.round)] = self.scored(state.params)
        return {**curve[str(ROUNDS)], "curve": curve}

    def labelled(self) -> dict[str, ClientData]:
        return {name: ClientData(own) for name, own in self.train.items()}

    def unlabelled(self) -> dict[str, ClientData]:
        """Every pixel is void."""
        return {
            name: ClientData(ArraySamples(own.features, np.full_like(own.labels, -1)))
            for name, own in self.train.items()
        }

    def scored(self, params: Params) -> dict[str, float]:
        return self.scored_by(dict.fromkeys(range(len(self.streets.clusters)), params))

    def scored_by(self, models: dict[int, Params]) -> dict[str, float]:
        """Each test frame by the model of the cluster whose centre is nearest to its style."""

        def predict(x: np.ndarray, i: int) -> np.ndarray:
            size = self.streets.target.mask(i).shape
            return predicted_masks(self.model, models[self.streets.nearest[i]], x, size)

        return judged(self.streets, predict)


CELLS = (
    *("source-only", "source-and-fda", "adabn", "self-training", "ladd", "ladd-without-clusters"),
    *("ladd-from-fda", "ftda", "oracle"),
)


def with_gradients(options: argparse.Namespace) -> None:
    """A row per method: the mean over seeds, and the seeds."""
    streets = Streets.of(options.source)
    clusters(streets)
    folder = options.out / options.source
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict[str, Any]]] = {}
    wanted = options.cells or list(CELLS)
    with bar() as show:
        for place, seed in enumerate(range(options.seeds)):
            table = Table(streets, seed, folder, options.epochs)
            for at, name in enumerate(wanted):
                found.setdefault(name, []).append(table.cell(name))
                show("cells", place * len(wanted) + at + 1, options.seeds * len(wanted))
                print(f"seed {seed} {name}: {printed_row(found[name][-1])}", flush=True)
    print(f"\n| method | mIoU: mean of {options.seeds} seeds | seeds | CPU s |\n|---|---|---|---|")
    for name, cells in found.items():
        each = [100 * cell["scores"]["all"] for cell in cells]
        seconds = np.mean([cell["cpu_seconds"] for cell in cells])
        seeds = ", ".join(f"{value:.1f}" for value in each)
        print(f"| {name} | {np.mean(each):.1f} ± {np.std(each):.1f} | {seeds} | {seconds:.0f} |")


def printed_row(cell: dict[str, Any]) -> str:
    scores = {name: value for name, value in cell["scores"].items() if name != "curve"}
    curve = cell["scores"].get("curve", {})
    rounds_ = ", ".join(f"round {at}: {printed(one)}" for at, one in curve.items())
    return rounds_ or printed(scores)


def clusters(streets: Streets) -> None:
    """How many there are, and who is with their drive."""
    found = streets.clusters
    with_drive = sum(
        Counter(name.partition("/")[0] for name in found.members(s)).most_common(1)[0][1]
        for s in range(len(found))
    )
    close = {count: round(value, 3) for count, value in list(found.silhouettes.items())[:4]}
    print(
        f"{len(found)} clusters of {len(found.of)} clients (silhouettes {close}); "
        f"{with_drive} with their drive"
    )


def main() -> None:
    about = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    about.add_argument("part", choices=("closed", "rounds"))
    about.add_argument("--source", default=SOURCE, choices=(SOURCE, "drawn"))
    about.add_argument("--out", type=Path, default=Path("runs/ladd"))
    about.add_argument("--seeds", type=int, default=3)
    about.add_argument("--epochs", type=int, default=8, help="of the source, 26 steps of 8 each")
    about.add_argument("--cells", nargs="*", choices=CELLS)
    options = about.parse_args()
    (in_closed_form if options.part == "closed" else with_gradients)(options)


if __name__ == "__main__":
    main()
