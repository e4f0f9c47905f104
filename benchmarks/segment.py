"""Heads over pixels on CamVid, and how far a closed form goes: `make bench-segment`.

    python benchmarks/segment.py [heads] [wide] [fedavg] [bits] [best]

The archive is looked for in `camvid` below the folder that HEADSTART_DATA names: 367 images to
train on, 101 to choose by, 233 to test. mIoU is of all pixels of the full masks.

heads   FedNCM, Fed3R and LDA over the stages of a frozen MobileNetV2; bytes, CPU seconds.
wide    LDA on 2,048 random (hinge) features of every other image.
fedavg  a linear softmax head by FedAvg on the same features, standardized: runs of some 20 frames,
        20 rounds of 5 clients, one epoch, batches of 50 cells, rate 0.1.
bits    digests over splits, orders and a forgotten drive.
best    heads over the stages of EfficientNet-Lite2, the image enlarged by 1.5 (cells of 5⅓ pixels),
        from every other training image and every other cell. A second message per client carries
        the moments of more: the stages of the image made smaller by 0.75 (w), the context of the
        first head's scores (c), hinge features along the first head's directions (A, 1,024) and
        along these and 54 principal ones (B, 1,024); z are the stages themselves. Every
        combination is tried on the validation images; the best of them, and it alone, is tested.

Exit code 1: a bar is not met.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from headstart.data import pixel_features as px
from headstart.data.backbones.catalogue import network
from headstart.data.backbones.preprocess import Whole
from headstart.data.cells import (
    STRIDE,
    CellExtractor,
    CellSamples,
    CellSet,
    cell_extractor,
    enlarge,
    label_cells,
)
from headstart.data.feature_cache import default_cache
from headstart.data.features import extract
from headstart.data.partition import Partition, iid, natural, runs
from headstart.data.scene_layouts import load_scenes
from headstart.data.scenes import VOID, SceneSet
from headstart.federation import steps
from headstart.federation.judging import confusion, measured
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.heads.fed3r import Fed3R
from headstart.heads.fedncm import FedNCM
from headstart.heads.lda import LDA
from headstart.statistics.base import total
from headstart.statistics.confusion import Confusion
from headstart.statistics.moments import Moments
from headstart.statistics.parts import Gram

Array = np.ndarray[Any, Any]
ARCHIVE = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "camvid/camvid_480x360.zip"
BOUND = 128.0
FAILED: list[str] = []


def bar(what: str, value: float, least: float | None = None, most: float | None = None) -> None:
    """Print a figure and whether it is where it is asked to be."""
    met = (least is None or value >= least) and (most is None or value <= most)
    asked = f"≥ {least:g}" if least is not None else f"≤ {most:g}"
    print(f"{'ok  ' if met else 'FAIL'} {what}: {value:.3f} ({asked})", flush=True)
    if not met:
        FAILED.append(what)


class Clock:
    """CPU seconds of this process since it was made."""

    def __init__(self) -> None:
        self.began = time.process_time()

    @property
    def seconds(self) -> float:
        return time.process_time() - self.began


# -- the bars --------------------------------------------------------------------------------------


def federation(data: CellSet, split: Partition) -> Simulator:
    return Simulator({name: ClientData(data.picked(own)) for name, own in split.items()})


@dataclass(eq=False)
class World:
    """CamVid's cells, its clients, and what several parts need of them."""

    scores: dict[str, float] = field(default_factory=dict)  # mIoU of each head
    seconds: dict[str, float] = field(default_factory=dict)  # CPU, after features

    @cached_property
    def scenes(self) -> SceneSet:
        return load_scenes(ARCHIVE)

    @cached_property
    def extractor(self) -> CellExtractor:
        return cell_extractor("mobilenet_v2", self.scenes.size(0))

    @cached_property
    def data(self) -> CellSet:
        return CellSet.of(self.scenes, extract(self.scenes, self.extractor), self.extractor.grid)

    @cached_property
    def train(self) -> CellSet:
        return self.data.train_part()

    @cached_property
    def test(self) -> CellSamples:
        return self.data.test_part().samples

    @cached_property
    def clients(self) -> Partition:
        return runs(self.train.clients, 20)

    def total(self, head: Any, split: Partition) -> Any:
        step = steps.measure(head, exact=True, bound=BOUND)
        return federation(self.train, split).total(step).statistic

    @cached_property
    def moments(self) -> Moments:
        clock = Clock()
        made: Moments = self.total(LDA(), self.clients)
        self.seconds["moments"] = clock.seconds
        return made

    def tested(self, name: str, head: Any, cost: float) -> None:
        found = confusion(head, self.test)
        self.scores[name], self.seconds[name] = 100 * found.mean_iou, cost
        iou = " ".join(f"{100 * value:.0f}" for value in found.iou)
        print(
            f"{name}: mIoU {self.scores[name]:.2f}, pixel accuracy {100 * found.accuracy:.2f}, "
            f"{cost:.0f} CPU s after features; {iou}",
            flush=True,
        )

    @cached_property
    def lda(self) -> Any:
        """Solved and tested."""
        moments, clock = self.moments, Clock()
        head = LDA().solve(moments)
        self.tested("LDA", head, self.seconds["moments"] + clock.seconds)
        return head

    @cached_property
    def spread(self) -> tuple[Array, Array]:
        """The mean and the covariance of all cells, from the moments."""
        mean = self.moments.class_sums().sum(axis=0) / self.moments.samples
        return mean, self.moments.gram() / self.moments.samples - np.outer(mean, mean)


