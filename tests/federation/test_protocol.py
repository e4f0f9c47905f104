"""What every federation promises: whoever carries the steps, the same sums, the same bytes."""

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import headstart as hs
from headstart.data.samples import ArraySamples
from headstart.errors import DataError, HeadstartError
from headstart.federation import steps
from headstart.federation.engines import open_federation
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import ClientData, Step
from headstart.federation.ray import RayFederation
from headstart.federation.recorded import Recorded, same_step
from headstart.federation.simulator import Simulator
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.refit import extractor_arrays, features_of
from headstart.gradient.steps import Job
from headstart.privacy.masked import Masked
from headstart.statistics.exact import bound_for

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

CLASSES = np.arange(3)
EXACT = steps.measure(hs.Fed3R(), exact=True)
ALL = ("simulator", "one at a time", "ray", "grouped", "recorded", "masked")
TRAINING = tuple(name for name in ALL if name != "masked")  # whose answers masks do not hide
every_federation = pytest.mark.parametrize("kind", ALL)


@dataclass
class InMemory:
    """A store of the messages of one step."""

    step: Step = EXACT
    kept: dict[tuple[str, ...], bytes] = field(default_factory=dict)

    def holds(self, step):
        return same_step(step, self.step)

    def members(self):
        return list(self.kept)

    def messages(self, wanted):
        return (self.kept[clients] for clients in wanted)

    def keep(self, answer):
        self.kept[answer.clients] = answer.payload

    def total(self):
        return None


def vectors():
    """Seven clients, one of them without samples."""
    rng = np.random.default_rng(0)
    found = {}
    for at, size in enumerate((9, 4, 17, 0, 6, 12, 3)):
        y = rng.integers(3, size=size + 2)
        z = (rng.normal(size=(size + 2, 5)) + y[:, None]).astype(np.float32)
        found[f"c{at}"] = ClientData(
            ArraySamples(z[:size], y[:size]), ArraySamples(z[size:], y[size:])
        )
    return found


def images():
    rng = np.random.default_rng(1)
    found = {}
    for at, size in enumerate((5, 3, 4, 6)):
        x, y = rng.integers(256, size=(size + 2, 3, 8, 8), dtype=np.uint8), np.arange(size + 2) % 3
        found[f"c{at}"] = ClientData(
            ArraySamples(x[:size], y[:size]), ArraySamples(x[size:], y[size:])
        )
    return found


MAKE = {
    "simulator": Simulator,
    "one at a time": lambda data: Simulator(data, together=False),
    "ray": lambda data: RayFederation(data, workers=2),
    "grouped": lambda data: Grouped(Simulator(data), 3),
    "recorded": lambda data: Recorded(Simulator(data), InMemory()),
    "masked": lambda data: Masked(Simulator(data), 3, CLASSES),
}


@pytest.fixture(scope="module")
def workers(cluster):
    """Clients on two processes, which tests share."""
    return RayFederation(vectors(), workers=2)


@pytest.fixture
def federation(kind, request):
    if kind != "ray":
        return MAKE[kind](vectors())
    shared = request.getfixturevalue("workers")
    shared.begin_training("")
    return shared


def pooled(data):
    samples = (
        [client.samples.features for client in data.values()],
        [c.samples.labels for c in data.values()],
    )
    return hs.Fed3R().measure(*map(np.concatenate, samples), exact=True)


# -- sums ------------------------------------------------------------------------------------------


@every_federation
def test_an_exact_total_is_that_of_pooled_data_however_often_it_is_asked_for(federation):
    for _ in range(2):
        found = federation.total(EXACT)
        assert found.statistic.digest() == pooled(vectors()).digest()
        assert sorted(found.clients) == sorted(vectors())


@every_federation
def test_answers_are_of_everybody_once_and_add_to_the_total(federation):
    answers = list(federation.answers(EXACT))
    asked = [name for answer in answers for name in answer.clients]
    assert sorted(asked) == sorted(vectors())
    parts = hs.total(answer.statistic for answer in answers)
    assert parts.digest() == pooled(vectors()).digest()


