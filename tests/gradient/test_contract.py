"""What every method of the catalogue promises. A new file in methods/ is tested by being there.

Two tables want an entry for it, and say so: its round by hand (`BY_HAND`), and the settings at
which it is FedAvg (`NEUTRAL`), or why there are none (`NO_NEUTRAL`).
"""

import functools
import inspect
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from headstart import HeadstartError, gradient
from headstart.federation.simulator import Simulator, secret_of
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, rounds
from headstart.gradient.models import Spec, initial
from headstart.gradient.recipe import Term
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    SHORT,
    assert_close,
    assert_same,
    fresh,
    run,
    vectors,
)
from headstart.testing.methods import (
    CHECKS,
    CNN,
    GENTLE,
    PICTURES,
    Case,
    turned,
    upload,
)

from .helpers import EXTRACTOR, HEAD, Hand, Turned

METHODS = tuple(gradient.METHODS)
every_method = pytest.mark.parametrize("name", METHODS)


# -- neutral settings ------------------------------------------------------------------------------


FEATURES = Spec(3, 3)


@dataclass(frozen=True)
class Neutral:
    """Settings at which a method is FedAvg, in which federation, and for how many rounds.

    Eight samples a client: a mean over clients and one over samples then have the same bits.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (8,) * 6
    rounds: int = 3
    spec: Spec = FEATURES
    train: str = "head"
    tolerance: float = 0.0
    batch: int = 3


ONE_EACH = (
    1,
) * 6  # the passes of FedAlt and FedRep shuffle anew: with one sample there is one way
EXTRACTED = {"spec": Spec(2, 1, network="testing-scale"), "train": "extractor"}  # no head moves
NEUTRAL = {
    "fedavg": Neutral(),
    "silobn": Neutral(),  # features have no batch norm
    "fedavgm": Neutral({"momentum": 0.0}),
    "fedprox": Neutral({"mu": 0.0}),
    "fedexp": Neutral({"epsilon": 1e30}),  # the step is 1
    # δ is nothing beside τ, and √v + τ is 2τ (τ where v is δ²): powers of two lose no bit
    "fedadagrad": Neutral({"tau": 2.0**60, "server_rate": 2.0**61}),
    "fedyogi": Neutral({"tau": 2.0**60, "server_rate": 2.0**61, "momentum": 0.0}),
    "fedadam": Neutral({"tau": 2.0**60, "server_rate": 2.0**60, "momentum": 0.0, "second": 0.0}),
    "scaffold": Neutral(rounds=1),  # control variates begin at 0
    "mime": Neutral({"beta": 0.0, "lite": True}),
    "ditto": Neutral({"strength": 3.0}),  # the private model never touches the shared one
    "fedsim": Neutral({"personal": None}),
    "fedalt": Neutral({"personal": "extractor"}, ONE_EACH),  # features have no extractor
    "fedper": Neutral(**EXTRACTED),
    "fedrep": Neutral(sizes=ONE_EACH, **EXTRACTED),
    "per-fedavg": Neutral({"alpha": 0.0}, batch=1),  # a batch of one has no halves
    "fedbabu": Neutral(**EXTRACTED),
    "fedntd": Neutral({"beta": 0.0}),
    "moon": Neutral({"mu": 0.0}),
    "fedsol": Neutral({"rho": 0.0}),
    # one inner step of λ·rate = 1 is a gradient step, but for the rounding of w − (w − g)
    "pfedme": Neutral({"strength": 1.0, "inner_steps": 1, "inner_rate": 1.0}, tolerance=1e-6),
}
NO_NEUTRAL = {
    "feddyn": "the server adds its drift, a mean of all steps so far that no α scales: h/α",
    "local-only": "nothing is shared",
    "dot-regression": "another loss",
    "feddr-plus": "another loss",
    "spherefed": "another loss",
    "fedetf": "another loss",
    "fedgela": "the head is that of FedAvg only for a client with equal class counts",
}


@every_method
def test_neutral_settings_are_fedavg(name):
    if name in NO_NEUTRAL:
        assert name not in NEUTRAL
        return
    if name not in NEUTRAL:
        pytest.fail(
            f"{name}: say in NEUTRAL at which settings it is FedAvg, or in NO_NEUTRAL why not"
        )
    case = NEUTRAL[name]
    training = replace(SHORT, batch=case.batch)
    data = vectors(case.sizes, 3, case.spec.classes)
    plan = Plan(rounds=case.rounds, clients=4)
    mine, _ = run(Job(name, case.spec, training, case.train, case.settings), data, plan)
    theirs, _ = run(Job("fedavg", case.spec, training, case.train), data, plan)
    assert mine.round == case.rounds
    if case.tolerance:
        assert_close(mine.params, theirs.params, case.tolerance)
    else:
        assert_same(mine.params, theirs.params)


@every_method
def test_a_method_is_not_fedavg_otherwise(name):
    """The comparison above would see a method that never does what it is for."""
    # by definition: Ditto's own model is looked at elsewhere, FedBABU is FedAvg of the extractor,
    # SiloBN differs in statistics of batch norm alone
    same = ("fedavg", "ditto", "fedbabu", "silobn")
    settings = {"epsilon": 1e-6} if name == "fedexp" else {}
    job, data = Case(name, settings).problem(sizes=(8,) * 6)
    training = replace(SHORT, batch=4)
    plan = Plan(rounds=3, clients=4)
    job = replace(job, training=training)
    mine, memories = run(job, data, plan)
    theirs, _ = run(replace(job, algorithm="fedavg", settings=None), data, plan)
    alike = all(np.array_equal(a, theirs.params[n]) for n, a in mine.params.items())
    assert alike == (name in same)
    if name == "ditto":
        assert any("copy" in own for own in memories.values())


# -- by hand ---------------------------------------------------------------------------------------
# Each function is one round from the equations of the method's paper, on Hand's plain vectors.


def local_steps(h, cohort, t, step=None):
    """δ of every client, and its number of steps."""
    found = {}
    for who in cohort:
        own = (lambda at, rows, who=who: step(who, at, rows)) if step else None
        model, count = h.train(who, t, h.model, own)
        found[who] = model - h.model, count
    return {who: d for who, (d, _) in found.items()}, {who: n for who, (_, n) in found.items()}


def alike(cohort):
    return dict.fromkeys(cohort, 1.0)


def fedavg(h, cohort, t, server_rate):
    h.model = h.model + server_rate * h.mean(local_steps(h, cohort, t)[0])


def fedavgm(h, cohort, t, momentum, server_rate):
    velocity = momentum * h.server.get("velocity", 0.0) + h.mean(local_steps(h, cohort, t)[0])
    h.server["velocity"] = velocity
    h.model = h.model + server_rate * velocity


def adaptive(second_moment):
    def work(h, cohort, t, server_rate, momentum, tau, second=None):
        mean = h.mean(local_steps(h, cohort, t)[0])
        v = h.server.get("second", h.moving * tau**2)
        h.server["first"] = momentum * h.server.get("first", 0.0) + (1 - momentum) * mean
        h.server["second"] = second_moment(v, mean**2, second)
        h.model = h.model + server_rate * h.server["first"] / (np.sqrt(h.server["second"]) + tau)

    return work


def fedexp(h, cohort, t, epsilon):
    steps_, _ = local_steps(h, cohort, t)
    mean = h.mean(steps_, alike(cohort))
    rate = sum(d @ d for d in steps_.values()) / (2 * len(cohort) * (mean @ mean + epsilon))
    h.rates.append(rate)
    h.model = h.model + max(1.0, rate) * mean


def fedprox(h, cohort, t, mu):
    start = h.model

    def step(who, at, rows):
        return h.gradient(who, at, rows) + mu * (at - start)

    h.model = h.model + h.mean(local_steps(h, cohort, t, step)[0])


def scaffold(h, cohort, t, server_rate):
    c = h.server.setdefault("control", np.zeros(5))

    def step(who, at, rows):
        return h.gradient(who, at, rows) - h.kept(who, "control", np.zeros(5)) + c

    moved, counts = local_steps(h, cohort, t, step)
    change, m = np.zeros(5), h.training.momentum
    for who in cohort:
        old = h.memory[who]["control"]
        steps_ = (counts[who] - m * (1 - m ** counts[who]) / (1 - m)) / (1 - m)
        new = old - c - moved[who] / (steps_ * h.training.rate)
        h.memory[who]["control"] = new * h.moving
        change = change + h.memory[who]["control"] - old
    h.server["control"] = c + change / len(h.data)
    h.model = h.model + server_rate * h.mean(moved, alike(cohort))


def feddyn(h, cohort, t, alpha):
    start = h.model

    def step(who, at, rows):
        drift = h.kept(who, "drift", np.zeros(5))
        return h.gradient(who, at, rows) - drift + alpha * (at - start)

    moved, _ = local_steps(h, cohort, t, step)
    for who in cohort:
        h.memory[who]["drift"] = h.memory[who]["drift"] - alpha * moved[who]
    h.server["drift"] = h.server.get("drift", 0.0) - alpha * sum(moved.values()) / len(h.data)
    h.model = h.model + h.mean(moved, alike(cohort)) - h.server["drift"] / alpha


def mime(h, cohort, t, beta, lite):
    start, m = h.model, h.server.get("momentum", np.zeros(5))
    c = h.moving * sum(h.gradient(who, start) for who in cohort) / len(cohort)

    def step(who, at, rows):
        found = h.gradient(who, at, rows)
        if not lite:
            found = found - h.gradient(who, start, rows) + c
        return (1 - beta) * found + beta * m

    moved, _ = local_steps(h, cohort, t, step)
    h.server["momentum"] = (1 - beta) * c + beta * m
    h.model = h.model + h.mean(moved, alike(cohort))


def ditto(h, cohort, t, strength, server_rate):
    start = h.model
    for who in cohort:
        own = h.kept(who, "copy", start)

        def step(at, rows, who=who):
            return h.gradient(who, at, rows) + strength * (at - start)

        h.memory[who]["copy"], _ = h.train(who, t, own, step, turn=1)
    fedavg(h, cohort, t, server_rate)


def per_fedavg(h, cohort, t, alpha):
    def step(who, at, rows):
        one, other = (rows[0::2], rows[1::2]) if len(rows) > 1 else (rows, rows)
        return h.gradient(who, at - alpha * h.moving * h.gradient(who, at, one), other)

    h.model = h.model + h.mean(local_steps(h, cohort, t, step)[0], alike(cohort))


def pfedme(h, cohort, t, personal, strength, inner_steps, inner_rate, beta):
    """w of a personal part is a client's own; the inner problem is about the whole of w."""

    def step(who, at, rows):
        near = at
        for _ in range(inner_steps):
            slope = h.gradient(who, near, rows) + strength * (near - at)
            near = near - inner_rate * h.moving * slope
        return strength * (at - near)

    own, passes = PART[personal], [(h.moving, None)]
    ends = [h.model + d for d in ends_of(h, cohort, t, own, passes, step).values()]
    mean = (1 - beta) * h.model + beta * sum(ends) / len(ends)
    h.model = np.where(own, h.model, mean)


