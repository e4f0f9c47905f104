"""Local fine-tuning against a loop of torch, and what is measured before, during and after it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headstart import HeadstartError
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import secret_of
from headstart.gradient import diagnose
from headstart.gradient import local as local_
from headstart.gradient.engine import Training
from headstart.gradient.local import FineTuning
from headstart.gradient.models import Model, Spec, flat, initial
from headstart.gradient.product import Product, whole
from headstart.gradient.recipe import CROSS_ENTROPY, Term
from headstart.gradient.steps import Job
from headstart.gradient.tree import each
from headstart.testing.federations import (
    assert_close,
    assert_same,
)

from .helpers import CLASSES, JOB, asked, batch_of, head_scores, params_of, shuffle


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
    found, hits = {}, local_.TestParts.hits

    def watched(self, job, own, mask):
        who = next(w for w, c in data.items() if c.test.features is self.own.features)
        model = {name: array[0].numpy().copy() for name, array in own.items()}
        found.setdefault(who, []).append(model)
        return hits(self, job, own, mask)

    monkeypatch.setattr(local_.TestParts, "hits", watched)
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
