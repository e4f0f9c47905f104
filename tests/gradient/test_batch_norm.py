"""Batch norm is that of torch under every policy, and its statistics stay sound."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headstart.federation.simulator import Simulator, secret_of
from headstart.gradient import steps
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan
from headstart.gradient.models import Batch, Model, initial
from headstart.gradient.recipe import CROSS_ENTROPY
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    assert_close,
    assert_same,
    fresh,
    images,
    run,
)

from .helpers import NORMED, OWN, shuffle

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
    state = {"momentum": zeros, "gradient": zeros}
    broadcast = steps.broadcast(job, params, state, np.arange(3))
    before = {key: array.copy() for key, array in broadcast.items()}
    received = steps.decode_broadcast(job, broadcast, 0)
    kept = {name: array.clone() for name, array in received.params.items()}
    ((_, group),) = steps.groups(job, {"a": PICTURES["c00"]}, np.arange(3))
    with torch.no_grad():
        trained = steps.train(job, group, received, [PICTURES["c00"]])
    assert all(torch.equal(array, kept[name]) for name, array in received.params.items())
    assert not torch.equal(trained.params[STATISTICS[0]], kept[STATISTICS[0]])
    assert_same(before, broadcast)


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