def ends_of(h, cohort, t, personal, passes, step=None):
    """δ of clients that put their own part into the model; passes of (which part moves, epochs)."""
    ends = {}
    for who in cohort:
        at, own = h.model.copy(), step and functools.partial(step, who)
        if personal.any():
            at[personal] = h.kept(who, "personal", h.model[personal])
        for turn, (moving, epochs) in enumerate(passes):
            at, _ = h.train(who, t, at, own, turn=turn, epochs=epochs, moving=moving)
        if personal.any():
            h.memory[who]["personal"] = at[personal]
        ends[who] = at - h.model
    return ends


def with_personal(h, cohort, t, personal, passes):
    h.model = h.model + ~personal * h.mean(ends_of(h, cohort, t, personal, passes))


PART = {"head": HEAD, "extractor": EXTRACTOR, "model": HEAD | EXTRACTOR, None: HEAD & EXTRACTOR}


def fedsim(h, cohort, t, personal):
    with_personal(h, cohort, t, PART[personal], [(h.moving, None)])


def fedalt(h, cohort, t, personal, personal_epochs):
    own = PART[personal]
    with_personal(h, cohort, t, own, [(own, personal_epochs), (~own, None)])


def descended(objective, correct=None):
    """FedAvg on another objective (a function of the settings), or with another step."""

    def work(h, cohort, t, **settings):
        h.start, h.objective = h.model, objective(**settings)
        step = correct(h, **settings) if correct else None
        moved, _ = local_steps(h, cohort, t, step)
        for who in cohort if h.objective[-1].name == "moon" else ():
            h.memory.setdefault(who, {})["last"] = h.start + moved[who]
        h.model = h.model + h.mean(moved)

    return work


