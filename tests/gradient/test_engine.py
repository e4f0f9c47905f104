"""The engine against independent loops: losses, batches, batch norm, FedAvg, and home."""

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headstart import DataError, Fed3R, HeadstartError
from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData, tallies
from headstart.federation.simulator import Simulator, secret_of
from headstart.gradient import diagnose, engine, models, networks, steps
from headstart.gradient import local as local_
from headstart.gradient.engine import Group, Training, TrainingSet
from headstart.gradient.flops import extractor_flops
from headstart.gradient.local import FineTuning, fine_tune_locally, results
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.losses import Seen
from headstart.gradient.models import Batch, Model, Spec, flat, initial, shaped
from headstart.gradient.objectives import LOSSES
from headstart.gradient.product import Product, onto, whole
from headstart.gradient.recipe import CROSS_ENTROPY, RoundAggregate, Term
from headstart.gradient.steps import Job
from headstart.gradient.tree import each
from headstart.testing.federations import (
    assert_close,
    assert_same,
    fresh,
    images,
    run,
    vectors,
)

from .helpers import OWN, shuffle

NORMED = Spec(3, 4, network="normed")


def batch_of(k=3, b=5, d=4, classes=3, mask=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(k, b, d)).astype(np.float32))
    weights = torch.from_numpy(rng.random((k, b)).astype(np.float32))
    return Batch(x, torch.from_numpy(rng.integers(classes, size=(k, b))), weights, mask)


def params_of(k=3, d=4, classes=3, seed=1):
    rng = np.random.default_rng(seed)
    made = {
        "head.weight": rng.normal(size=(k, classes, d)),
        "head.bias": rng.normal(size=(k, classes)),
    }
    return {name: torch.from_numpy(array.astype(np.float32)) for name, array in made.items()}


# -- threads ---------------------------------------------------------------------------------------


def test_a_client_alone_trains_to_the_same_bits_whatever_the_threads():
    """Small work has one thread of torch's own BLAS too, also where numpy's is limited."""
    rng = np.random.default_rng(0)
    data = {
        "a": ClientData(
            ArraySamples(rng.normal(size=(232, 64)).astype(np.float32), rng.integers(10, size=232))
        )
    }
    job, before, found = (
        Job("fedavg", Spec(10, 64), Training(rate=0.1)),
        torch.get_num_threads(),
        [],
    )
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            alone = Simulator(data, together=False)
            found.append(run(job, data, Plan(2, 1), federation=alone)[0].params["head.weight"])
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


