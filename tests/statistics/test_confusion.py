"""The confusion matrix: a sum like the others; mIoU as the segmentation papers define it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from headstart.data.samples import ArraySamples
from headstart.errors import DataError, WireError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.heads.lda import LDA
from headstart.statistics.base import total
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.confusion import Confusion, check, mean_iou
from headstart.statistics.wire import Limits

CLASSES = ("car", "road", "sky")


def some(seed: int, size: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 3, size), rng.integers(0, 3, size)


def test_iou_by_hand() -> None:
    truth = np.array([0, 0, 0, 1, -1, -1])
    guess = np.array([0, 0, 2, 0, 1, 2])  # void is not counted, whatever it is taken for
    found = Confusion.of([(truth, guess)], CLASSES)
    assert found.matrix.tolist() == [[2, 0, 1], [1, 0, 0], [0, 0, 0]]
    assert found.iou.tolist() == [0.5, 0, 0]
    assert found.mean_iou == 0.25  # sky is not in the truth
    assert found.accuracy == 0.5
    assert mean_iou(np.zeros((3, 3), np.int64)) == 0


def test_it_is_one_matrix_not_a_mean_of_images() -> None:
    pairs = [some(seed) for seed in range(4)]
    whole = Confusion.of(pairs, CLASSES)
    images = [Confusion.of([pair], CLASSES) for pair in pairs]
    assert (sum(images[1:], images[0]).matrix == whole.matrix).all()


def test_federated_is_pooled_bit_for_bit_over_the_wire() -> None:
    parts = [Confusion.of([some(seed)], CLASSES) for seed in range(5)]
    sent = [part.statistic().to_bytes() for part in parts]
    received = total(ClassSums.from_bytes(data, Limits(samples=500, classes=3)) for data in sent)
    pooled = Confusion.of([some(seed) for seed in range(5)], CLASSES)
    assert received.digest() == pooled.statistic().digest()
    assert (Confusion.received(received, CLASSES).matrix == pooled.matrix).all()
    empty = Confusion.empty(CLASSES)
    assert (Confusion.received(empty.statistic(), CLASSES).matrix == 0).all()


def test_masks_hide_it() -> None:
    from headstart.privacy.layout import Layout

    one, other = (Confusion.of([some(seed)], CLASSES) for seed in (1, 2))
    layout = Layout.of(one.statistic(), CLASSES)
    added = layout.flatten(one.statistic()) + layout.flatten(other.statistic())
    opened = Confusion.received(layout.restore(added, 10_000), CLASSES)
    assert (opened.matrix == (one + other).matrix).all()


def test_what_cannot_be_a_matrix_is_refused() -> None:
    sound = Confusion.of([some(3)], CLASSES)
    negative = sound.matrix.copy()
    negative[0, 1] -= 10_000
    negative[0, 0] += 10_000
    found = sound.statistic()
    more = dataclasses.replace(found, counts=found.counts + 1)
    for bad in (Confusion(sound.classes, negative).statistic(), more):
        with pytest.raises(WireError, match="each pixel to be predicted once"):
            check(bad, CLASSES)
    with pytest.raises(WireError, match="classes that were asked for"):
        check(sound.statistic(), ("car", "road", "tree"))
    with pytest.raises(WireError, match="dimension"):
        check(sound.statistic(), ("car", "road"))
    with pytest.raises(DataError, match="same classes"):
        sound + Confusion.empty(("a", "b", "c"))


def test_a_federation_is_asked_for_it() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 4)) + np.repeat(np.eye(3, 4) * 3, 20, axis=0)
    y = np.repeat(CLASSES, 20)
    order = rng.permutation(60)
    head = LDA().solve(LDA().measure(z, y))
    parts = np.split(order, [10, 35])
    clients = {
        f"c{at}": ClientData(ArraySamples(z[own], y[own]), ArraySamples(z[own], y[own]))
        for at, own in enumerate(parts)
    }
    answer = Simulator(clients).total(steps.confusion(CLASSES), steps.with_head(head))
    found = Confusion.received(answer.statistic, CLASSES)
    truth, guess = np.searchsorted(CLASSES, y), np.searchsorted(CLASSES, head.predict(z))
    assert (found.matrix == Confusion.of([(truth, guess)], CLASSES).matrix).all()
    assert found.accuracy == head.accuracy(z, y)
