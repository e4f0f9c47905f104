"""Dense models in the engine: cells, the loss of pixels, a round by torch's own modules."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from headstart.data.backbones.catalogue import NETWORKS, Network
from headstart.data.samples import ArraySamples
from headstart.errors import DataError, HeadstartError
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import secret_of
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan
from headstart.gradient.models import Batch, Model, Spec, initial
from headstart.gradient.networks import module_of
from headstart.gradient.pixel_losses import VOID, with_auxiliary
from headstart.gradient.recipe import CROSS_ENTROPY, Local, Term
from headstart.gradient.segmenting import predicted_masks, with_measured_statistics
from headstart.gradient.steps import Job
from headstart.testing.federations import assert_close, images, run

from .helpers import shuffle

CLASSES, SIDE = 3, 8


class Tiny(nn.Module):
    """Cells of 4 pixels, with batch norm and an auxiliary head at stride 2."""

    def __init__(self, classes=None):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(4, 5, 3, 2, 1), nn.BatchNorm2d(5), nn.ReLU())
        self.auxiliary = nn.ModuleList([nn.Conv2d(4, classes, 1)] if classes else [])

    def forward(self, x, auxiliary=False):
        early = self.first(x)
        cells = self.second(early)
        return (cells, [self.auxiliary[0](early)]) if auxiliary else cells


@pytest.fixture(scope="module", autouse=True)
def tiny():
    network = Network("tiny-dense", "for tests", 5, module=Tiny, stride=4)
    NETWORKS.add(network, place="tests:tiny-dense")


TINY = Spec(CLASSES, 5, network="tiny-dense", batch_norm="average", hardest=0.25)
QUICK = Training(rate=0.1, epochs=2, batch=4, momentum=0.9, decay=0.01)


def scenes(sizes=(8, 4, 12), side=SIDE, seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"c{k:02d}": ClientData(
            ArraySamples(
                rng.integers(0, 256, (n, 3, side, side), dtype=np.uint8),
                rng.integers(VOID, CLASSES, (n, side, side)).astype(np.int16),
            )
        )
        for k, n in enumerate(sizes)
    }


def tensors(arrays):
    return {name: torch.from_numpy(array.copy())[None] for name, array in arrays.items()}


# -- by torch's own modules ------------------------------------------------------------------------


class Whole(nn.Module):
    """φ and ψ as one module: ψ is a 1×1 convolution."""

    def __init__(self, params):
        super().__init__()
        self.extractor = Tiny(CLASSES)
        own = {
            n.removeprefix("extractor."): torch.from_numpy(a.copy())
            for n, a in params.items()
            if n.startswith("extractor.")
        }
        self.extractor.load_state_dict(own, strict=False)
        self.head = nn.Conv2d(5, CLASSES, 1)
        self.head.weight.data = torch.from_numpy(params["head.weight"].copy())[..., None, None]
        self.head.bias.data = torch.from_numpy(params["head.bias"].copy())

    def loss(self, x, masks, share):
        cells, auxiliary = self.extractor(x, True)
        total = 0
        for scores in (self.head(cells), *auxiliary):
            large = F.interpolate(scores, masks.shape[1:], mode="bilinear", align_corners=False)
            each = F.cross_entropy(large, masks, ignore_index=VOID, reduction="none").flatten(1)
            count = int(share * each.shape[1])
            total = total + each.sort(dim=1, descending=True).values[:, :count].mean()
        return total

    def arrays(self):
        found = {f"extractor.{n}": a.numpy() for n, a in self.extractor.state_dict().items()}
        head = {"head.weight": self.head.weight[..., 0, 0], "head.bias": self.head.bias}
        return {**found, **{n: a.detach().numpy() for n, a in head.items()}}


def test_a_round_is_torchs_own():
    """FedAvg of clients that descend the hardest quarter with the auxiliary head, by SGD."""
    job, data = Job("fedavg", TINY, QUICK, "model"), scenes()
    start = initial(job.model, None, 5)
    state, _ = run(job, data, Plan(rounds=1, clients=3), seed=1)
    ends, sizes = {}, {}
    usual = NETWORKS["tiny-dense"].preprocess
    mean, std = (torch.tensor(part).view(1, 3, 1, 1) for part in (usual.mean, usual.std))
    for who, own in data.items():
        whole = Whole(start).train()
        optimizer = torch.optim.SGD(
            whole.parameters(), QUICK.rate, QUICK.momentum, weight_decay=QUICK.decay
        )
        x = (torch.from_numpy(own.samples.features).float() / 255 - mean) / std
        masks = torch.from_numpy(own.samples.labels).long()
        sizes[who] = len(x)
        for rows in shuffle(secret_of(1, who), len(x), QUICK.epochs, QUICK.batch, 0, 0):
            optimizer.zero_grad()
            whole.loss(x[rows], masks[rows], 0.25).backward()
            optimizer.step()
        ends[who] = whole.arrays()
    expected = {
        name: sum(n * ends[who][name] for who, n in sizes.items()) / sum(sizes.values())
        for name in start
    }
    assert_close(state.params, expected, 1e-4)
    assert not np.allclose(
        state.params["extractor.auxiliary.0.weight"], start["extractor.auxiliary.0.weight"]
    )


def test_cells_are_rows_in_the_order_of_images_rows_and_columns():
    model = Model(TINY)
    params = tensors(initial(model, None, 0))
    x = torch.from_numpy(scenes()["c00"].samples.features)
    features, grid, auxiliary = model.cells(params, x[None])
    assert (features.shape, grid, auxiliary) == ((1, 8 * 4, 5), (2, 2), ())
    alone = model.features(params, x[None, 3:4])
    torch.testing.assert_close(alone[0], features[0, 12:16])
    maps = model.seen(params, Batch(x[None], torch.zeros(1, 8, SIDE, SIDE), torch.ones(1, 8)))
    scores = model.logits(params, features)[0]
    torch.testing.assert_close(maps.maps()[3, :, 1, 0], scores[14])


@pytest.mark.parametrize("train", ["model", "extractor", "head"])
def test_slopes_are_finite_differences(train):
    """Cross-entropy of pixels and terms of cells, in the mode in which nothing is normalized."""
    spec = replace(TINY, batch_norm="frozen", hardest=None)
    model = Model(spec)
    params, given = (tensors(initial(model, None, seed)) for seed in (0, 1))
    samples = scenes()["c01"].samples
    x = torch.from_numpy(samples.features / 255.0).float()[None]
    batch = Batch(x, torch.from_numpy(samples.labels)[None], torch.full((1, 4), 0.25))
    names = [n for n in model.part(train) if n not in model.statistics]
    objective = (Term("cross-entropy"), Term("kd", 0.5, 2.0), Term("fd", 0.3), Term("ld", 0.2))
    local = Local(given, {}, {}, 0.1)
    slopes = model.gradient(objective, params, names, batch, local)
    rng = np.random.default_rng(2)
    way = {n: torch.from_numpy(rng.normal(size=params[n].shape)) for n in names}
    double = {n: a.double() for n, a in params.items()}
    twice = replace(batch, x=x.double(), weights=batch.weights.double())
    far = Local({n: a.double() for n, a in given.items()}, {}, {}, 0.1)
    ends = []
    for sign in (1, -1):
        at = {**double, **{n: double[n] + sign * 1e-6 * way[n] for n in names}}
        ends.append(float(model.value(objective, at, twice, far, train != "head")))
    found = sum(float((slopes[n].double() * way[n]).sum()) for n in names)
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3, abs=1e-4)
    assert abs(found) > 1e-3


def test_images_are_weighted_and_auxiliary_heads_take_part_in_training_only():
    model = Model(TINY)
    params = tensors(initial(model, None, 0))
    samples = scenes()["c01"].samples
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4]])
    x, y = (torch.from_numpy(part)[None] for part in (samples.features, samples.labels))
    batch = Batch(x, y, weights)
    tested = model.value(CROSS_ENTROPY, params, batch)
    seen = model.seen(params, batch)
    each = with_auxiliary(seen.maps(), [], y[0], 0.25)
    torch.testing.assert_close(tested, (each * weights[0]).sum())
    trained = model.value(CROSS_ENTROPY, params, batch, training=True)
    assert trained > 1.5 * tested


# -- SiloBN ----------------------------------------------------------------------------------------


def digest(state, names):
    return hashlib.sha256(b"".join(state.params[n].tobytes() for n in sorted(names))).hexdigest()


@pytest.mark.parametrize(("network", "side"), [("tiny-dense", SIDE), ("bisenetv2_quarter", 32)])
def test_fedavg_and_silobn_learn_the_same_to_the_bit(network, side):
    """One training fills both rows of a table: only what a test normalizes with differs."""
    spec = replace(TINY, network=network, dimension=NETWORKS[network].dimension)
    data, states = scenes((4, 4, 4), side), {}
    training = Training(rate=0.05, epochs=1, batch=2)
    for name in ("fedavg", "silobn"):
        torch.rand(1)  # whatever others have drawn: dropout depends on the client's key alone
        job = Job(name, spec, training, "model")
        states[name], _ = run(job, data, Plan(rounds=2, clients=2))
    learned = job.names.learned
    assert digest(states["fedavg"], learned) == digest(states["silobn"], learned)
    kept = sorted(job.model.statistics)
    assert digest(states["fedavg"], kept) != digest(states["silobn"], kept)
    assert digest(states["silobn"], learned) != digest(
        replace(states["silobn"], params=initial(job.model, None, 5)), learned
    )


# -- masks, and what they are normalized with ------------------------------------------------------


@pytest.fixture
def trained():
    job = Job("fedavg", TINY, QUICK, "model")
    state, _ = run(job, scenes(), Plan(rounds=2, clients=3))
    return job.model, state.params


def test_masks_are_the_argmax_of_enlarged_scores(trained):
    model, params = trained
    images = scenes()["c00"].samples.features
    whole = Whole(params).eval()
    usual = NETWORKS["tiny-dense"].preprocess
    mean, std = (np.array(part).reshape(1, 3, 1, 1) for part in (usual.mean, usual.std))
    x = torch.from_numpy((images / 255 - mean) / std).float()
    for size in (None, (13, 21)):
        with torch.no_grad():
            scores = whole.head(whole.extractor(x))
            large = F.interpolate(scores, size or (SIDE, SIDE), mode="bilinear")
        found = predicted_masks(model, params, images, size)
        assert (found == large.argmax(dim=1).numpy()).mean() > 0.999
    with torch.no_grad():
        by_batch = whole.train().head(whole.extractor(x))
        large = F.interpolate(by_batch, (SIDE, SIDE), mode="bilinear")
    found = predicted_masks(model, params, images, statistics="batch")
    assert (found == large.argmax(dim=1).numpy()).mean() > 0.999
    again = predicted_masks(model, params, images)
    assert np.array_equal(again, predicted_masks(model, params, images))  # nothing was left behind


def test_statistics_are_those_of_all_images_in_any_order(trained):
    """Of the first layer, whose inputs no other norm has touched, exactly."""
    model, params = trained
    images = np.concatenate([client.samples.features for client in scenes().values()])
    blocks = [images[at : at + 6] for at in range(0, 24, 6)]
    one = with_measured_statistics(model, params, blocks)
    two = with_measured_statistics(model, params, blocks[::-1])
    for name in model.statistics:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-5)
        assert not np.allclose(one[name], params[name], rtol=1e-2)
    for name in params.keys() - model.statistics.keys():
        assert one[name] is params[name]
    tensors_ = tensors(params)
    usual = NETWORKS["tiny-dense"].preprocess
    mean, std = (np.array(part).reshape(1, 3, 1, 1) for part in (usual.mean, usual.std))
    x = torch.from_numpy((images / 255 - mean) / std).float()
    weight, bias = (tensors_[f"extractor.first.0.{n}"][0] for n in ("weight", "bias"))
    outputs = F.conv2d(x, weight, bias, 2, 1).numpy()
    np.testing.assert_allclose(
        one["extractor.first.1.running_mean"], outputs.mean(axis=(0, 2, 3)), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        one["extractor.first.1.running_var"], outputs.var(axis=(0, 2, 3)), rtol=0.02
    )
    alone = with_measured_statistics(model, params, [images])
    by_batch = predicted_masks(model, params, images, statistics="batch")
    assert (predicted_masks(model, alone, images) == by_batch).mean() > 0.98


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: Model(Spec(3, 128, network="small_cnn", hardest=0.25)),
            "hardest: expected a",
        ),
        (lambda: Spec(3, 5, network="tiny-dense", hardest=2), "hardest: expected a number from 0"),
        (
            lambda: run(Job("fedavg", TINY, QUICK, "model"), images((4, 4)), Plan(1, 2)),
            "network: tiny-dense gives features per cell; expected images with masks",
        ),
        (
            lambda: run(Job("spherefed", TINY, QUICK, "extractor"), scenes(), Plan(1, 2)),
            "sphere: expected one of cross-entropy, kd, .* for tiny-dense, whose labels are masks",
        ),
        (
            lambda: predicted_masks(Model(Spec(3, 3)), {}, scenes()["c00"].samples.features),
            "network: expected a dense network",
        ),
        (
            lambda: predicted_masks(
                Model(TINY),
                initial(Model(TINY), None, 0),
                scenes()["c00"].samples.features[:1],
                statistics="batch",
            ),
            "images: expected at least two, for statistics of their own, got 1",
        ),
        (
            lambda: with_measured_statistics(Model(TINY), initial(Model(TINY), None, 0), []),
            "images: expected at least one to measure statistics on",
        ),
    ],
)
def test_mistakes_are_named(call, said):
    with pytest.raises((HeadstartError, DataError), match=said):
        call()


def test_a_model_says_its_share_only_where_it_has_one():
    assert "hardest" not in Spec(3, 3).plain()
    assert Spec.of(TINY.plain()) == TINY
    assert module_of("tiny-dense", 3).auxiliary[0].out_channels == 3