# -- losses and gradients --------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.slope])
@pytest.mark.parametrize("masked", [False, True])
def test_a_slope_is_that_of_the_value(loss, masked):
    mask = torch.zeros(3, 1, 3)
    if masked:
        mask[0, 0, 2] = mask[2, 0, 0] = -torch.inf
    batch = batch_of(mask=mask)
    labels = torch.where(mask.isinf()[:, 0].gather(1, batch.y), torch.ones_like(batch.y), batch.y)
    weight = params_of()["head.weight"].transpose(1, 2)
    logits = (batch.x @ weight + mask).requires_grad_()
    seen = Seen(batch.x, logits, weight.transpose(1, 2), labels, batch.weights)
    LOSSES[loss].value(seen, Term(loss)).backward()
    slope = LOSSES[loss].slope(logits.detach(), labels, batch.weights)
    torch.testing.assert_close(slope, logits.grad, rtol=1e-5, atol=1e-6)
    assert slope.abs().max() > 0.1
    assert (slope[mask.expand_as(slope).isinf()] == 0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_heads_gradient_without_autograd_is_autograds(temperature, monkeypatch):
    model, batch, params = Model(Spec(3, 4, temperature=temperature)), batch_of(), params_of()
    names = ("head.weight", "head.bias")
    fast = model.gradient(CROSS_ENTROPY, params, names, batch)
    plain = replace(LOSSES["cross-entropy"], slope=None)
    entry = replace(LOSSES.entry("cross-entropy"), load=lambda: plain)
    monkeypatch.setitem(LOSSES._known(), "crossentropy", entry)
    slow = model.gradient(CROSS_ENTROPY, params, names, batch)
    for name in names:
        torch.testing.assert_close(whole(fast[name]), slow[name], rtol=1e-5, atol=1e-6)
    assert isinstance(fast["head.weight"], Product)
    assert params["head.weight"].grad is None


def test_clients_trained_together_have_their_own_gradients():
    model, batch, params = Model(Spec(3, 4)), batch_of(), params_of()
    every = each(whole, model.gradient(CROSS_ENTROPY, params, params, batch))
    for k in range(3):
        one = Batch(batch.x[k : k + 1], batch.y[k : k + 1], batch.weights[k : k + 1])
        mine = {name: array[k : k + 1] for name, array in params.items()}
        for name, slope in model.gradient(CROSS_ENTROPY, mine, mine, one).items():
            own = every[name][k : k + 1]
            torch.testing.assert_close(own, whole(slope), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
@pytest.mark.parametrize("clients", [1, 3])
def test_halves_are_every_other_sample(count, clients):
    batch = batch_of(clients, 6)
    weights = torch.zeros(clients, 6)
    weights[:, :count] = 1 / count  # the others are padding
    batch = replace(batch, weights=weights)
    assert batch.half(None) is batch
    params, model = params_of(clients), Model(Spec(3, 4))
    for which in (0, 1):
        rows = list(range(which, count, 2)) or list(range(count))
        taken = torch.full((clients, len(rows)), 1 / len(rows))
        expected = model.gradient(
            CROSS_ENTROPY, params, params, Batch(batch.x[:, rows], batch.y[:, rows], taken)
        )
        found = model.gradient(CROSS_ENTROPY, params, params, batch.half(which))
        for name in params:
            pair = whole(found[name]), whole(expected[name])
            torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-6)


def test_a_product_adds_and_scales_like_the_array_it_stands_for():
    torch.manual_seed(0)
    slopes, features = torch.randn(3, 5, 2), torch.randn(3, 5, 4)
    product, dense = Product(slopes, features), slopes.transpose(1, 2) @ features
    a, b = torch.randn(2, 3, 2, 4)
    for work in (
        lambda g: g,
        lambda g: a + 0.5 * g,
        lambda g: g - a + b * 2.0,
        lambda g: (a - g * 3.0) * 0.1 + g,
        lambda g: g - g * 0.25,
        lambda g: 2.0 * (g + a) - (g - b),
    ):
        torch.testing.assert_close(whole(work(product)), work(dense), rtol=1e-5, atol=1e-5)
        for keep, by in ((0.9, -0.1), (1.0, 1.0), (0.0, 2.0)):
            place, expected = b.clone(), keep * b + by * work(dense)
            onto(place, work(product), keep, by)
            torch.testing.assert_close(place, expected, rtol=1e-5, atol=1e-5)


def test_zeros_added_to_a_product_change_no_bit():
    torch.manual_seed(0)
    product = Product(torch.randn(3, 5, 2), torch.randn(3, 5, 4))
    one = torch.randn(3, 2, 4)
    two = one.clone()
    onto(one, product, 0.99, -0.1)
    onto(two, product + torch.zeros(3, 2, 4), 0.99, -0.1)
    assert torch.equal(one, two)


# -- batches ---------------------------------------------------------------------------------------


def group_of(sizes, **how):
    return Group(
        [
            TrainingSet(
                ArraySamples(np.arange(n)[:, None] + 100.0 * k, np.arange(n)), b"%d" % k, **how
            )
            for k, n in enumerate(sizes)
        ]
    )


@pytest.mark.parametrize("batch", [1, 3, 4, 7, 50])
def test_every_epoch_has_every_sample_once(batch):
    sizes, epochs = (11, 7, 7, 3, 1), 3
    seen = [[] for _ in sizes]
    counts = []
    for count, one in group_of(sizes).batches(epochs, batch, 5, 0):
        counts.append(count)
        assert torch.allclose(one.weights.sum(dim=1), torch.ones(count))
        for k in range(count):
            real = one.weights[k] > 0
            assert len(set(one.weights[k][real].tolist())) == 1
            seen[k].append(one.x[k, real, 0].int().tolist())
            assert (one.x[k, real, 0] - 100 * k).int().tolist() == one.y[k, real].tolist()
    assert counts == sorted(counts, reverse=True)
    for k, n in enumerate(sizes):
        a_epoch = -(-n // batch)
        assert len(seen[k]) == epochs * a_epoch
        orders = []
        for epoch in range(epochs):
            own = seen[k][epoch * a_epoch : (epoch + 1) * a_epoch]
            assert all(len(rows) == batch for rows in own[:-1])
            orders.append([row - 100 * k for rows in own for row in rows])
            assert sorted(orders[-1]) == list(range(n))
        assert n < 7 or orders[0] != orders[1]  # anew every epoch
        expected = shuffle(b"%d" % k, n, epochs, batch, 5, 0)
        assert [row for order in orders for row in order] == np.concatenate(expected).tolist()


def test_the_order_depends_on_the_secret_and_the_key():
    def order(secret, *key):
        own = TrainingSet(ArraySamples(np.arange(9)[:, None], np.zeros(9, np.int64)), secret)
        return [batch.x.flatten().tolist() for _, batch in Group([own]).batches(1, 4, *key)]

    assert order(b"a", 1, 0) == order(b"a", 1, 0)
    found = [order(b"a", 1, 0), order(b"b", 1, 0), order(b"a", 2, 0), order(b"a", 1, 1)]
    assert all(one != two for i, one in enumerate(found) for two in found[:i])


@pytest.mark.parametrize("piece", [1024, 2])
def test_the_gradient_of_all_samples_is_the_mean_of_theirs(piece, monkeypatch):
    monkeypatch.setattr(engine, "_PIECE", piece)
    data = vectors((5, 0, 3, 1))
    job = Job("mime", Spec(3, 3))
    params = initial(job.model, None, 2)
    words = steps.broadcast(job, params, {}, np.arange(3))
    for together in (True, False):
        sim = Simulator(data, together=together)
        asked = sim.total(steps.full_gradient(job, 0), words).statistic
        layer, expected = nn.Linear(3, 3), np.zeros(12)
        layer.load_state_dict({n[5:]: torch.from_numpy(a) for n, a in params.items()})
        for client in data.values():
            slopes = np.zeros(12)
            for x, y in zip(client.samples.features, client.samples.labels, strict=True):
                layer.zero_grad()
                F.cross_entropy(layer(torch.from_numpy(x)), torch.tensor(int(y))).backward()
                slopes += flat({"w": layer.weight.grad, "b": layer.bias.grad}, ("w", "b"))
            expected += slopes / max(1, len(client.samples.labels))
        assert asked.numbers.tolist() == [3.0]
        np.testing.assert_allclose(asked.vectors[0], expected, rtol=1e-5, atol=1e-6)


# -- FedAvg, independently -------------------------------------------------------------------------


def sgd(module, loss, data, batches, training):
    """torch's own SGD over these batches."""
    how = {"lr": training.rate, "momentum": training.momentum, "weight_decay": training.decay}
    optimizer = torch.optim.SGD(module.parameters(), **how)
    x, y = map(torch.from_numpy, data.samples.read())
    for rows in batches:
        optimizer.zero_grad()
        loss(module(x[rows]), y[rows]).backward()
        optimizer.step()
    return module


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_fedavg_on_a_head_is_a_loop_of_torch(momentum, temperature):
    training = Training(rate=0.2, epochs=2, batch=4, decay=0.01, momentum=momentum)
    data, job = vectors((9, 1, 14, 4)), Job("fedavg", Spec(3, 3, temperature=temperature), training)
    plan = Plan(rounds=3, clients=3, seed=2)
    state, _ = run(job, data, plan, seed=7)

    model = {name: torch.from_numpy(a) for name, a in initial(job.model, None, 5).items()}
    for t in range(3):
        total, weight = {name: torch.zeros_like(a) for name, a in model.items()}, 0
        for who in plan.cohort(list(data), t):
            layer, own = nn.Linear(3, 3), data[who]
            layer.load_state_dict({name[5:]: array for name, array in model.items()})
            batches = shuffle(secret_of(7, who), len(own.samples.labels), 2, 4, t, 0)
            sgd(layer, lambda z, y: F.cross_entropy(z / temperature, y), own, batches, training)
            for name, array in layer.state_dict().items():
                total[f"head.{name}"] += len(own.samples.labels) * array
            weight += len(own.samples.labels)
        model = {name: array / weight for name, array in total.items()}
    assert_close(state.params, {name: array.numpy() for name, array in model.items()})


def test_what_goes_down_is_counted_and_what_never_changes_goes_once():
    spec = Spec(2, 1, network="testing-scale")
    job, data = Job("scaffold", spec, train="head"), vectors((4,) * 3, 3, 2)
    plan, classes = Plan(rounds=2, clients=2), np.arange(2)
    state, _ = run(job, data, plan)
    shared, control, frozen = 4 * 4, 4 * 4, 4
    met = {name for at in range(2) for name in plan.cohort(list(data), at)}
    assert len(met) in (2, 3)
    assert state.down == 4 * (shared + control) + (frozen + classes.nbytes) * len(met)


def test_a_window_is_the_mean_of_the_last_models_and_drops_slow_the_clients():
    job, data = Job("fedavg", Spec(3, 3)), vectors((6, 8))
    plan = Plan(rounds=4, clients=2, window=3, drops=(2,), drop=0.5)
    states = [begin(job, initial(job.model, None, 5))]
    sim = Simulator(fresh(data))
    for _ in range(4):
        states.append(one_round(job, plan, sim, np.arange(3), states[-1]))
    mean = {n: np.mean([s.params[n] for s in states[-3:]], axis=0) for n in states[0].params}
    assert_close(states[-1].evaluated(), mean)
    assert_same(states[1].evaluated(), states[1].params)
    half = replace(job, training=replace(job.training, rate=0.05))
    slower = one_round(half, Plan(clients=2), Simulator(fresh(data)), np.arange(3), states[2])
    assert_same(slower.params, states[3].params)


def test_patience_ends_a_training_that_no_longer_learns():
    data = vectors((6, 8))
    for rate, patience, expected in ((0.05, 3, 12), (40.0, 3, range(3, 12))):
        job = Job("fedavg", Spec(3, 3), Training(rate=rate))
        state, _ = run(job, data, Plan(rounds=12, clients=2, patience=patience))
        assert state.round == expected or state.round in np.atleast_1d(expected)
    first, _ = run(job, data, Plan(rounds=1, clients=2, patience=1))
    start = initial(job.model, None, 5)
    losses = []
    for own in data.values():
        z = torch.from_numpy(own.samples.features @ start["head.weight"].T + start["head.bias"])
        losses.append(F.cross_entropy(z, torch.from_numpy(own.samples.labels)).item())
    assert first.best == pytest.approx(np.mean(losses), rel=1e-6)


def test_fedexp_grows_only_where_clients_disagree():
    server = Job("fedexp", Spec(2, 1), settings={"epsilon": 0.5}).recipe.server
    params = {"p": np.array([1.0, 2.0])}
    for squares, rate in ((100.0, 100 / (2 * 4 * (2.0 + 0.5))), (1.0, 1.0)):
        mean = {"p": np.array([1.0, -1.0])}
        moved, _ = server.step(params, {}, RoundAggregate(mean, squares, {}, 4, 9))
        np.testing.assert_allclose(moved["p"], params["p"] + rate * mean["p"])


# -- batch norm ------------------------------------------------------------------------------------

STATISTICS = ("extractor.norm.running_mean", "extractor.norm.running_var")
SMALL = Training(rate=0.05, batch=4, decay=0.01, momentum=0.5)
PICTURES = images((6, 5, 9), side=4)


class Whole(nn.Module):
    def __init__(self, job):
        super().__init__()
        self.extractor = networks_of(job.spec.network)
        self.head = nn.Linear(job.spec.dimension, job.spec.classes)

    def forward(self, x):
        return self.head(self.extractor(x))


def networks_of(name):
    return OWN[name]()


def trained_alone(job, params, data, batches):
    """One client's training with torch's own modules, statistics and all."""
    module = Whole(job)
    own = {n: torch.from_numpy(a.copy()) for n, a in params.items()}
    module.load_state_dict(own, strict=False)
    module.train(job.spec.batch_norm != "frozen")
    module.extractor.requires_grad_(job.train != "head")
    module.head.requires_grad_(job.train != "extractor")
    optimizer = torch.optim.SGD(
        [p for p in module.parameters() if p.requires_grad],
        lr=job.training.rate,
        momentum=job.training.momentum,
        weight_decay=job.training.decay,
    )
    x = torch.from_numpy(data.samples.features / 255.0).float()
    for rows in batches:
        module.extractor.train(job.spec.batch_norm != "frozen" and len(rows) > 1)
        optimizer.zero_grad()
        F.cross_entropy(module(x[rows]), torch.from_numpy(data.samples.labels[rows])).backward()
        optimizer.step()
    return {n: a.numpy() for n, a in module.state_dict().items() if n in params}


@pytest.mark.parametrize("policy", ["frozen", "average", "local"])
@pytest.mark.parametrize("train", ["model", "extractor"])
def test_batch_norm_is_torchs_under_every_policy(policy, train):
    """Also with a last batch that is not full, or of one: padding must not show in statistics."""
    job = Job("fedavg", replace(NORMED, batch_norm=policy), SMALL, train)
    start = initial(job.model, None, 5)
    state, memories = run(job, PICTURES, Plan(rounds=1, clients=3), seed=1)
    ends = {}
    for who, own in PICTURES.items():
        batches = shuffle(secret_of(1, who), len(own.samples.labels), 1, 4, 0, 0)
        ends[who] = trained_alone(job, start, own, batches)
    sizes = {who: len(own.samples.labels) for who, own in PICTURES.items()}
    average = {
        name: sum(n * ends[who][name] for who, n in sizes.items()) / sum(sizes.values())
        for name in start
    }
    if policy != "average":
        average |= {name: start[name] for name in STATISTICS}
    assert_close(state.params, average)
    moved = policy != "frozen"
    assert all(np.array_equal(ends[w][STATISTICS[0]], start[STATISTICS[0]]) != moved for w in ends)
    for who, memory in memories.items():
        assert set(memory) == ({"personal"} if policy == "local" else set())
        if policy == "local":
            kept = dict(zip(STATISTICS, memory["personal"].reshape(2, 4), strict=True))
            assert_close(kept, {name: ends[who][name] for name in STATISTICS})


@pytest.mark.parametrize("policy", ["frozen", "average", "local"])
def test_silobn_learns_what_fedavg_learns_to_the_bit(policy):
    """Running statistics enter no gradient; SiloBN keeps them whatever the model says of them."""
    data, plan = images((8, 12, 4, 8), side=4), Plan(rounds=3, clients=3)
    training = Training(rate=0.1, epochs=2, batch=4, momentum=0.9)
    averaged = Job("fedavg", replace(NORMED, batch_norm="average"), training, "model")
    kept = Job("silobn", replace(NORMED, batch_norm=policy), training, "model")
    assert kept.spec.batch_norm == Job.of(kept.plain).spec.batch_norm == "local"
    theirs, none = run(averaged, data, plan)
    mine, memories = run(kept, data, plan)
    learned = sorted(averaged.names.learned)
    digests = [
        hashlib.sha256(b"".join(state.params[name].tobytes() for name in learned)).hexdigest()
        for state in (theirs, mine)
    ]
    assert digests[0] == digests[1]
    start = initial(kept.model, None, 5)
    for name in STATISTICS:
        assert np.array_equal(mine.params[name], start[name])
        assert not np.array_equal(theirs.params[name], start[name])
    assert not any(none.values())
    assert sum("personal" in memory for memory in memories.values()) >= 3


@pytest.mark.parametrize("policy", ["frozen", "average", "local"])
def test_a_head_that_trains_alone_leaves_batch_norm_as_it_is(policy):
    job = Job("fedavg", replace(NORMED, batch_norm=policy), SMALL, "head")
    start = initial(job.model, None, 5)
    state, memories = run(job, PICTURES, Plan(rounds=2, clients=3))
    assert {n for n in start if not np.array_equal(start[n], state.params[n])} == {
        "head.weight",
        "head.bias",
    }
    assert not any(memories.values())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedavgm", {}),
        ("fedadam", {}),
        ("fedadagrad", {"server_rate": 3.0}),
        ("fedyogi", {}),
        ("fedprox", {"mu": 5.0}),
        ("scaffold", {"server_rate": 0.5}),
        ("ditto", {}),
    ],
)
def test_running_statistics_are_averaged_whatever_the_server_does(name, settings):
    """Momentum, or a step of Adam's length, would make of a variance what no batch has."""
    spec, data = replace(NORMED, batch_norm="average"), images((8, 8, 8), side=4)
    plan = Plan(rounds=1, clients=3)
    once = replace(SMALL, batch=8)  # one step: gradients change nothing of the statistics
    mine, _ = run(Job(name, spec, once, "extractor", settings), data, plan)
    theirs, _ = run(Job("fedavg", spec, once, "extractor"), data, plan)
    for statistic in STATISTICS:
        assert np.array_equal(mine.params[statistic], theirs.params[statistic])
    assert not any(set(STATISTICS) & set(tree) for tree in mine.server.values())


