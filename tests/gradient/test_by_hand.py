"""Two rounds of every method, from the equations of its paper (`BY_HAND`).

The table wants an entry for every method of the catalogue, and says so.
"""

import functools
import inspect

import numpy as np
import pytest

from headstart import gradient
from headstart.federation.simulator import Simulator, secret_of
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, rounds
from headstart.gradient.models import Spec, initial
from headstart.gradient.recipe import Term
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    assert_close,
    fresh,
    vectors,
)
from headstart.testing.methods import (
    turned,
)

from .helpers import EXTRACTOR, HEAD, METHODS, Hand, Turned, alike


# Each function is one round from the equations of the method's paper, on Hand's plain vectors.
def local_steps(h, cohort, t, step=None):
    """δ of every client, and its number of steps."""
    found = {}
    for who in cohort:
        own = (lambda at, rows, who=who: step(who, at, rows)) if step else None
        model, count = h.train(who, t, h.model, own)
        found[who] = model - h.model, count
    return {who: d for who, (d, _) in found.items()}, {who: n for who, (_, n) in found.items()}


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