def heads(world: World) -> None:
    """Three heads from sums of one message per client."""
    scenes, extractor = world.scenes, world.extractor
    clock, some = Clock(), range(0, len(scenes), len(scenes) // 24)
    for i in some:
        extractor(extractor.preprocess(scenes.open(i))[None])
    features = clock.seconds / len(some)
    print(f"features: {features:.3f} CPU s per image, d = {extractor.channels}", flush=True)
    _ = world.lda
    clock = Clock()
    ridge = Fed3R(ridge="gcv").solve(world.moments)
    world.tested("Fed3R", ridge, world.seconds["moments"] + clock.seconds)
    clock = Clock()
    means = FedNCM().solve(world.total(FedNCM(), world.clients))
    world.tested("FedNCM", means, clock.seconds)
    scores = world.scores
    bar("LDA", scores["LDA"], 51)
    bar("Fed3R", scores["Fed3R"], 49.5)
    bar("FedNCM", scores["FedNCM"], 35)
    bar("LDA − FedNCM", scores["LDA"] - scores["FedNCM"], 12)
    all_in = features + world.seconds["LDA"] / len(world.train)
    bar("CPU s per image, all in", all_in, most=0.25)
    first = world.train.picked(world.clients.indices[0])
    client = measured(LDA(), first, secret=b"")
    bar("MB per client, float32", len(client.to_bytes()) / 1e6, most=1.1)


def wide(world: World) -> None:
    """LDA on random features, of every other image."""
    directions, (mean, covariance), clock = world.lda.weights, world.spread, Clock()
    own = px.discriminant(directions, covariance)
    both = np.concatenate([own, px.principal(covariance, 54)], axis=1)
    lift = px.hinges(both, mean, 2048, np.random.default_rng(0))
    lifted = total(
        Moments.measure(*world.train.picked(np.array([i])).read(), feature_map=lift)
        for i in range(0, len(world.train), 2)
    )
    head = replace(LDA().solve(lifted), feature_map=lift)
    world.tested("LDA, 2,048 random features", head, clock.seconds)
    gained = world.scores["LDA, 2,048 random features"] - world.scores["LDA"]
    bar("LDA on random features − LDA", gained, 0.7)


def fedavg(world: World) -> None:
    """Gradients for the same head on the same features."""
    _, (mean, covariance), clock = world.lda, world.spread, Clock()
    head = averaged(world.train, world.clients, mean, covariance)
    world.tested("FedAvg, 20 rounds", head, clock.seconds)
    bar("LDA − FedAvg", world.scores["LDA"] - world.scores["FedAvg, 20 rounds"], -0.3)
    ratio = world.seconds["LDA"] / world.seconds["FedAvg, 20 rounds"]
    # Twenty rounds on cells that are in memory cost little more than one LDA: its gain is accuracy,
    # one message and no rate, so this asks only that it costs no more.
    bar("CPU of LDA over that of FedAvg", ratio, most=1.0)


def bits(world: World) -> None:
    """The same bits over splits and orders, and with a drive forgotten."""
    step, train = steps.measure(LDA(), exact=True, bound=BOUND), world.train
    drives, moments = natural(train.clients), world.moments
    uploads = {a.clients[0]: a.statistic for a in federation(train, drives).answers(step)}
    turned = total(uploads[name] for name in reversed(drives.names)).digest()
    bar("runs, and drives in another order: the same bits", float(turned == moments.digest()), 1)
    mixed = world.total(LDA(), iid(len(train), 7)).digest()
    bar("seven clients of mixed images: the same bits", float(mixed == moments.digest()), 1)
    gone, *rest = drives.names
    without = total(uploads[name] for name in rest).digest()
    bar(f"{gone} forgotten", float((moments - uploads[gone]).digest() == without), 1)


def averaged(train: CellSet, clients: Partition, mean: Array, covariance: Array) -> Any:
    """A linear softmax head by FedAvg, 20 rounds, as a head over the features as they are."""
    import torch

    from headstart.heads.linear import LinearHead

    torch.set_num_threads(1)
    names = np.array(train.names)
    scale = np.sqrt(np.diagonal(covariance) + 1e-8)
    centre = torch.from_numpy(mean.astype(np.float32))
    unit = torch.from_numpy((1 / scale).astype(np.float32))
    weights, bias = torch.zeros(len(names), len(mean)), torch.zeros(len(names))
    rng = np.random.default_rng(0)
    for _ in range(20):
        sums, count = [torch.zeros_like(weights), torch.zeros_like(bias)], 0
        for at in rng.choice(len(clients), 5, replace=False):
            index = clients.indices[at]
            z = np.concatenate([train.cells(i) for i in index])
            y = train.codes[index].ravel()
            kept = np.flatnonzero(y != VOID)
            w, b = weights.clone().requires_grad_(), bias.clone().requires_grad_()
            for batch in np.array_split(rng.permutation(kept), max(1, len(kept) // 50)):
                x = (torch.from_numpy(z[batch]) - centre) * unit
                loss = torch.nn.functional.cross_entropy(
                    x @ w.T + b, torch.from_numpy(y[batch].astype(np.int64))
                )
                steps_ = torch.autograd.grad(loss, (w, b))
                with torch.no_grad():
                    w -= 0.1 * steps_[0]
                    b -= 0.1 * steps_[1]
            sums[0] += len(kept) * w.detach()
            sums[1] += len(kept) * b.detach()
            count += len(kept)
        weights, bias = sums[0] / count, sums[1] / count
    raw = (weights * unit).double().numpy()
    order = np.argsort(names)
    moved = bias.double().numpy() - raw @ mean
    return LinearHead(raw[order], moved[order], names[order])


# -- the best --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Part:
    """Images of one part, their masks, and float16 features at two sizes, kept in the cache."""

    name: str
    scenes: SceneSet

    def features(self, scale: float) -> tuple[Array, tuple[int, int]]:
        width, height = (round(side * scale / STRIDE) * STRIDE for side in self.scenes.size(0))
        usual = network("efficientnet_lite2").preprocess
        how = Whole(height, width, usual.interpolation, usual.mean, usual.std)
        made = cell_extractor("efficientnet_lite2", (width, height), preprocess=how)
        place = default_cache().parent / "segment" / f"{made.identity[:16]}-{self.name}.npy"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shape = (len(self.scenes), *made.grid, made.channels)
            waiting = place.with_suffix(".part")
            held = np.lib.format.open_memmap(waiting, "w+", np.float16, shape)
            clock = Clock()
            for i in range(len(held)):
                held[i] = made(how(self.scenes.open(i))[None]).reshape(shape[1:])
            print(
                f"features of {self.name} at {scale:g}: {clock.seconds / len(held):.3f} CPU s "
                "per image",
                flush=True,
            )
            held.flush()
            waiting.rename(place)
        return np.load(place, mmap_mode="r"), made.grid

    @cached_property
    def large(self) -> tuple[Array, tuple[int, int]]:
        return self.features(1.5)

    @cached_property
    def small(self) -> tuple[Array, tuple[int, int]]:
        return self.features(0.75)

    @property
    def grid(self) -> tuple[int, int]:
        return self.large[1]

    def stages(self, i: int) -> Array:
        return np.asarray(self.large[0][i], np.float32).reshape(self.grid[0] * self.grid[1], -1)

    def codes(self, i: int) -> Array:
        return label_cells(self.scenes.mask(i), self.grid, len(self.scenes.names))

    def cells(self, i: int) -> Array:
        """Every other cell of an image, like the black squares of a board, with a class."""
        board = np.indices(self.grid).sum(axis=0).ravel() % 2 == i % 2
        return np.flatnonzero(board & (self.codes(i) != VOID))


@dataclass(eq=False)
class Sums:
    """Moments added in float32 products, image by image; a part of their columns is one too."""

    classes: int
    gram: Array | None = None
    sums: Array = field(default_factory=lambda: np.zeros(0))
    counts: Array = field(default_factory=lambda: np.zeros(0))

    def add(self, z: Array, y: Array) -> None:
        if self.gram is None:
            d = z.shape[1]
            self.gram, self.sums = np.zeros((d, d)), np.zeros((self.classes, d))
            self.counts = np.zeros(self.classes, np.int64)
        self.gram += z.T @ z
        hot = (y == np.arange(self.classes)[:, None]).astype(np.float32)
        self.sums += hot @ z
        self.counts += np.bincount(y, minlength=self.classes)

    def moments(self, columns: Any, names: Array) -> Moments:
        assert self.gram is not None
        order = np.argsort(names)
        block = np.ascontiguousarray(self.gram[np.ix_(columns, columns)])
        gram = Gram(names[order], self.counts[order], block, self.sums[order][:, columns])
        return Moments(len(columns), (gram,))


class Design:
    """All that a later head may be told of a cell: groups of columns by their letters."""

    def __init__(self, first: Any, moments: Moments, names: Array) -> None:
        mean = moments.class_sums().sum(axis=0) / moments.samples
        covariance = moments.gram() / moments.samples - np.outer(mean, mean)
        order = np.argsort(np.argsort(names))  # scores in the order of the places
        self.weights = first.weights[order].T.astype(np.float32)
        self.bias = first.bias[order].astype(np.float32)
        own = px.discriminant(first.weights, covariance)
        both = np.concatenate([own, px.principal(covariance, 54)], axis=1)
        rng = np.random.default_rng(0)
        self.hinges = {
            "A": px.hinges(own, mean, 1024, rng),
            "B": px.hinges(both, mean, 1024, rng),
        }

    def __call__(self, part: Part, i: int, groups: str) -> dict[str, Array]:
        z = part.stages(i)
        makers: dict[str, Callable[[], Array]] = {
            "z": lambda: z,
            "w": lambda: self._smaller(part, i),
            "c": lambda: px.context(z @ self.weights + self.bias, part.grid),
            **{k: lambda h=h: np.minimum(h(z), BOUND) for k, h in self.hinges.items()},
        }
        return {group: makers[group]() for group in groups}

    def _smaller(self, part: Part, i: int) -> Array:
        stages, grid = part.small
        rows = np.asarray(stages[i], np.float32).reshape(grid[0] * grid[1], -1)
        return enlarge(rows, grid, part.grid).reshape(rows.shape[1], -1).T


def tested(part: Part, scored: Callable[[int], Array], heads: int) -> list[Confusion]:
    """Scores of cells, the classes of each head side by side, to confusions of all pixels."""
    names = np.array(part.scenes.names)
    places = np.append(np.searchsorted(np.sort(names), names), VOID)
    found = [Confusion.empty(names) for _ in range(heads)]
    for i in range(len(part.scenes)):
        mask, scores = part.scenes.mask(i), scored(i).reshape(-1, heads, len(names))
        for at in range(heads):
            guess = enlarge(scores[:, at], part.grid, mask.shape).argmax(axis=0)
            found[at] += Confusion.of([(places[mask], guess)], names)
    return found


def shown(name: str, found: Confusion) -> None:
    iou = " ".join(f"{100 * value:.0f}" for value in found.iou)
    print(f"{name}: mIoU {100 * found.mean_iou:.2f}; {iou}", flush=True)


def best(world: World) -> None:
    chosen_by = load_scenes(ARCHIVE, outside="val")
    everything = chosen_by.train_part()
    train = Part("train-half", everything.subset(np.arange(0, len(everything), 2)))
    valid = Part("val", chosen_by.test_part())
    names = np.array(everything.names)
    _ = train.large, train.small, valid.large, valid.small
    clock, sums = Clock(), Sums(len(names))
    for i in range(len(train.scenes)):
        kept = train.cells(i)
        sums.add(train.stages(i)[kept], train.codes(i)[kept])
    assert sums.gram is not None
    moments = sums.moments(np.arange(len(sums.gram)), names)
    first = LDA().solve(moments)
    print(f"first message: {moments.samples:,} cells, {clock.seconds:.0f} CPU s", flush=True)
    design, clock, more, widths = Design(first, moments, names), Clock(), Sums(len(names)), {}
    for i in range(len(train.scenes)):
        kept, made = train.cells(i), design(train, i, GROUPS)
        widths = {group: block.shape[1] for group, block in made.items()}
        more.add(np.concatenate([made[g][kept] for g in GROUPS], axis=1), train.codes(i)[kept])
    print(f"second message, all groups: {clock.seconds:.0f} CPU s", flush=True)
    starts = dict(zip(GROUPS, np.cumsum([0, *widths.values()]), strict=False))
    columns = {
        v: np.concatenate([np.arange(starts[g], starts[g] + widths[g]) for g in v])
        for v in VARIANTS
    }
    heads = {v: LDA().solve(more.moments(columns[v], names)) for v in VARIANTS}
    size, classes = sum(widths.values()), len(names)
    weights = np.zeros((size, len(VARIANTS) * classes), np.float32)
    for at, (variant, head) in enumerate(heads.items()):
        weights[columns[variant], at * classes : (at + 1) * classes] = head.weights.T
    bias = np.concatenate([head.bias for head in heads.values()]).astype(np.float32)

    def all_of(i: int) -> Array:
        made = design(valid, i, GROUPS)
        return np.concatenate([made[g] for g in GROUPS], axis=1) @ weights + bias

    found = dict(zip(VARIANTS, tested(valid, all_of, len(VARIANTS)), strict=True))
    for variant in VARIANTS:
        shown(f"validation, {variant} (d = {len(columns[variant])})", found[variant])
    chosen = max(VARIANTS, key=lambda v: found[v].mean_iou)
    print(f"chosen by the validation images: {chosen}", flush=True)
    test, head = Part("test", load_scenes(ARCHIVE).test_part()), heads[chosen]
    _ = test.large, test.small
    clock, own = Clock(), head.weights.T.astype(np.float32)

    def chosen_of(i: int) -> Array:
        made = design(test, i, chosen)
        return np.concatenate([made[g] for g in chosen], axis=1) @ own + head.bias

    (result,) = tested(test, chosen_of, 1)
    shown(f"test, {chosen}", result)
    print(f"prediction after features: {clock.seconds / len(test.scenes):.2f} CPU s per image")
    bar("the chosen head on the test images", 100 * result.mean_iou, 58)
    same_bits(design, train, chosen)


def same_bits(design: Design, train: Part, groups: str, images: int = 6) -> None:
    """The second message is of the moments' kind: exact, whoever holds which image."""

    def upload(index: Sequence[int]) -> Moments:
        rows, labels = [], []
        for i in index:
            kept, made = train.cells(i), design(train, i, groups)
            rows.append(np.concatenate([made[g] for g in groups], axis=1)[kept])
            labels.append(train.codes(i)[kept])
        how = {"exact": True, "bound": BOUND}
        return Moments.measure(np.concatenate(rows), np.concatenate(labels), **how)

    one, two = upload([0, 1, 2]), upload(range(3, images))
    other = total([upload([5, 0]), upload([4, 2, 1, 3])])
    whole = total([one, two])
    bar("second message over two splits: the same bits", float(other.digest() == whole.digest()), 1)
    bar("a client forgotten", float((whole - one).digest() == two.digest()), 1)
    print(f"second message: {len(one.to_bytes()) / 1e6:.1f} MB exact, d = {whole.dimension}")


GROUPS = "zwcAB"
VARIANTS = (
    *("z", "w", "c", "A", "B", "zw", "zc", "zwc", "zA", "zB", "zAB", "zcA", "zcB", "zwcA"),
    *("zwcAB", "cAB"),
)
PARTS: dict[str, Callable[[World], None]] = {
    "heads": heads,
    "wide": wide,
    "fedavg": fedavg,
    "bits": bits,
    "best": best,
}


def main(words: Sequence[str]) -> int:
    if not ARCHIVE.is_file():
        print(f"expected {ARCHIVE}; name the folder of the data with HEADSTART_DATA")
        return 1
    unknown = [word for word in words if word not in PARTS]
    if unknown:
        print(f"expected {' or '.join(PARTS)}, got {unknown[0]!r}")
        return 1
    world = World()
    with threadpool_limits(1):
        for word in words or PARTS:
            PARTS[word](world)
    for what in FAILED:
        print(f"not met: {what}")
    return bool(FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