@pytest.mark.parametrize("name", ["mime", "per-fedavg", "pfedme", "feddyn", "fedexp", "fedalt"])
def test_methods_that_look_elsewhere_keep_statistics_sound(name):
    """Gradients at other points than the model's update the client's own statistics only."""
    spec, plan = replace(NORMED, batch_norm="average"), Plan(rounds=4, clients=3)
    job = Job(name, spec, Training(rate=0.05, batch=4), "model")
    one = Simulator(fresh(PICTURES))
    state, _ = run(job, PICTURES, plan, federation=one)
    means, variances = (state.params[name] for name in STATISTICS)
    assert (variances > 0).all()
    x = np.concatenate([c.samples.features for c in PICTURES.values()])
    x = x.transpose(0, 2, 3, 1).reshape(-1, 3) / 255.0
    mixed = x @ state.params["extractor.mix.weight"][:, :, 0, 0].T
    inside = mixed + state.params["extractor.mix.bias"]
    assert (means > np.minimum(inside.min(axis=0), 0) - 0.1).all()
    assert (means < np.maximum(inside.max(axis=0), 0) + 0.1).all()
    alone, _ = run(job, PICTURES, plan, federation=Simulator(fresh(PICTURES), together=False))
    assert_close(state.params, alone.params)


def test_a_gradient_elsewhere_leaves_the_received_model_alone():
    """What a client sends is its model less the received one: the latter may not move meanwhile."""
    job = Job("mime", replace(NORMED, batch_norm="average"), SMALL, "model")
    params = initial(job.model, None, 5)
    zeros = {name: params[name] * 0 for name in job.names.steered}
    told = {"momentum": zeros, "gradient": zeros}
    words = steps.broadcast(job, params, told, np.arange(3))
    before = {key: array.copy() for key, array in words.items()}
    heard = steps.decode_broadcast(job, words, 0)
    kept = {name: array.clone() for name, array in heard.params.items()}
    ((_, group),) = steps.groups(job, {"a": PICTURES["c00"]}, np.arange(3))
    with torch.no_grad():
        trained = steps.train(job, group, heard, [PICTURES["c00"]])
    assert all(torch.equal(array, kept[name]) for name, array in heard.params.items())
    assert not torch.equal(trained.params[STATISTICS[0]], kept[STATISTICS[0]])
    assert_same(before, words)