def orthogonal(h, rho, tau):
    """FedSOL's step."""

    def step(who, at, rows):
        away = h.moving * h.gradient(who, at, rows, of=(Term("kd", tau=tau),))
        if (at == h.start).all():
            return h.gradient(who, at, rows)
        return h.gradient(who, at + rho * away / np.linalg.norm(away), rows)

    return step


CE = Term("cross-entropy")
MOREAU = {"strength": 2.0, "inner_steps": 3, "inner_rate": 0.15, "beta": 0.8}
BY_HAND = {
    "fedbabu": (descended(lambda: (CE,)), [{}]),
    "dot-regression": (descended(lambda: (Term("dot-regression"),)), [{}]),
    "feddr-plus": (
        descended(lambda beta: (Term("dot-regression", beta), Term("fd", 1 - beta))),
        [{"beta": 0.6}, {"beta": 0.0}, {"beta": 1.0}],
    ),
    "spherefed": (descended(lambda scale: (Term("sphere", scale=scale),)), [{"scale": 1.7}]),
    "fedetf": (
        descended(lambda scale, gamma: (Term("balanced", scale=scale, gamma=gamma),)),
        [{"scale": 2.0, "gamma": 0.7}],
    ),
    "fedgela": (descended(lambda: (Term("scaled"),)), [{}]),
    "fedntd": (
        descended(lambda beta, tau: (CE, Term("ntd", beta, tau))),
        [{"beta": 0.8, "tau": 1.7}],
    ),
    "moon": (descended(lambda mu, tau: (CE, Term("moon", mu, tau))), [{"mu": 2.0, "tau": 0.6}]),
    "fedsol": (descended(lambda rho, tau: (CE,), orthogonal), [{"rho": 0.4, "tau": 1.7}]),
    "fedavg": (fedavg, [{"server_rate": 0.7}]),
    "silobn": (fedavg, [{"server_rate": 0.7}]),
    "fedavgm": (fedavgm, [{"momentum": 0.6, "server_rate": 0.7}]),
    "fedadagrad": (
        adaptive(lambda v, d, _: v + d),
        [{"server_rate": 0.2, "momentum": 0.3, "tau": 0.1}],
    ),
    "fedadam": (
        adaptive(lambda v, d, b: b * v + (1 - b) * d),
        [{"server_rate": 0.2, "momentum": 0.3, "second": 0.6, "tau": 0.1}],
    ),
    "fedyogi": (
        adaptive(lambda v, d, b: v - (1 - b) * d * np.sign(v - d)),
        [{"server_rate": 0.2, "momentum": 0.3, "second": 0.6, "tau": 0.1}],
    ),
    "fedexp": (fedexp, [{"epsilon": 1e-4}]),
    "fedprox": (fedprox, [{"mu": 0.8}]),
    "scaffold": (scaffold, [{"server_rate": 0.7}]),
    "feddyn": (feddyn, [{"alpha": 0.4}]),
    "mime": (mime, [{"beta": 0.6, "lite": False}, {"beta": 0.6, "lite": True}]),
    "ditto": (ditto, [{"strength": 0.9, "server_rate": 0.7}]),
    "per-fedavg": (per_fedavg, [{"alpha": 0.5}]),
    "pfedme": (
        pfedme,
        [{"personal": part, **MOREAU} for part in (None, "head", "extractor")],
    ),
    "fedsim": (fedsim, [{"personal": "head"}, {"personal": "extractor"}]),
    "fedalt": (
        fedalt,
        [
            {"personal": "head", "personal_epochs": 2},
            {"personal": "extractor", "personal_epochs": None},
        ],
    ),
    "fedper": (lambda h, cohort, t: fedsim(h, cohort, t, "head"), [{}]),
    "fedrep": (
        lambda h, cohort, t, head_epochs: fedalt(h, cohort, t, "head", head_epochs),
        [{"head_epochs": 3}],
    ),
    "local-only": (
        lambda h, cohort, t, loss: fedsim(h, cohort, t, "model"),
        [{"loss": "cross-entropy"}],
    ),
}
WHOLE = tuple(
    n
    for n in METHODS
    if gradient.make(n).personal in (None, "model") and not gradient.make(n).trains
)
TURNS = [("model", name) for name in METHODS] + [("head", name) for name in WHOLE]
WIDE = {n for n in METHODS if turned(gradient.make(n))} | {"fedntd", "fedsol"}


