"""The engine against loops of torch, and the same bits whatever the threads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator, secret_of
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.models import Spec, initial
from headstart.gradient.recipe import RoundAggregate
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    assert_close,
    assert_same,
    fresh,
    run,
    vectors,
)

from .helpers import shuffle


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
