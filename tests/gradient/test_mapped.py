"""Random features between an extractor that trains and its head: the same numbers, by hand too."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headstart import DataError, HeadstartError
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.models import Model, Spec, initial, mapped
from headstart.gradient.refit import features_of
from headstart.gradient.steps import Job
from headstart.heads.features import RandomFeatures
from headstart.testing.federations import assert_same, images, run, vectors

from .helpers import softmax

MAP = (4, 0.7, 3)
SPEC = Spec(2, 4, network="testing-scale", feature_map=MAP, temperature=0.5)


@given(
    d=st.integers(1, 40),
    dimension=st.integers(1, 60),
    bandwidth=st.floats(1e-3, 1e3),
    seed=st.integers(0, 9),
)
def test_torch_maps_features_to_the_same_numbers(d, dimension, bandwidth, seed):
    """To float32 rounding at every bandwidth: zω of a small one is a large angle."""
    z = np.random.default_rng(seed).normal(scale=5, size=(7, d)).astype(np.float32)
    map_ = RandomFeatures(dimension, bandwidth, seed)
    found = mapped(map_, torch.from_numpy(z)[None])[0]
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), map_(z), rtol=1e-6, atol=1e-7)


def test_a_step_by_hand():
    """φ(x) = a·x₁ under four cosines and two classes: a, W and b after one step of each part."""
    data, training = vectors((6,), 3, 2), Training(rate=0.3, batch=6, decay=0.01)
    start = initial(Model(SPEC), None, 5)
    own = data["c00"]
    x, y = own.samples.features[:, 0].astype(np.float64), own.samples.labels
    omega, beta = RandomFeatures(*MAP).frequencies(1)
    a = float(start["extractor.scale"][0])
    w, b = (start[f"head.{name}"].astype(np.float64) for name in ("weight", "bias"))
    angle, size = a * x[:, None] * omega + beta, np.sqrt(2 / 4)
    slope = softmax((size * np.cos(angle) @ w.T + b) / 0.5)
    slope[np.arange(6), y] -= 1
    slope /= 6 * 0.5
    by = {
        "extractor.scale": np.array([((slope @ w) * -size * np.sin(angle) * omega).sum(1) @ x]),
        "head.weight": slope.T @ (size * np.cos(angle)),
        "head.bias": slope.sum(axis=0),
    }
    assert all(np.abs(one).max() > 1e-3 for one in by.values())
    for part, moving in (
        ("model", tuple(by)),
        ("extractor", tuple(by)[:1]),
        ("head", tuple(by)[1:]),
    ):
        job = Job("fedavg", SPEC, training, part)
        state, _ = run(job, data, Plan(rounds=1, clients=1))
        for name, array in start.items():
            stepped = array - 0.3 * (by[name] + 0.01 * array) if name in moving else array
            np.testing.assert_allclose(state.params[name], stepped, rtol=1e-5, atol=1e-6)
            assert name in moving or np.array_equal(state.params[name], array)


@pytest.mark.parametrize("name", ["scaffold", "fedalt", "ditto", "mime"])
def test_other_algorithms_train_through_it_too(name):
    data, settings = vectors((6, 9), 3, 2), {"personal": "head"} if name == "fedalt" else None
    job = Job(name, SPEC, Training(rate=0.1, batch=4), "model", settings)
    first, _ = run(job, data, Plan(rounds=2, clients=2))
    again, _ = run(job, data, Plan(rounds=2, clients=2))
    assert_same(first.params, again.params)
    assert first.params["extractor.scale"] != initial(job.model, None, 5)["extractor.scale"]
    assert first.params["head.weight"].shape == (2, 4)


def test_kept_features_and_an_extractor_that_stands_still_train_the_same_head():
    """Mapped once by NumPy, or every time by torch: one head, to float32 rounding."""
    data = vectors((6, 9), 3, 2)
    kept = {
        who: ClientData(ArraySamples(1.5 * own.samples.features[:, :1], own.samples.labels))
        for who, own in data.items()
    }
    ends = []
    for spec, clients in ((SPEC, data), (replace(SPEC, network=None), kept)):
        job = Job("fedavg", spec, Training(rate=0.1, batch=4), "head")
        start = initial(Model(SPEC), None, 5)
        state = begin(job, {name: start[name] for name in job.model.shapes})
        sim = Simulator({who: replace(own, memory={}) for who, own in clients.items()}, seed=1)
        ends.append(one_round(job, Plan(clients=2), sim, np.arange(2), state).params)
    for name in ("head.weight", "head.bias"):
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=1e-5, atol=1e-6)


def test_closed_forms_receive_the_features_and_map_them_themselves():
    spec = Spec(3, 20, network="small_cnn", feature_map=(20, 1.0, 0))
    model, plain = Model(spec), Model(Spec(3, 128, network="small_cnn"))
    params = initial(plain, None, 0)
    pixels = images((5,))["c00"].samples
    assert_same({"": features_of(model, params, pixels)}, {"": features_of(plain, params, pixels)})
    assert features_of(model, params, pixels.first(0)).shape == (0, 128)
    assert model.shapes["head.weight"] == (3, 20)


def test_what_still_cannot_be():
    with pytest.raises(HeadstartError, match="dimension: expected the feature map's 8, got 128"):
        Spec(3, 128, network="small_cnn", feature_map=(8, 1.0, 0))
    with pytest.raises(HeadstartError, match="dimension: expected 128 for small_cnn, got 8"):
        Model(Spec(3, 8, network="small_cnn"))
    with pytest.raises(HeadstartError, match="bandwidth: expected a number above 0, got 0"):
        Model(Spec(3, 8, network="small_cnn", feature_map=(8, 0.0, 0)))
    with pytest.raises(DataError, match="features: expected at most 16384 dimensions, got 20000"):
        mapped(RandomFeatures(2, 1.0), torch.zeros(1, 1, 20000))