def put_together(job, params, names):
    return np.concatenate([np.asarray(params[name], np.float64).ravel() for name in names])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("train", "name"), TURNS)
def test_two_rounds_by_hand(train, name, momentum):
    """The model, the server's state and what clients remember, on five parameters or the head's."""
    if name not in BY_HAND:
        pytest.fail(f"{name}: write one round of it in NumPy and put it into BY_HAND")
    work, variants = BY_HAND[name]
    for settings in variants:
        if train == "head" and settings.get("personal"):
            continue  # a head alone has no other part to share
        expected = set(inspect.signature(gradient.METHODS[name]).parameters)
        assert set(settings) == expected, f"{name}: BY_HAND should set all of {expected}"
        compare_by_hand(train, name, work, settings, momentum)


def federation_by_hand(train, name, settings, training):
    """A job on the five parameters or the fifteen, its clients, and both in NumPy."""
    wide, deep = name in WIDE, train == "model"
    network = ("testing-turn" if wide else "testing-scale") if deep else None
    classes, d = (3, 2) if wide else (2, 1)
    spec = Spec(classes, d, network=network, temperature=0.7)
    job = Job(name, spec, training, gradient.make(name).trains or train, settings)
    data = fresh(vectors((4, 2, 7), 3 if deep else d, classes, seed=3))
    start = initial(job.model, None, 5)
    order = ["extractor.turn" if wide else "extractor.scale"] if deep else []
    order += ["head.weight", "head.bias"]
    inner = start[order[0]].ravel() if deep else np.zeros(6) if wide else [1.0]
    whole = np.concatenate([inner, start["head.weight"].ravel(), start["head.bias"]])
    size, first = len(whole), len(inner)
    parts = {"extractor": np.arange(size) < first, "head": np.arange(size) >= first}
    parts["model"] = parts["head"] | parts["extractor"]
    secrets = {who: secret_of(9, who) for who in data}
    about = (data, secrets, whole.astype(np.float64), training, 0.7, parts[job.train])
    shown = parts["model" if deep else "head"]
    return job, (Turned(*about, network=deep) if wide else Hand(*about)), start, order, shown


