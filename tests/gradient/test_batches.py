"""Batches: every epoch has every sample once, in an order that only the secret and the key say."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headstart.data.samples import ArraySamples
from headstart.federation.simulator import Simulator
from headstart.gradient import engine, steps
from headstart.gradient.engine import Group, TrainingSet
from headstart.gradient.models import Spec, flat, initial
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    vectors,
)

from .helpers import shuffle


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