def test_batch_norm_sees_no_more_than_its_half():
    model = Model(replace(NORMED, batch_norm="average"))
    start = {n: torch.from_numpy(a)[None] for n, a in initial(model, None, 5).items()}
    own = PICTURES["c00"]
    x, y = model.inputs(own.samples.features)[None], torch.from_numpy(own.samples.labels)[None]
    learned = [name for name in start if name not in STATISTICS]
    found = []
    for batch in (
        Batch(x, y, torch.full((1, 6), 1 / 6)).half(1),
        Batch(x[:, 1::2], y[:, 1::2], torch.full((1, 3), 1 / 3)),
    ):
        params = {name: array.clone() for name, array in start.items()}
        slopes = model.gradient(CROSS_ENTROPY, params, learned, batch)
        found.append({**params, **slopes})
    assert not torch.equal(found[0][STATISTICS[0]], start[STATISTICS[0]])
    for name, array in found[0].items():
        torch.testing.assert_close(array, found[1][name], rtol=1e-5, atol=1e-6)


ANY_SIZE = [
    n for n, known in NETWORKS.items() if known.any_size and not known.stride and n not in OWN
]


@pytest.mark.parametrize("name", ANY_SIZE)
def test_every_parameter_of_an_extractor_takes_part(name):
    """A published network brings its own classifier, which is no part of φ."""
    module = networks.module_of(name).eval()
    found = module(torch.rand(1, 3, 32, 32))
    assert found.shape == (1, NETWORKS[name].dimension)
    torch.autograd.grad(found.sum(), list(module.parameters()))  # refuses an unused one