def compare_by_hand(train, name, work, settings, momentum):
    training = Training(rate=0.3, epochs=1, batch=3, decay=0.02, momentum=momentum)
    job, hand, start, order, shown = federation_by_hand(train, name, settings, training)
    data, plan = hand.data, Plan(rounds=2, clients=2, seed=4)
    cohorts = [plan.cohort(list(data), t) for t in range(2)]
    assert cohorts[0] != cohorts[1]  # somebody comes back, somebody comes late
    assert set(cohorts[0]) & set(cohorts[1])
    state, classes = begin(job, start), np.arange(job.spec.classes)
    for last in rounds(job, plan, Simulator(data, seed=9), classes, state):
        state = last
    for t, cohort in enumerate(cohorts):
        work(hand, cohort, t, **settings)

    assert not hand.rates or max(hand.rates) > 1 > min(hand.rates)  # both sides of FedExP's max
    got = {"model": put_together(job, state.params, order)}
    own, size = hand.moving, len(hand.model)
    got |= {
        f"server/{k}": put_together(job, tree, [n for n in order if n in tree])
        for k, tree in state.server.items()
    }
    for who, client in data.items():
        got |= {f"{who}/{kind}": array for kind, array in client.memory.items()}
    want = {"model": hand.model[shown]}
    want |= {f"server/{k}": v[own] for k, v in hand.server.items()}
    for who, memory in hand.memory.items():
        want |= {f"{who}/{k}": v[own] if len(v) == size else v for k, v in memory.items()}
    assert_close(got, want, 2e-6)
    stays = name == "local-only" or settings.get("beta") == 0.0  # FD alone is 0 where it begins
    assert stays or not np.allclose(want["model"], put_together(job, start, order))


