"""Tallies, confusion matrices and training updates under masks: what fixed point costs them."""

import numpy as np
import pytest

import headstart as hs
from headstart.data.samples import ArraySamples
from headstart.errors import WireError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.privacy.layout import Layout
from headstart.privacy.masked import Masked, maskable
from headstart.privacy.refusals import Abort
from headstart.statistics.fixed import MOST, STEP, FixedSums
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors

CLIENTS, CLASSES = 6, (0, 1, 2)


@pytest.fixture
def clients():
    rng = np.random.default_rng(0)

    def part(n):
        z, y = rng.normal(size=(n, 5)), rng.integers(0, 3, n)
        return ArraySamples(z + 2 * np.eye(5)[y], y)

    return Simulator({f"c{k}": ClientData(part(20 + k), part(8)) for k in range(CLIENTS)})


@pytest.fixture
def head(clients):
    return hs.Fed3R().solve(clients.total(steps.measure(hs.Fed3R(), exact=True)).statistic)


def both(clients, step, broadcast):
    masked = Masked(clients, CLIENTS, CLASSES)
    return masked.total(step, broadcast), clients.total(step, broadcast)


def test_a_temperature_is_calibrated_under_masks(clients, head):
    found, plain = both(clients, steps.calibrate(), steps.with_head(head))
    lost = np.abs(found.statistic.values - plain.statistic.values)
    assert lost.max() <= CLIENTS * STEP / 2
    one, two = (head.calibrated(each.statistic.values).temperature for each in (found, plain))
    assert one == pytest.approx(two, rel=1e-6)
    assert found.clients == plain.clients


def test_a_confusion_matrix_is_the_same_bits_under_masks(clients, head):
    found, plain = both(clients, steps.confusion(CLASSES), steps.with_head(head))
    assert found.statistic.digest() == plain.statistic.digest()


@pytest.mark.parametrize("precision", ["update", "gradient"])
def test_updates_lose_no_more_than_fixed_point_takes(clients, precision):
    pytest.importorskip("torch")
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job, broadcast, full_gradient, update

    job = Job("fedavg", Spec(3, 5))
    params = {"head.weight": np.zeros((3, 5), np.float32), "head.bias": np.zeros(3, np.float32)}
    asked = update(job, 0) if precision == "update" else full_gradient(job, 0)
    found, plain = both(clients, asked, broadcast(job, params, {}, np.arange(3)))
    one, two = found.statistic, plain.statistic
    assert (one.rows, one.names) == (two.rows, two.names)
    assert np.abs(two.vectors).max() > 0.1
    # The plain sum is of float32 numbers; fixed point takes 2⁻³³ of each more.
    assert (
        np.abs(one.vectors - two.vectors).max()
        <= CLIENTS * STEP / 2 + 1e-6 * abs(two.vectors).max()
    )
    assert np.allclose(one.numbers, two.numbers, atol=CLIENTS * STEP)


def test_rounds_of_all_clients_train_under_masks_and_other_cohorts_are_refused(clients):
    pytest.importorskip("torch")
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job, broadcast, update

    job = Job("fedavg", Spec(3, 5))
    params = {"head.weight": np.zeros((3, 5), np.float32), "head.bias": np.zeros(3, np.float32)}
    words = broadcast(job, params, {}, np.arange(3))
    masked = Masked(clients, 3, CLASSES)
    for round_ in range(3):
        assert len(masked.total(update(job, round_), words).clients) == CLIENTS
    with pytest.raises(Abort, match="differencing"):
        masked.total(update(job, 3), words, cohort=masked.clients[:4])


def test_numbers_are_rounded_cut_and_refused():
    values = np.array([0.0, 1.0, -np.pi, 3e-10, 2 * MOST, -np.inf])
    with pytest.raises(WireError, match="finite"):
        FixedSums.of(Tally(values))
    found = FixedSums.of(Tally(values[:-1]))
    assert (
        np.abs(found.like(Tally(values[:-1])).values - np.clip(values[:-1], -MOST, MOST)).max()
        <= STEP / 2
    )
    again = FixedSums.from_bytes(found.to_bytes())
    assert again.digest() == found.digest()
    vectors = Vectors(np.arange(6.0).reshape(2, 3), np.array([7.0]), ("a", "b"), ("n",))
    back = maskable(vectors).like(vectors)
    assert np.array_equal(back.vectors, vectors.vectors)
    assert (back.rows, back.names, back.number("n")) == (("a", "b"), ("n",), 7.0)


def test_the_form_of_fixed_numbers_is_part_of_the_layout():
    layout = Layout.of(FixedSums(np.arange(4)), CLASSES)
    assert Layout.from_arrays(layout.to_arrays()).fixed
    assert layout.size == 4
    assert np.array_equal(
        layout.restore(layout.flatten(FixedSums(np.arange(4))), 0).values, range(4)
    )
    for other in (FixedSums(np.arange(5)), hs.FedNCM().measure(np.zeros((0, 4)), [], exact=True)):
        with pytest.raises(Abort, match="expected"):
            layout.check(other)
