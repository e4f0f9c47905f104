"""Work that a simulation does for many clients at once is the work of each of them alone."""

import numpy as np
import pytest

from headstart.data.samples import ArraySamples
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import (
    ClientData,
    Step,
    perform,
    register_together,
    step_kind,
    tallies,
)
from headstart.federation.simulator import Simulator
from headstart.statistics.tally import Tally
from headstart.statistics.vectors import Vectors

SIZES = (3, 0, 7, 1, 12, 5)


def clients():
    rng = np.random.default_rng(0)
    return {
        f"c{k}": ClientData(ArraySamples(rng.normal(size=(n, 4)), rng.integers(3, size=n)))
        for k, n in enumerate(SIZES)
    }


@pytest.fixture
def work(registered):
    """Two steps: a sum of all clients, and an answer from each. Both use memory and secrets."""
    calls = []

    @register_together("adding", Vectors, fused=True)
    def adding(data, params, broadcast):
        calls.append(len(data))
        answers = []
        for client in data.values():
            client.memory["visits"] = client.memory.get("visits", np.zeros(1)) + 1
            row = client.samples.features.sum(axis=0) * params["by"] + broadcast["more"] * len(
                client.samples
            )
            numbers = np.array([len(client.samples), client.secret[0], client.memory["visits"][0]])
            answers.append(Vectors(row[None].astype(np.float32), numbers))
        whole = Vectors.total(answers)
        yield tuple(data), Vectors(whole.vectors.astype(np.float32), whole.numbers)

    @register_together("each", Tally)
    def each(data, params, broadcast):
        calls.append(len(data))
        for name in sorted(data, key=lambda n: -len(data[n].samples)):  # in an order of its own
            client = data[name]
            yield (name,), Tally(np.array([len(client.samples), client.samples.features.sum()]))

    return calls


ADDING = Step("adding", {"by": 2.0})
WORDS = {"more": np.arange(4.0)}


@pytest.mark.parametrize("precision", [None, "float64", "int8"])
def test_a_sum_of_all_is_the_sum_of_each_and_costs_the_same(work, precision):
    found = {}
    for together in (True, False):
        sim = Simulator(clients(), seed=2, together=together, precision=precision)
        for _ in range(2):
            answer = sim.total(ADDING, WORDS)
        found[together] = answer
    together, alone = found[True], found[False]
    one, two = together.statistic, alone.statistic
    assert work == [6, 6] + [1] * 12  # at once, and one at a time
    np.testing.assert_allclose(one.vectors, two.vectors, rtol=1e-6, atol=1e-5)
    assert np.array_equal(one.numbers, two.numbers)
    assert one.numbers[2] == 12  # every client was there twice, and remembered
    assert (together.clients, together.up, together.down) == (alone.clients, alone.up, alone.down)
    assert set(together.clients) == set(clients())
    sizes = [len(answer.payload) for answer in sim.answers(ADDING, WORDS)]
    assert len(set(sizes)) == 1
    assert alone.up == sum(sizes)


def test_answers_of_each_are_each_ones_own(work):
    data = clients()
    for together in (True, False):
        sim = Simulator(data, together=together)
        found = tallies(sim, Step("each"))
        assert list(found) == list(data)
        for name, client in data.items():
            assert found[name].tolist() == [len(client.samples), client.samples.features.sum()]
        some = list(sim.answers(Step("each"), cohort=["c4", "c1"]))
        assert {answer.clients for answer in some} == {("c4",), ("c1",)}
        assert all(answer.up == len(answer.statistic.to_bytes()) for answer in some)
    assert work == [6, 2] + [1] * 8


def test_a_cohort_only_is_asked_and_counted(work):
    sim = Simulator(clients(), seed=2)
    answer = sim.total(ADDING, WORDS, cohort=["c2", "c5"])
    assert answer.statistic.numbers[0] == 12
    assert answer.clients == ("c2", "c5")
    assert not sim.data["c0"].memory


def test_groups_of_which_only_the_sum_is_seen_do_the_same_work(work):
    expected = Simulator(clients(), seed=2).total(ADDING, WORDS).statistic
    found = Grouped(Simulator(clients(), seed=2), 4).total(ADDING, WORDS).statistic
    np.testing.assert_allclose(found.vectors, expected.vectors, rtol=1e-6, atol=1e-5)
    assert np.array_equal(found.numbers, expected.numbers)


def test_the_work_of_one_client_has_the_same_name(work):
    client = clients()["c0"]
    alone = perform(Step("each"), client, {})
    assert alone.values.tolist() == [3, client.samples.features.sum()]
    assert step_kind("each").together is not None