@pytest.mark.parametrize(
    ("name", "parameters", "millions"),
    [
        # convolutions (9·in·out) and biases; each channel (9) and point by point, twice a norm; …
        ("vgg11", 9_220_480, 152.8),
        ("mobilenet", 3_206_976, 46.3),
        ("resnet18_32", 11_168_832, 555.4),
    ],
)
def test_our_networks_are_those_of_their_papers(name, parameters, millions):
    """Known sizes without the classifier, and multiply-adds at 32 pixels."""
    module = networks.module_of(name)
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert extractor_flops(name, (3, 32, 32)) / 1e6 == pytest.approx(millions, rel=1e-3)


@pytest.mark.parametrize("name", [n for n, network in NETWORKS.items() if not network.any_size])
def test_nor_is_there_a_classifier_where_images_must_be_large(name):
    with torch.device("meta"):
        module = networks.module_of(name)
        published = NETWORKS[name].build()
    assert any(1000 in parameter.shape for parameter in published.parameters())
    assert not any(1000 in parameter.shape for parameter in module.parameters())


def test_a_published_network_trains_and_sees_normalized_images():
    spec = Spec(2, 1280, network="mobilenet_v2", batch_norm="local")
    job = Job("fedavg", spec, Training(rate=0.01, batch=2), "model")
    data = images((3,), side=32, classes=2)
    start = initial(job.model, None, 5)
    state, memories = run(job, data, Plan(rounds=1, clients=1))
    learned = [n for n in start if n not in job.model.statistics]
    assert all(not np.array_equal(start[n], state.params[n]) for n in learned)
    assert all(np.array_equal(start[n], state.params[n]) for n in job.model.statistics)
    assert len(memories["c00"]["personal"]) == sum(start[n].size for n in job.model.statistics)
    usual = NETWORKS["mobilenet_v2"].preprocess
    x = data["c00"].samples.features.transpose(0, 2, 3, 1)
    x = (x / 255.0 - usual.mean) / usual.std
    module = networks.module_of("mobilenet_v2").eval()
    expected = module(torch.from_numpy(x.transpose(0, 3, 1, 2)).float())
    tensors = {name: torch.from_numpy(array)[None] for name, array in start.items()}
    found = job.model.features(tensors, job.model.inputs(data["c00"].samples.features)[None])
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)


# -- at home ---------------------------------------------------------------------------------------

CLASSES = np.array([2, 5, 7, 9])


def at_work(sizes=(12, 5, 1, 0), seed=3):
    """Clients with tests, some of whose classes they never trained on, or nobody did."""
    rng = np.random.default_rng(seed)
    data = {}
    for k, n in enumerate(sizes):
        y = rng.choice(CLASSES[: 2 + k % 3], n + 8)
        x = (rng.normal(size=(n + 8, 3)) + y[:, None] / 3).astype(np.float32)
        y[-1] = 100
        data[f"c{k}"] = ClientData(ArraySamples(x[:n], y[:n]), ArraySamples(x[n:], y[n:]))
    return data


def asked(job, home, data, params, *, outside=None, together=True, begin_with=None):
    words = steps.broadcast(job, params, {}, CLASSES)
    if outside is not None:
        words |= {"outside/features": outside[0], "outside/labels": outside[1]}
    sim = Simulator(data, seed=6, together=together)
    step = fine_tune_locally(job, home, *([begin_with] if begin_with else []))
    return {who: results(values) for who, values in tallies(sim, step, words).items()}


def head_scores(params, x):
    return x @ params["head.weight"].T + params["head.bias"]


JOB = Job("fedavg", Spec(4, 3), Training(rate=0.3, batch=4, decay=0.01, momentum=0.9))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("oll", [True, False])
def test_before_is_the_plain_accuracy(together, oll):
    data, params = at_work(), initial(JOB.model, None, 1)
    found = asked(JOB, FineTuning(oll=oll), data, params, together=together)
    for who, (tested, hits) in found.items():
        own = data[who]
        assert hits.shape == (1, 3)
        if not len(own.samples.labels):
            assert not tested.any()
            assert not hits.any()
            continue
        scores = head_scores(params, own.test.features)
        if oll:
            scores[:, ~np.isin(CLASSES, own.samples.labels)] = -np.inf
        right = CLASSES[scores.argmax(axis=1)] == own.test.labels
        assert tested.tolist() == [8, 0, 0]
        assert hits[0].tolist() == [right.sum(), 0, 0]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("oll", [True, False])
def test_fedgela_is_tested_at_home_with_the_clients_own_frame(together, oll):
    """Every class vector scaled by C·n_kc/n_k, as in training; also of a model trained further."""
    data, params = at_work(), initial(JOB.model, None, 1)
    job = replace(JOB, algorithm="fedgela", training=Training(rate=1e-9, batch=4, decay=0.0))
    found = asked(job, FineTuning(1, oll=oll), data, params, together=together)
    plain = asked(JOB, FineTuning(oll=oll), data, params, together=together)
    assert any((hits[0] != plain[who][1][0]).any() for who, (_, hits) in found.items())
    for who in ("c0", "c1", "c2"):
        own = data[who]
        shares = np.array([(own.samples.labels == one).mean() for one in CLASSES])
        scores = 4 * shares * head_scores(params, own.test.features)
        if oll:
            scores[:, shares == 0] = -np.inf
        right = CLASSES[scores.argmax(axis=1)] == own.test.labels
        assert found[who][1][:, 0].tolist() == [right.sum()] * 2