@pytest.mark.parametrize("kind", ["simulator", "one at a time", "ray", "recorded"])
def test_a_message_is_what_its_client_said(federation):
    for answer in federation.answers(EXACT):
        (name,) = answer.clients
        alone = Simulator(vectors()).total(EXACT, cohort=[name]).statistic
        assert type(alone).from_bytes(answer.payload).digest() == alone.digest()
        assert answer.statistic.digest() == alone.digest()
        assert answer.up == len(answer.payload)


@every_federation
def test_counts_are_those_of_the_labels(federation):
    data = vectors()
    for _ in range(2):  # a store that holds everybody's measurements answers by itself
        for answer in federation.answers(steps.counts()):
            labels = np.concatenate([data[name].samples.labels for name in answer.clients])
            statistic = answer.statistic
            counted = dict(zip(statistic.classes.tolist(), statistic.counts.tolist(), strict=True))
            assert Counter({k: n for k, n in counted.items() if n}) == Counter(labels.tolist())
        federation.total(EXACT)
    plain = Simulator(data).total(steps.counts()).statistic
    assert federation.total(steps.counts()).statistic.digest() == plain.digest()


@every_federation
def test_a_cohort_alone_is_asked(federation):
    some = ["c5", "c0", "c3", "c2"]
    data = vectors()
    found = federation.total(EXACT, cohort=some)
    assert sorted(found.clients) == sorted(some)
    assert found.statistic.digest() == pooled({name: data[name] for name in some}).digest()


@every_federation
def test_unknown_names_are_refused(federation):
    for ask in (federation.total, lambda *given, **how: list(federation.answers(*given, **how))):
        for step in (EXACT, steps.counts()):
            with pytest.raises(DataError, match="cohort: expected known clients, got zoe"):
                ask(step, cohort=["c0", "c1", "zoe"])
        with pytest.raises(HeadstartError, match="dance"):
            ask(Step("dance"))


@every_federation
def test_silent_clients_say_zeros(federation):
    before = federation.total(EXACT).statistic
    silent = federation.total(replace(EXACT, silent=True))
    assert sorted(silent.clients) == sorted(vectors())
    assert silent.statistic.samples == 0
    assert (before + silent.statistic).digest() == before.digest()
    for answer in federation.answers(replace(EXACT, silent=True)):
        assert answer.statistic.samples == 0


# -- bytes -----------------------------------------------------------------------------------------


@every_federation
def test_the_traffic_of_a_total_is_that_of_its_answers(federation):
    for step in (EXACT, steps.counts()):
        list(federation.answers(step))  # a store keeps them: nobody is asked later
        total, answers = federation.total(step), list(federation.answers(step))
        assert total.up == sum(answer.up for answer in answers)
        assert total.down == sum(answer.down for answer in answers)


@pytest.mark.parametrize("kind", TRAINING)
def test_a_broadcast_goes_to_everybody_and_what_they_keep_once_a_training(federation):
    head = steps.with_head(hs.Fed3R().solve(pooled(vectors())))
    found = federation.total(steps.calibrate(), head)
    assert found.down == 7 * head["head"].nbytes
    assert found.up == Simulator(vectors()).total(steps.calibrate(), head).up
    first, second, again = (trained(federation, rounds=1), *trained_on(federation, 1))
    cohort, kept = len(PLAN.cohort(list(vectors()), 0)), CLASSES.nbytes
    assert first.down == again.down
    assert first.down - second.down == cohort * kept


# -- memories --------------------------------------------------------------------------------------

JOB = Job("scaffold", Spec(3, 5), Training(rate=0.1, batch=8))
PLAN = Plan(rounds=9, clients=4)


def start():
    return begin(JOB, initial(build(JOB.spec), None, 0))


def trained(federation, rounds, state=None):
    """After some more rounds of Scaffold, whose clients keep a control variate each."""
    state = state or start()
    for _ in range(rounds):
        state = one_round(JOB, PLAN, federation, CLASSES, state)
    return state