# -- promises --------------------------------------------------------------------------------------

VARIANTS = {
    "fedrep": [{"head_epochs": 2}],
    "fedsim": [{"personal": "head"}, {"personal": "extractor"}],
    "fedalt": [{"personal": "head"}, {"personal": "extractor"}],
}
CASES = {
    "-".join([name, *map(str, settings.values())]): Case(name, settings)
    for name in METHODS
    for settings in VARIANTS.get(name, [{}])
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_method_keeps_its_promises(case, check):
    check(case)


def test_a_cohort_without_samples_is_named():
    for name in ("fedavg", "mime"):
        job, _ = Case(name).problem()
        with pytest.raises(HeadstartError, match="round: expected clients with samples, got none"):
            run(job, vectors((0, 0)), Plan(rounds=1, clients=2))


# -- what stays, and what leaves -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedsim", "fedalt", "fedper", "fedrep"])
def test_what_a_client_sends_tells_only_what_its_personal_part_does(name):
    """A constant more in every bias changes no prediction: it may change nothing that is sent."""
    job = Job(name, CNN, replace(GENTLE, decay=0.0), "model")
    numbers = 3 * 128 + 3  # of the head
    biases = slice(numbers - 3, None)
    own = np.random.default_rng(0).normal(0, 0.1, numbers).astype(np.float32)
    answers = []
    for change in ({}, {"by": 4.0}, {"by": np.array([4.0, 0.0, 0.0])}):
        data, kept = fresh(PICTURES), own.copy()
        kept[biases] += np.float32(change.get("by", 0.0))
        data["c00"].memory["personal"] = kept
        answers.append(upload(job, data)[0].vectors)
        assert not np.array_equal(data["c00"].memory["personal"], kept)  # it trained
    plain, silent, loud = answers
    size = np.abs(plain).max()
    assert np.abs(silent - plain).max() < 1e-4 * size
    assert np.abs(loud - plain).max() > 1e-2 * size  # a part that predicts otherwise does show


def test_a_private_model_changes_no_byte_of_what_is_sent():
    job = Job("ditto", Spec(3, 3), SHORT)
    messages = set()
    for private in (None, 0.0, 7.0):
        data = vectors((9, 4))
        if private is not None:
            data["c00"].memory["copy"] = np.full(12, private, np.float32)
        messages.add(upload(job, data)[1])
    assert len(messages) == 1


def test_a_control_variate_does_change_what_is_sent():
    job, messages = Job("scaffold", Spec(3, 3), SHORT), set()
    for control in (0.0, 0.5):
        data = vectors((9, 4))
        data["c00"].memory["control"] = np.full(12, control, np.float32)
        messages.add(upload(job, data)[1])
    assert len(messages) == 2


def test_fedexp_asks_how_far_clients_moved():
    assert gradient.make("fedexp").send_norms


# -- settings --------------------------------------------------------------------------------------

WRONG = [
    ("fedavg", "server_rate", 0.0),
    ("silobn", "server_rate", 0.0),
    ("fedavgm", "momentum", 1.0),
    ("fedavgm", "momentum", -0.1),
    ("fedavgm", "server_rate", "fast"),
    ("fedadagrad", "tau", 0.0),
    ("fedadam", "second", 1.0),
    ("fedyogi", "second", float("nan")),
    ("fedyogi", "server_rate", -1.0),
    ("fedexp", "epsilon", 0.0),
    ("fedprox", "mu", -1.0),
    ("scaffold", "server_rate", 0.0),
    ("feddyn", "alpha", 0.0),
    ("mime", "beta", 1.0),
    ("mime", "lite", 1),
    ("ditto", "strength", -1.0),
    ("ditto", "server_rate", 0),
    ("per-fedavg", "alpha", -0.1),
    ("pfedme", "personal", "model"),
    ("pfedme", "strength", 0.0),
    ("pfedme", "inner_steps", 0),
    ("pfedme", "inner_steps", 1.5),
    ("pfedme", "inner_rate", 0.0),
    ("pfedme", "beta", 0.0),
    ("fedsim", "personal", "heads"),
    ("fedalt", "personal", None),
    ("fedalt", "personal_epochs", 0),
    ("fedrep", "head_epochs", 0),
    ("feddr-plus", "beta", 1.1),
    ("spherefed", "scale", 0.0),
    ("fedetf", "scale", -1.0),
    ("fedetf", "gamma", -1.0),
    ("fedntd", "beta", -1.0),
    ("fedntd", "tau", 0.0),
    ("moon", "mu", -1.0),
    ("moon", "tau", 0.0),
    ("fedsol", "rho", -1.0),
    ("fedsol", "tau", 0.0),
    ("local-only", "loss", "balanced"),
    ("fedavg", "term", "l2"),
]


@pytest.mark.parametrize(("name", "setting", "value"), WRONG)
def test_bad_settings_are_named(name, setting, value):
    with pytest.raises(HeadstartError, match=f"^{setting}: expected .*, got "):
        gradient.make(name, {setting: value})


def test_every_setting_can_be_wrong():
    known = {(n, s) for n in METHODS for s in inspect.signature(gradient.METHODS[n]).parameters}
    tried = {(name, setting) for name, setting, _ in WRONG}
    rates = {(n, s) for n, s in known if s in ("server_rate", "momentum", "tau")}  # one class each
    assert known - tried <= rates, "add a value that is refused to WRONG"
    for name, setting in sorted(known - tried):
        with pytest.raises(HeadstartError, match=setting):
            gradient.make(name, {setting: -1.0})


def test_unknown_names_are_named():
    with pytest.raises(HeadstartError, match=r"method: expected one of .*, got 'fedsgd'"):
        gradient.make("fedsgd")
    with pytest.raises(HeadstartError, match="fedprox: expected settings among mu, term, mix, got"):
        gradient.make("fedprox", {"lambda": 1.0})
    with pytest.raises(HeadstartError, match="fedbabu: expected settings among term, mix, got mu"):
        gradient.make("fedbabu", {"mu": 1.0})
    with pytest.raises(HeadstartError, match="mix: expected a term to mix with, got none"):
        gradient.make("fedbabu", {"mix": 0.5})
    with pytest.raises(HeadstartError, match="local-only: expected settings among loss, term, mix"):
        gradient.make("local-only", {"mu": 1.0})