def trained_at_home(own, who, params, epochs, *, oll=False, pull=0.0):
    """nn.Linear and torch's SGD, one optimizer for all epochs; the models along the way."""
    layer = nn.Linear(3, 4)
    layer.load_state_dict({n[5:]: torch.from_numpy(a.copy()) for n, a in params.items()})
    start = [p.detach().clone() for p in layer.parameters()]
    t = JOB.training
    optimizer = torch.optim.SGD(
        layer.parameters(), lr=t.rate, momentum=t.momentum, weight_decay=t.decay
    )
    x, y = (
        torch.from_numpy(own.samples.features),
        torch.from_numpy(np.searchsorted(CLASSES, own.samples.labels)),
    )
    mask = torch.zeros(4)
    if oll:
        mask[torch.from_numpy(~np.isin(CLASSES, own.samples.labels))] = -torch.inf
    found = []
    for epoch in range(epochs):
        for rows in shuffle(secret_of(6, who), len(y), 1, t.batch, -2, epoch):
            optimizer.zero_grad()
            away = sum(((p - s) ** 2).sum() for p, s in zip(layer.parameters(), start, strict=True))
            loss = F.cross_entropy(layer(x[rows]) + mask, y[rows]) + pull / 2 * away
            loss.backward()
            optimizer.step()
        found.append({f"head.{n}": p.detach().numpy().copy() for n, p in layer.named_parameters()})
    return found


def stages(monkeypatch, job, home, data, params, **how):
    """The models that are tested, by client and test."""
    found, hits = {}, local_.Tested.hits

    def watched(self, job, own, mask):
        who = next(w for w, c in data.items() if c.test.features is self.own.features)
        model = {name: array[0].numpy().copy() for name, array in own.items()}
        found.setdefault(who, []).append(model)
        return hits(self, job, own, mask)

    monkeypatch.setattr(local_.Tested, "hits", watched)
    asked(job, home, data, params, **how)
    return found


@pytest.mark.parametrize("method", ["sgd", "ditto"])
@pytest.mark.parametrize("oll", [True, False])
@pytest.mark.parametrize("every_epoch", [True, False])
def test_training_at_home_is_a_loop_of_torch(monkeypatch, method, oll, every_epoch):
    data, params = at_work(), initial(JOB.model, None, 1)
    home = FineTuning(3, method, oll, strength=0.7, every_epoch=every_epoch)
    found = stages(monkeypatch, JOB, home, data, params)
    assert set(found) == {"c0", "c1", "c2"}
    for who, models_ in found.items():
        pull = 0.7 if method == "ditto" else 0.0
        expected = trained_at_home(data[who], who, params, 3, oll=oll, pull=pull)
        assert_same(models_[0], params)
        after = expected if every_epoch else expected[-1:]
        assert len(models_) == 1 + len(after) == home.tests
        for one, two in zip(models_[1:], after, strict=True):
            assert_close(one, two)


def test_at_home_the_pull_of_the_training_goes_on(monkeypatch):
    data, params = at_work(), initial(JOB.model, None, 1)
    job = replace(JOB, algorithm="fedprox", settings={"mu": 0.4})
    for method, pull in (("sgd", 0.4), ("ditto", 1.1)):
        found = stages(monkeypatch, job, FineTuning(3, method, strength=0.7), data, params)
        for who, (_, after) in found.items():
            assert_close(after, trained_at_home(data[who], who, params, 3, pull=pull)[-1])
        monkeypatch.undo()


