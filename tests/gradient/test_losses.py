"""Losses and terms: cases by hand, slopes from their equations, and finite differences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from headstart import HeadstartError, gradient
from headstart.gradient import make
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan
from headstart.gradient.losses import Outputs, unit
from headstart.gradient.models import Batch, Model, Spec
from headstart.gradient.objectives import LOSSES, term_names
from headstart.gradient.recipe import Local, Recipe, Term
from headstart.gradient.steps import Job
from headstart.gradient.terms import mixed
from headstart.testing.federations import assert_close, assert_same, fresh, run, vectors

from .helpers import Slopes

OF_SAMPLES = [name for name, loss in LOSSES.items() if not loss.beside]  # not of pixels

SETTINGS = {"tau": 1.7, "scale": 1.3, "gamma": 0.6}
COUNTS = np.array([[4.0, 1.0, 2.0, 3.0], [1.0, 0.0, 5.0, 2.0]])


def problem(seed=0):
    """Two clients, five samples, d = 3, C = 4: (f, z, v, y, weights, (f, z) twice), float64."""
    rng = np.random.default_rng(seed)
    f, given, last = rng.normal(size=(3, 2, 5, 3))
    z, z_given, z_last = rng.normal(size=(3, 2, 5, 4))
    v, weights = rng.normal(size=(2, 4, 3)), rng.random((2, 5))
    y = np.stack([rng.choice(np.flatnonzero(own), 5) for own in COUNTS])
    return f, z, v, y, weights, (given, z_given), (last, z_last)


def value(name, f, z, v, y, weights, given, last):
    tensors = [torch.tensor(part) for part in (v, y, weights, COUNTS)]
    others = [Outputs(torch.tensor(a), torch.tensor(b), *tensors[:3]) for a, b in (given, last)]
    leaves = [torch.tensor(part, requires_grad=True) for part in (f, z)]
    seen = Outputs(*leaves, *tensors, through_received=others[0], last=others[1])
    return LOSSES[name].value(seen, Term(name, **SETTINGS)), leaves


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_values_and_slopes_are_those_of_the_equations(name):
    f, z, v, y, weights, given, last = case = problem()
    found, leaves = value(name, *case)
    slopes = torch.autograd.grad(found, leaves, materialize_grads=True)
    total = 0.0
    for k in range(2):
        others = [(a[k], b[k]) for a, b in (given, last)]
        by_hand = Slopes(f[k], z[k], v[k], y[k], COUNTS[k], *others)
        each, df, dz = by_hand.of(Term(name, **SETTINGS))
        total += float(weights[k] @ each)
        for slope, own in zip(slopes, (df, dz), strict=True):
            np.testing.assert_allclose(slope[k], weights[k][:, None] * own, atol=1e-12)
    assert found.item() == pytest.approx(total)
    assert max(float(slope.abs().max()) for slope in slopes) > 1e-3


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_slopes_are_finite_differences(name):
    case = problem(seed=1)
    found, leaves = value(name, *case)
    slopes = torch.autograd.grad(found, leaves, materialize_grads=True)
    rng, step = np.random.default_rng(2), 1e-5
    for place, slope in enumerate(slopes):
        way = rng.normal(size=slope.shape)
        ends = []
        for sign in (1, -1):
            moved = list(case)
            moved[place] = case[place] + sign * step * way
            ends.append(value(name, *moved)[0].item())
        assert float((slope * torch.tensor(way)).sum()) == pytest.approx(
            (ends[0] - ends[1]) / (2 * step), abs=1e-8
        )


def one(f, z, v=((1.0, 0.0), (0.0, 1.0)), y=0, counts=(1.0, 1.0), given=None, last=None):
    """One sample of one client."""

    def seen(f, z, **more):
        tensors = (torch.tensor([[part]], dtype=torch.float64) for part in (f, z))
        rows = torch.tensor([v], dtype=torch.float64)
        return Outputs(*tensors, rows, torch.tensor([[y]]), torch.ones(1, 1).double(), **more)

    others = {
        key: seen(*pair) for key, pair in (("through_received", given), ("last", last)) if pair
    }
    return seen(f, z, counts=torch.tensor([counts], dtype=torch.float64), **others)


def at(name, seen, **settings):
    return float(LOSSES[name].value(seen, Term(name, **settings)))


def test_cases_one_can_do_in_the_head():
    diagonal = one((2.0, 2.0), (0.0, 0.0))
    cosine = math.sqrt(0.5)
    assert at("dot-regression", diagonal) == pytest.approx((cosine - 1) ** 2 / 2)
    assert at("dot-regression", one((0.0, 3.0), (0.0, 0.0))) == pytest.approx(0.5)
    assert at("dot-regression", one((-1.0, 0.0), (0.0, 0.0))) == pytest.approx(2.0)
    assert at("dot-regression", one((7.0, 0.0), (0.0, 0.0))) == 0
    # (2·√½ − 1)² and (2·√½)², halved
    expected = ((2 * cosine - 1) ** 2 + (2 * cosine) ** 2) / 2
    assert at("sphere", diagonal, scale=2.0) == pytest.approx(expected)
    # equal cosines, three samples to one: log 4/3
    few = one((2.0, 2.0), (0.0, 0.0), counts=(3.0, 1.0))
    assert at("balanced", few) == pytest.approx(math.log(4 / 3))
    lacking = one((2.0, 2.0), (0.0, 0.0), counts=(3.0, 0.0))
    assert at("balanced", lacking) == 0
    assert at("balanced", lacking, gamma=0.0) == pytest.approx(math.log(2))  # no prior at all
    # 2·¾·z and 2·¼·z: 1.5·2 against 0.5·6
    scaled = one((0.0, 0.0), (2.0, 6.0), counts=(3.0, 1.0))
    assert at("scaled", scaled) == pytest.approx(math.log(2))
    far = one((1.0, 3.0), (1.0, 2.0), given=((0.0, 1.0), (0.0, 0.0)))
    assert at("fd", far) == pytest.approx((1 + 4) / 2)
    assert at("ld", far) == pytest.approx(1 + 4)
    # softmax (¼, ¾) against (½, ½) at τ = 2
    soft = one((0.0, 0.0), (0.0, 2 * math.log(3)), given=((0.0, 0.0), (0.0, 0.0)))
    assert at("kd", soft, tau=2.0) == pytest.approx(4 * math.log(2 / math.sqrt(3)))
    assert at("ntd", soft, tau=2.0) == 0  # one class is left
    # as near to the one as to the other, and as near as can be
    f = (1.0, 0.0)
    both = one(f, (0.0, 0.0), given=(f, (0.0, 0.0)), last=(f, (0.0, 0.0)))
    assert at("moon", both) == pytest.approx(math.log(2))
    near = one(f, (0.0, 0.0), given=(f, (0.0, 0.0)), last=((-1.0, 0.0), (0.0, 0.0)))
    assert at("moon", near, tau=0.5) == pytest.approx(math.log(1 + math.exp(-4)))


def test_a_pull_is_part_of_the_objective_and_of_nothing_else():
    """FedSOL's way is the distillation's alone; a pass with steps of its own is pulled as well."""
    asked = []

    def gradient(at, half=None, of=None):
        asked.append({name: array.clone() for name, array in at.items()})
        return {"w": torch.tensor([[1.0, 0.0]])}

    here, given = {"w": torch.tensor([[0.0, 10.0]])}, {"w": torch.zeros(1, 2)}
    recipe = make("fedsol", {"rho": 1.0, "term": "prox", "mix": 0.5})
    step = recipe.correct(gradient, here, Local(given, {}, {}, 0.1))
    torch.testing.assert_close(asked[1]["w"], torch.tensor([[1.0, 10.0]]))
    torch.testing.assert_close(step["w"], torch.tensor([[1.5, 5.0]]))  # g + ½(θ − θᵗ), over there
    copied = make("ditto", {"strength": 2.0, "term": "prox", "mix": 0.5}).passes[1]
    pulled = copied.correct(gradient, here, Local(given, {}, {}, 0.1))
    torch.testing.assert_close(pulled["w"], torch.tensor([[1.0, 25.0]]))


def test_a_class_that_is_true_tells_ntd_nothing():
    z, given = (5.0, 1.0, 2.0), (0.0, 1.0, 2.0)
    v = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
    seen = one((0.0, 0.0), z, v, given=((0.0, 0.0), given), counts=(1.0, 1.0, 1.0))
    assert at("ntd", seen, tau=1.5) == pytest.approx(0, abs=1e-15)
    assert at("kd", seen, tau=1.5) > 0.1


@pytest.mark.parametrize("name", ["dot-regression", "sphere", "balanced", "moon"])
def test_a_feature_of_length_zero_has_no_direction_and_no_slope(name):
    f, z, v, y, weights, given, last = problem()
    f[0, 0] = 0
    found, leaves = value(name, f, z, v, y, weights, given, last)
    (slope,) = torch.autograd.grad(found, leaves[:1])
    assert found.isfinite()
    assert (slope[0, 0] == 0).all()
    assert (slope[0, 1] != 0).any()
    assert (unit(torch.zeros(2, 3)) == 0).all()


@pytest.mark.parametrize("name", ["kd", "ntd", "ld", "fd", "moon"])
def test_terms_vanish_at_the_received_model(name):
    f, z, v, y, weights, *_ = problem()
    found, leaves = value(name, f, z, v, y, weights, (f, z), (f, z))
    slopes = torch.autograd.grad(found, leaves, materialize_grads=True)
    assert all(float(slope.abs().max()) < 1e-12 for slope in slopes)


# -- in an engine ----------------------------------------------------------------------------------


def batch_and_params(k=3, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(k, 5, 4)).astype(np.float32))
    y = torch.from_numpy(rng.integers(3, size=(k, 5)))
    weights = torch.from_numpy(rng.random((k, 5)).astype(np.float32))
    counts = torch.from_numpy(rng.integers(1, 9, size=(k, 3)).astype(np.float32))
    made = [
        {
            "head.weight": torch.from_numpy(rng.normal(size=(k, 3, 4)).astype(np.float32)),
            "head.bias": torch.from_numpy(rng.normal(size=(k, 3)).astype(np.float32)),
        }
        for _ in range(3)
    ]
    return Batch(x, y, weights, counts=counts), *made


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_every_client_has_the_gradient_it_has_alone(name):
    model = Model(Spec(3, 4, temperature=0.6))
    batch, params, given, last = batch_and_params()
    objective = (Term("cross-entropy", 0.5), Term(name, 0.5, **SETTINGS))
    local = Local(given, {"last": last}, {}, 0.1)
    whole = model.gradient(objective, params, params, batch, local)
    for k in range(3):
        own = slice(k, k + 1)
        part = Batch(batch.x[own], batch.y[own], batch.weights[own], counts=batch.counts[own])
        cut = [{n: a[own] for n, a in tree.items()} for tree in (params, given, last)]
        alone = model.gradient(
            objective, cut[0], cut[0], part, Local(cut[1], {"last": cut[2]}, {}, 0.1)
        )
        for n, array in alone.items():
            torch.testing.assert_close(whole[n][own], array, rtol=1e-5, atol=1e-6)


def test_what_nothing_takes_part_in_has_no_slope():
    model = Model(Spec(3, 4))
    batch, params, given, _ = batch_and_params()
    for objective in ((Term("fd"),), (Term("dot-regression"),)):
        found = model.gradient(objective, params, params, batch, Local(given, {}, {}, 0.1))
        assert (found["head.bias"] == 0).all()
    assert (found["head.weight"] != 0).any()


def test_statistics_of_batch_norm_are_the_clients_own_beside_a_reference():
    """The received model is looked through as the one that trains is, and leaves no trace."""
    spec = Spec(3, 4, network="normed", batch_norm="average")
    model = Model(spec)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(1, 6, 3, 2, 2)).astype(np.float32))
    batch = Batch(x, torch.tensor([[0, 1, 2, 0, 1, 2]]), torch.full((1, 6), 1 / 6))
    params = {n: torch.randn(1, *shape) for n, shape in model.shapes.items()}
    params |= {n: torch.ones(1, *shape) for n, shape in model.statistics.items()}
    given = {n: a.clone() for n, a in params.items()}
    moving = [n for n in params if n not in model.statistics]
    before = {n: a.clone() for n, a in given.items()}
    plain, terms = ({n: a.clone() for n, a in params.items()} for _ in range(2))
    local = Local(given, {}, {}, 0.1)
    one = model.gradient((Term("dot-regression"),), plain, moving, batch, local)
    held = (Term("dot-regression"), Term("fd"))
    two = model.gradient(held, terms, moving, batch, local)
    for name in model.statistics:
        assert torch.equal(plain[name], terms[name])
        assert not torch.equal(plain[name], params[name])
    for name, array in given.items():
        assert torch.equal(array, before[name])
    for name in moving:  # θ is θᵍ: there is no distance yet
        torch.testing.assert_close(one[name], two[name])


# -- any method with any term ----------------------------------------------------------------------


def test_mixing_is_beta_of_the_one_and_the_rest_of_the_other():
    recipe = mixed(Recipe(), "FD", 0.7)
    assert [(t.name, round(t.weight, 9)) for t in recipe.objective] == [
        ("cross-entropy", 0.7),
        ("fd", 0.3),
    ]
    assert mixed(Recipe(), "none", 0.7) == Recipe()
    made = gradient.make("dot-regression", {"term": "fd", "mix": 0.9})
    assert made == gradient.make("feddr-plus") == gradient.make("feddr-plus", {"beta": 0.9})
    assert mixed(Recipe(), "kd", 0.9).objective[1].tau == 3
    moon = mixed(Recipe(), "moon", 0.9)
    assert moon.memory == {"last": "received"}
    assert moon.objective[1].tau == 0.5
    with pytest.raises(HeadstartError, match="mix: expected a number from 0 to 1"):
        mixed(Recipe(), "fd", 1.5)


QUICK = Training(rate=0.2, epochs=1, batch=7, decay=0.01, momentum=0.5)
TURN = Spec(3, 2, network="testing-turn")


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddyn", "fedadam", "mime", "pfedme"])
def test_prox_in_any_method_is_its_gradient_moved(name):
    """β·loss + (1−β)·½‖θ − θᵗ‖²: weights 1 and μ are FedProx, in whatever uses the gradient."""
    data, plan = vectors((8,) * 4), Plan(rounds=2, clients=3)
    plain, _ = run(Job(name, Spec(3, 3), QUICK), fresh(data), plan)
    whole, _ = run(Job(name, Spec(3, 3), QUICK, settings={"term": "prox", "mix": 1.0}), data, plan)
    assert_close(whole.params, plain.params)  # all of the loss, nothing of the term
    some = {"term": "prox", "mix": 0.5}
    mixture, _ = run(Job(name, Spec(3, 3), QUICK, settings=some), data, plan)
    assert not np.allclose(mixture.params["head.weight"], plain.params["head.weight"])
    if name == "fedavg":  # at half the loss and half the term: FedProx at half the rate, μ = 1
        slow = replace(QUICK, rate=0.1, decay=0.02)
        prox, _ = run(Job("fedprox", Spec(3, 3), slow, settings={"mu": 1.0}), data, plan)
        assert_close(mixture.params, prox.params)


@pytest.mark.parametrize("term", term_names()[2:])
def test_a_term_of_weight_zero_costs_and_changes_nothing(term):
    data, plan = vectors((8,) * 4), Plan(rounds=2, clients=3)
    plain, _ = run(Job("fedbabu", TURN, QUICK, "extractor"), fresh(data), plan)
    none = {"term": term, "mix": 1.0}
    told, kept = run(Job("fedbabu", TURN, QUICK, "extractor", none), data, plan)
    assert_same(told.params, plain.params)
    assert not any(kept.values())
    some = {"term": term, "mix": 0.5}
    mixture, _ = run(Job("fedbabu", TURN, QUICK, "extractor", some), data, plan)
    assert not np.allclose(mixture.params["extractor.turn"], plain.params["extractor.turn"])


def test_fedgela_is_fedbabu_for_clients_with_equal_counts():
    data = vectors((9,) * 4)
    for client in data.values():
        client.samples.labels[:] = np.arange(9) % 3
    plan = Plan(rounds=2, clients=3)
    scaled, _ = run(Job("fedgela", TURN, QUICK, "extractor"), fresh(data), plan)
    plain, _ = run(Job("fedbabu", TURN, QUICK, "extractor"), fresh(data), plan)
    assert_close(scaled.params, plain.params)
    data["c00"].samples.labels[:] = 0
    other, _ = run(Job("fedgela", TURN, QUICK, "extractor"), data, plan)
    assert not np.allclose(other.params["extractor.turn"], plain.params["extractor.turn"])