def trained_on(federation, rounds):
    """The same rounds by clients that have met this training, and by clients that begin anew."""
    met = trained(federation, rounds)
    federation.begin_training("another")
    return met, trained(federation, rounds)


def same(one, two):
    return (one.up, one.down) == (two.up, two.down) and all(
        np.array_equal(one.params[name], two.params[name]) for name in one.params
    )


@pytest.mark.parametrize("kind", TRAINING)
def test_beginning_a_training_puts_memories_away(federation):
    first = trained(federation, 3)
    remembering, anew = trained_on(federation, 3)
    assert same(anew, first)
    assert not same(remembering, first)


@pytest.mark.parametrize("kind", TRAINING)
def test_rounds_after_a_restoration_are_the_very_same(federation):
    halfway = trained(federation, 2)
    kept = {name: array.copy() for name, array in federation.snapshot().items()}
    end = trained(federation, 2, halfway)
    assert not same(trained(federation, 2, halfway), end)  # clients remember the later rounds
    federation.restore(kept)
    assert same(trained(federation, 2, halfway), end)


@pytest.mark.parametrize("kind", TRAINING)
def test_a_snapshot_is_restored_by_another_federation_of_these_clients(federation, kind):
    """As when a run goes on in another process, whatever the number of its workers."""
    halfway = trained(federation, 2)
    kept = federation.snapshot()
    end = trained(federation, 2, halfway)
    other = RayFederation(vectors(), workers=1) if kind == "ray" else MAKE[kind](vectors())
    other.restore(kept)
    found = trained(other, 2, halfway)
    assert (found.up, found.down) == (end.up, end.down)
    for name, array in end.params.items():
        np.testing.assert_allclose(found.params[name], array, atol=1e-6)


# -- through a network -----------------------------------------------------------------------------

SPEC = Spec(3, 128, network="small_cnn")


@every_federation
def test_a_step_through_a_network_is_that_step_on_its_features(kind, request):
    if kind == "ray":
        request.getfixturevalue("cluster")
    data, model, params = images(), build(SPEC), initial(build(SPEC), None, 3)

    def looked(samples):
        return ArraySamples(features_of(model, params, samples), samples.labels)

    extracted = {
        name: replace(client, samples=looked(client.samples), test=looked(client.test))
        for name, client in data.items()
    }
    bound = bound_for(np.concatenate([client.samples.features for client in extracted.values()]))
    network, arrays = SPEC.plain(), extractor_arrays(SPEC, params)
    federation, plain = MAKE[kind](data), Simulator(extracted)
    measure = steps.measure(hs.Fed3R(), exact=True, bound=bound)
    found = federation.total(steps.through(measure, network), arrays)
    expected = plain.total(measure).statistic
    assert found.statistic.digest() == expected.digest()
    assert found.down == 4 * arrays["extractor"].nbytes
    if kind == "masked":
        return
    broadcast = steps.with_head(replace(hs.Fed3R().solve(expected), temperature=0.5))
    for step in (steps.calibrate(), steps.personal()):
        tally = federation.total(steps.through(step, network), {**broadcast, **arrays}).statistic
        wanted = plain.total(step, broadcast).statistic.values
        assert wanted.any()
        np.testing.assert_allclose(tally.values, wanted, rtol=1e-6)


# -- engines by name -------------------------------------------------------------------------------


def test_engines_go_by_their_names(cluster):
    digests = {
        open_federation(name, vectors(), **how).total(EXACT).statistic.digest()
        for name, how in (("simulator", {}), ("ray", {"workers": 2}))
    }
    assert digests == {pooled(vectors()).digest()}
    with pytest.raises(HeadstartError, match="engine: expected one of ray, simulator, got 'spark'"):
        open_federation("spark", vectors())
    with pytest.raises(HeadstartError, match=r"federation: simulator has settings .*, got workers"):
        open_federation("simulator", vectors(), workers=2)