def test_the_angle_of_what_has_not_moved_is_none_and_small_ones_are_seen():
    f = torch.tensor([[0.3, 0.4, 0.5], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    near = f.clone()
    near[2, 1], near[3] = 1e-5, torch.tensor([0.0, 3.0, 0.0])
    *_, distance, angle = diagnose._measures((f, f), (near, f), torch.zeros(4, dtype=torch.long))
    assert angle[:2].tolist() == distance[:2].tolist() == [0, 0]
    assert angle[2:].tolist() == pytest.approx([math.degrees(1e-5), 90.0], rel=1e-3)


def test_a_weighted_loss_of_a_head_needs_no_autograd():
    model, batch, params = Model(Spec(3, 4)), batch_of(), params_of()
    half = (Term("cross-entropy", 0.5),)
    found = each(whole, model.gradient(half, params, params, batch))
    full = each(whole, model.gradient(CROSS_ENTROPY, params, params, batch))
    assert isinstance(model.gradient(half, params, params, batch)["head.weight"], Product)
    for n in params:
        torch.testing.assert_close(2 * found[n], full[n], rtol=1e-6, atol=1e-7)


def test_a_strong_pull_keeps_the_model_where_it_is(monkeypatch):
    data, params = at_work(), initial(JOB.model, None, 1)
    job = replace(JOB, training=Training(rate=1e-4, batch=4, decay=0.0))
    gaps = []
    for strength in (0.0, 9e3):
        home = FineTuning(20, "ditto", strength=strength)
        last = stages(monkeypatch, job, home, data, params)["c0"][-1]
        gaps.append(max(np.abs(last[n] - params[n]).max() for n in params))
        monkeypatch.undo()
    assert gaps[1] < 0.2 * gaps[0]
    assert gaps[1] < 2e-4


def test_classes_a_client_lacks_are_never_predicted_and_move_by_decay_alone(monkeypatch):
    data, params = at_work(), initial(JOB.model, None, 1)
    training = Training(rate=0.3, batch=4, decay=0.01)
    job, home = replace(JOB, training=training), FineTuning(2, oll=True, every_epoch=True)
    found = stages(monkeypatch, job, home, data, params)
    for who, models_ in found.items():
        own = data[who]
        absent = ~np.isin(CLASSES, own.samples.labels)
        assert absent.any()
        a_epoch = -(-len(own.samples.labels) // 4)
        for epoch in (1, 2):
            left = (1 - 0.3 * 0.01) ** (epoch * a_epoch)
            for name, array in models_[epoch].items():
                np.testing.assert_allclose(array[absent], params[name][absent] * left, rtol=1e-5)
    sizes, hits = asked(job, FineTuning(2, oll=True), data, params, outside=everywhere())["c0"]
    assert sizes[2] > 0
    assert (hits[:, 2] == 0).all()
    _, open_hits = asked(job, FineTuning(2), data, params, outside=everywhere())["c0"]
    assert open_hits[0, 2] > 0  # without OLL the others can be predicted


def everywhere(n=60, seed=8):
    """An outside test set, with a class that nobody knows."""
    rng = np.random.default_rng(seed)
    y = rng.choice([*CLASSES, 50], n)
    return (rng.normal(size=(n, 3)) + y[:, None] / 3).astype(np.float32), y


@pytest.mark.parametrize("together", [True, False])
def test_the_outside_test_set_is_split_into_local_and_absent_classes(monkeypatch, together):
    data, params = at_work(), initial(JOB.model, None, 1)
    home, (x, y) = FineTuning(3, every_epoch=True), everywhere()
    found = asked(JOB, home, data, params, outside=(x, y), together=together)
    models_ = stages(monkeypatch, JOB, home, data, params, outside=(x, y), together=together)
    for who in models_:
        tested, hits = found[who]
        local = np.isin(y, data[who].samples.labels)
        assert tested.tolist() == [8, local.sum(), (~local).sum()]
        assert hits.shape == (1 + 3, 3)
        for row, model in zip(hits, models_[who], strict=True):
            right = CLASSES[head_scores(model, x).argmax(axis=1)] == y
            own = CLASSES[head_scores(model, data[who].test.features).argmax(axis=1)]
            plain = (own == data[who].test.labels).sum()
            assert row.tolist() == [plain, (right & local).sum(), (right & ~local).sum()]
    tested, hits = found["c3"]  # no samples, no classes, no tests
    assert hits.shape == (4, 3)
    assert not tested.any()


def test_clients_begin_at_home_with_the_model_they_keep(monkeypatch):
    """Ditto's private model; the personal part; and the first steps of Per-FedAvg and pFedMe."""
    data, training = at_work((12, 5)), Training(rate=0.3, batch=40, decay=0.0)
    spec, start = Spec(4, 3), initial(JOB.model, None, 1)
    rng = np.random.default_rng(0)
    own = {who: rng.normal(size=16).astype(np.float32) for who in data}
    for name, kind in (("ditto", "copy"), ("local-only", "personal")):
        for who, client in data.items():
            client.memory.clear()
            client.memory[kind] = own[who]
        found = stages(monkeypatch, Job(name, spec, training), FineTuning(), data, start)
        monkeypatch.undo()
        for who in data:
            assert np.array_equal(flat(found[who][0], ("head.weight", "head.bias")), own[who])
    steps_ = {"per-fedavg": ({"alpha": 0.04}, 0.04), "pfedme": ({"inner_rate": 0.07}, 0.07)}
    for name, (settings, length) in steps_.items():
        found = stages(
            monkeypatch, Job(name, spec, training, settings=settings), FineTuning(), data, start
        )
        monkeypatch.undo()
        for who, client in data.items():
            layer = nn.Linear(3, 4)
            layer.load_state_dict({n[5:]: torch.from_numpy(a.copy()) for n, a in start.items()})
            y = torch.from_numpy(np.searchsorted(CLASSES, client.samples.labels))
            F.cross_entropy(layer(torch.from_numpy(client.samples.features)), y).backward()
            slopes = {"head.weight": layer.weight.grad, "head.bias": layer.bias.grad}
            stepped = {n: start[n] - length * slopes[n].numpy() for n in start}
            assert_close(found[who][0], stepped)  # of length α or the inner rate, not η


def test_a_pull_at_home_is_to_the_clients_own_part(monkeypatch):
    """pFedMe's inner steps: both parts are held to where they begin, the personal one to itself."""
    data = at_work((12, 5))
    settings = {"personal": "head", "strength": 3.0, "inner_rate": 0.07}
    training = Training(rate=0.3, batch=4, decay=0.0)
    job = Job("pfedme", Spec(4, 1, network="testing-scale"), training, "model", settings)
    start, rng = initial(job.model, None, 1), np.random.default_rng(0)
    for client in data.values():
        client.memory["personal"] = rng.normal(size=8).astype(np.float32)
    found = stages(monkeypatch, job, FineTuning(), data, start)
    for who, client in data.items():
        scale = torch.from_numpy(start["extractor.scale"].copy()).requires_grad_()
        own = torch.from_numpy(client.memory["personal"].copy()).requires_grad_()
        begun = [scale.detach().clone(), own.detach().clone()]
        x = torch.from_numpy(client.samples.features[:, 0])
        y = torch.from_numpy(np.searchsorted(CLASSES, client.samples.labels))
        for rows in shuffle(secret_of(6, who), len(y), 1, 4, -1):
            logits = scale * x[rows, None] * own[:4] + own[4:]
            slopes = torch.autograd.grad(F.cross_entropy(logits, y[rows]), [scale, own])
            with torch.no_grad():
                for at, slope, first in zip([scale, own], slopes, begun, strict=True):
                    at -= 0.07 * (slope + 3.0 * (at - first))
        model = found[who][0]
        got = np.concatenate([model["extractor.scale"], flat(model, ("head.weight", "head.bias"))])
        np.testing.assert_allclose(got, torch.cat([scale, own]).detach(), rtol=1e-5, atol=1e-6)


def test_nan_at_home_is_named():
    job = replace(JOB, training=Training(rate=1e25, batch=4, decay=1.0))
    with pytest.raises(HeadstartError, match=r"at home, epoch \d+: .* learning rate 1e\+25"):
        asked(job, FineTuning(3), at_work(), initial(JOB.model, None, 1))


# -- arrays and models -----------------------------------------------------------------------------


def test_a_vector_of_parameters_goes_both_ways():
    model = Model(NORMED)
    params = initial(model, None, 3)
    names = model.part("model")
    assert_same(shaped(flat(params, names), names, model.shapes), params)
    with pytest.raises(HeadstartError, match=r"parameters: expected \d+ numbers, got 7"):
        shaped(np.zeros(7), names, model.shapes)


def test_a_training_begins_with_a_closed_form_head():
    data = vectors((40,))["c00"]
    head = Fed3R().solve(Fed3R().measure(*data.samples.read()))
    params = initial(Model(Spec(3, 3)), head, 0)
    found = head_scores(params, data.samples.features)
    np.testing.assert_allclose(found, head.scores(data.samples.features), rtol=1e-5, atol=1e-6)
    with pytest.raises(HeadstartError, match="head: expected classes × dimension"):
        initial(Model(Spec(4, 3)), head, 0)


def test_labels_may_be_any_and_strangers_are_named():
    data = vectors((9, 5))
    text = {
        w: replace(c, samples=c.samples.relabelled(np.array(["a", "b", "c"])[c.samples.labels]))
        for w, c in data.items()
    }
    job = Job("fedavg", Spec(3, 3))
    start = begin(job, initial(job.model, None, 5))
    plan = Plan(clients=2)
    words = one_round(job, plan, Simulator(text, seed=1), np.array(["a", "b", "c"]), start)
    numbers = one_round(job, plan, Simulator(fresh(data), seed=1), np.arange(3), start)
    assert_same(words.params, numbers.params)
    with pytest.raises(DataError, match="labels: expected one of the model's 3, got 'c'"):
        one_round(job, plan, Simulator(text), np.array(["a", "b", "d"]), start)


def test_features_in_bytes_are_features():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 17, (6, 3), dtype=np.uint8)
    found = Model(Spec(3, 3)).inputs(small)
    assert found.dtype == torch.float32
    assert found.tolist() == small.tolist()


MISTAKES = {
    "rate: expected a number above 0, got -0.1": lambda: Training(rate=-0.1),
    "rate: expected a number above 0, got 0": lambda: Training(rate=0),
    "rate: .* got nan": lambda: Training(rate=float("nan")),
    "epochs: expected a whole number of at least 1, got 0": lambda: Training(epochs=0),
    "batch: expected a whole number of at least 1, got 0": lambda: Training(batch=0),
    "batch: .* got 2.5": lambda: Training(batch=2.5),
    "decay: expected a number of at least 0": lambda: Training(decay=-1.0),
    "momentum: expected a number of at least 0 and below 1, got 1": lambda: Training(momentum=1.0),
    "rounds: .* got -1": lambda: Plan(rounds=-1),
    "clients: .* at least 1, got 0": lambda: Plan(clients=0),
    "seed: .* got -1": lambda: Plan(seed=-1),
    "window: .* got -1": lambda: Plan(window=-1),
    "patience: .* got 1.5": lambda: Plan(patience=1.5),
    "drops: .* got -2": lambda: Plan(drops=(3, -2)),
    "drop: .* above 0, got 0": lambda: Plan(drop=0.0),
    "clients: expected at most the federation's 3 per round, got 4": lambda: run(
        Job("fedavg", Spec(3, 3)), vectors((2, 2, 2)), Plan(clients=4)
    ),
    "epochs: .* at least 0, got -1": lambda: FineTuning(epochs=-1),
    "method: expected one of sgd, ditto, got 'adam'": lambda: FineTuning(method="adam"),
    "oll: expected true or false, got 1": lambda: FineTuning(oll=1),
    "strength: .* got -1": lambda: FineTuning(strength=-1.0),
    "every_epoch: .* got 'no'": lambda: FineTuning(every_epoch="no"),
    "classes: .* got 0": lambda: Spec(0, 3),
    "dimension: .* got 0": lambda: Spec(3, 0),
    "temperature: .* got 0": lambda: Spec(3, 3, temperature=0.0),
    "batch_norm: expected one of frozen, average, local, got 'on'": lambda: Spec(
        3, 3, batch_norm="on"
    ),
    "dimension: expected the feature map's 8, got 3": lambda: Spec(3, 3, feature_map=(8, 1.0, 0)),
    "dimension: expected 128 for small_cnn, got 64": lambda: Model(Spec(3, 64, "small_cnn")),
    "network: expected one of .*, small_cnn, .*, got 'resnet9000'": lambda: Model(
        Spec(3, 3, "resnet9000")
    ),
    "train: expected one of model, extractor, head, got 'body'": lambda: Job(
        "fedavg", Spec(3, 3), train="body"
    ),
    "train: this model has no extractor": lambda: (
        Job("fedavg", Spec(3, 3), train="extractor").names
    ),
    r"personal: expected a part of what trains \(head\), got all of it \(head\)": lambda: (
        Job("fedper", Spec(3, 3)).names
    ),
    r"personal: .* \(model\), got all of it \(head\)": lambda: (
        Job("fedalt", Spec(3, 3), train="model").names
    ),
    "personal: .* that is local-only": lambda: (
        Job("fedsim", NORMED, train="extractor", settings={"personal": "extractor"}).names
    ),
    "method: expected one of": lambda: Job("adam", Spec(3, 3)),
    "mu: expected": lambda: Job("fedprox", Spec(3, 3), settings={"mu": -1}),
    "classes: expected the model's 4, got 3": lambda: steps.broadcast(
        JOB, initial(JOB.model, None, 0), {}, np.arange(3)
    ),
    r"head.bias: expected an array of shape \(4,\), got none": lambda: begin(
        JOB, {"head.weight": np.zeros((4, 3))}
    ),
    r"head.weight: expected an array of shape \(4, 3\), got \(3, 4\)": lambda: begin(
        JOB, {"head.weight": np.zeros((3, 4)), "head.bias": np.zeros(4)}
    ),
    r"features: expected n×3, got shape \(4, 5\)": lambda: Model(Spec(3, 3)).inputs(
        np.zeros((4, 5))
    ),
    r"images: expected n×3×h×w bytes, got shape \(2, 8, 8, 3\)": lambda: Model(NORMED).inputs(
        np.zeros((2, 8, 8, 3), np.uint8)
    ),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_named(words):
    with pytest.raises(HeadstartError, match=words):
        MISTAKES[words]()


def test_a_network_by_another_name_is_not_this_one():
    assert models.build(NORMED) is models.build(Spec.of(NORMED.plain()))
    assert models.build(NORMED) is not models.build(replace(NORMED, batch_norm="local"))
