"""The in-process federation: one answer a client, any order, groups of which only sums are seen."""

from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.data.samples import ArraySamples
from headstart.federation import steps
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import ClientData, Step, added, tallies
from headstart.federation.simulator import Simulator
from headstart.personal import VARIANTS, Settings


def federation(clients=23, dimension=12, seed=0, **how):
    rng = np.random.default_rng(seed)
    data = {}
    for k in range(clients):
        n = int(rng.integers(1, 30))
        z, y = rng.normal(size=(n, dimension)), rng.integers(0, 5, n)
        data[f"c{k:02d}"] = ClientData(ArraySamples(z, y), ArraySamples(z[:3], y[:3]))
    return Simulator(data, **how)


EXACT = steps.measure(hs.Fed3R(), exact=True)


def pooled(sim):
    z = np.concatenate([c.samples.features for c in sim.data.values()])
    y = np.concatenate([c.samples.labels for c in sim.data.values()])
    return hs.Fed3R().measure(z, y, exact=True)


def test_the_total_is_that_of_pooled_data_in_any_order():
    sim = federation()
    backwards = list(reversed(sim.clients))
    assert sim.total(EXACT).statistic.digest() == pooled(sim).digest()
    assert sim.total(EXACT, cohort=backwards).statistic.digest() == pooled(sim).digest()


def test_every_client_is_asked_once_and_its_bytes_are_counted():
    sim = federation()
    answers = list(sim.answers(EXACT))
    assert [answer.clients for answer in answers] == [(name,) for name in sim.clients]
    assert all(answer.up == len(answer.payload) > 0 for answer in answers)
    assert sim.total(EXACT).up == sum(answer.up for answer in answers)


def test_other_samples_of_a_client_are_measured_anew():
    """Also where its labels are the very same object."""
    sim = federation()
    sim.total(EXACT)
    own = sim.data["c03"].samples
    sim.data["c03"] = replace(sim.data["c03"], samples=ArraySamples(own.features + 1, own.labels))
    assert sim.total(EXACT).statistic.digest() == pooled(sim).digest()


def test_a_run_is_repeatable_to_the_byte():
    step = steps.measure(hs.Fed3R())
    one, two = ([answer.payload for answer in federation().answers(step)] for _ in range(2))
    assert one == two


def test_the_precision_of_the_wire_shows_in_the_bytes():
    step = steps.measure(hs.Fed3R())
    sizes = []
    for precision in ("float64", "float32", "float16", "int8"):
        sim = federation(dimension=60, precision=precision)
        sizes.append(sim.total(step).up)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


@pytest.mark.parametrize("size", [1, 4, 23])
def test_groups_without_replacement_ends_in_the_same_bits_after_k_over_kappa_rounds(size):
    sim = federation()
    rounds = list(Grouped(sim, size).answers(EXACT))
    assert len(rounds) == -(-len(sim.clients) // size)
    assert sorted(name for answer in rounds for name in answer.clients) == sorted(sim.clients)
    assert added(rounds).statistic.digest() == pooled(sim).digest()


def test_groups_with_replacement_counts_nobody_twice():
    sim = federation()
    rounds = list(Grouped(sim, 5, replace=True, seed=3).answers(EXACT))
    assert len(rounds) > 5  # somebody was drawn again
    assert added(rounds).statistic.digest() == pooled(sim).digest()


def test_a_client_drawn_again_sends_zeros():
    sim = federation(clients=3)
    first, again = Grouped(sim, 3, replace=True, rounds=2).answers(EXACT)
    assert again.statistic.samples == 0
    assert (first.statistic + again.statistic).digest() == first.statistic.digest()


def test_groups_refuses_rows_by_type():
    with pytest.raises(hs.HeadstartError, match="rows, not sums"):
        list(Grouped(federation(), 4).answers(steps.measure(hs.FedCOF())))


def test_removing_a_client_is_never_having_joined():
    sim = federation()
    step, gone = EXACT, sim.clients[7]
    rest = [name for name in sim.clients if name != gone]
    left = sim.total(step).statistic - sim.total(step, cohort=[gone]).statistic
    assert left.digest() == sim.total(step, cohort=rest).statistic.digest()


def test_a_late_client_is_as_good_as_an_early_one():
    sim = federation()
    late = sim.clients[0]
    before = sim.total(EXACT, cohort=[n for n in sim.clients if n != late]).statistic
    after = before + sim.total(EXACT, cohort=[late]).statistic
    assert after.digest() == sim.total(EXACT).statistic.digest()


def test_calibration_over_clients_is_that_of_pooled_data():
    sim = federation()
    model = hs.Fed3R().solve(sim.total(EXACT).statistic)
    losses = sim.total(steps.calibrate(), steps.with_head(model)).statistic
    federated = model.calibrated(losses.values)
    z = np.concatenate([c.samples.features for c in sim.data.values()])
    y = np.concatenate([c.samples.labels for c in sim.data.values()])
    pooled = model.calibrate(z, y).temperature  # clients round their losses
    assert federated.temperature == pytest.approx(pooled, rel=0.05)


def test_personal_tallies_are_each_clients_own():
    sim = federation()
    model = (
        hs.Fed3R()
        .solve(sim.total(EXACT).statistic)
        .calibrate(
            np.concatenate([c.samples.features for c in sim.data.values()]),
            np.concatenate([c.samples.labels for c in sim.data.values()]),
        )
    )
    found = tallies(sim, steps.personal(), steps.with_head(model))
    assert list(found) == list(sim.clients)
    for name, (tested, plain, oll, _, ridge) in found.items():
        own = sim.data[name]
        assert tested == len(own.test.labels)
        assert plain == (model.predict(own.test.features) == own.test.labels).sum()
        mine = model.restrict(np.unique(own.samples.labels))
        assert oll == (mine.predict(own.test.features) == own.test.labels).sum()
        fitted = VARIANTS["ridge"](model, own.samples.features, own.samples.labels, Settings())
        assert ridge == (fitted.predict(own.test.features) == own.test.labels).sum()


def test_a_step_is_plain_data():
    import json

    assert json.loads(json.dumps({"name": EXACT.name, "params": dict(EXACT.params)}))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda sim: sim.total(Step("dance")), "step: expected one of"),
        (lambda sim: sim.total(EXACT, cohort=["nobody"]), "cohort"),
        (lambda sim: Grouped(sim, 0), "group_size: expected 1 to 23 clients, got 0"),
        (lambda sim: Simulator({}), "at least one client"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(hs.HeadstartError, match=message):
        wrong(federation())


def test_server_memory_does_not_grow_with_clients():
    import tracemalloc

    def peak(clients):
        sim = federation(clients=clients, dimension=64)
        sim.total(EXACT)
        tracemalloc.start()
        sim.total(EXACT)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(400) < 1.5 * peak(40)
