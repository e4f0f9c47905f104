"""Heads that are refitted as the extractor trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headstart import Fed3R, Fed3RRandomFeatures, FedNCM, HeadstartError
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient import refit
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.steps import tensors
from headstart.pipeline.checkpoint import Checkpoint
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare

from .helpers import model_of, own, painted, result_of, run, timeless


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Pictures that no head separates: its temperature is not 0, and there is a slope."""
    return prepare(make_config(painted(tmp_path_factory.mktemp("mixed"), wrong=6)))


def weights_apart(one, other):
    return np.abs(one.params["head.weight"] - other.params["head.weight"]).max()


def test_fed3r_ft_refits_the_head_as_the_extractor_trains(pictures):
    results, stage, _ = run(pictures, "Fed3R-FT(FedAvg-3(f))")
    assert results.phases == ("none", "Fed3R-FT(FedAvg-3(f))")
    assert results.curve[0] == result_of(pictures, "none").curve[0]  # nobody has measured yet
    assert np.isfinite(stage.params["head.weight"]).all()
    start = model_of(pictures, "Fed3R")
    for text in (  # nothing moves: the sums are those the head was solved from
        "Fed3R-FT(FedAvg-1(f, lr=1e-12, clients=4))",
        "Fed3R + FedAvg-1(f, lr=1e-12, refit=fed3r)",
    ):
        assert weights_apart(model_of(pictures, text), start) < 0.02
    few = model_of(pictures, "Fed3R-FT(FedAvg-1(f, lr=1e-12, clients=1))")
    assert weights_apart(few, start) > 0.02  # the total of those who were sampled


def test_a_refitted_run_goes_on_from_its_running_total(pictures, tmp_path):
    text = "Fed3R-FT(FedAvg-5(f, clients=1))"
    whole, end, _ = run(pictures, text)
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", every=2)

    def stop(point):
        if point.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(pictures, text, checkpoint=checkpoint, watch=stop)
    again, stage, _ = run(pictures, text, checkpoint=checkpoint)
    assert timeless(again) == timeless(whole)
    assert np.array_equal(stage.params["head.weight"], end.params["head.weight"])


RANDOM = "dimension=8, bandwidth=auto"


def test_random_features_of_an_extractor_that_trains(mixed):
    """The model through torch is the closed form's head through NumPy, then it trains."""
    _, start, context = run(mixed, f"Fed3R-RF({RANDOM})")
    model, x = build(start.spec), mixed.test.read()[0]
    params = tensors(start.params)
    with torch.no_grad():
        found = model.logits(params, model.features(params, model.inputs(x)[None]))[0].numpy()
    expected = start.head.scores(context.test_features(start.params)) / start.head.temperature
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert start.params["head.weight"].shape == (3, 8)
    assert start.spec.temperature > 1e-3
    for part, still in (("φ", "head."), ("ψ", "extractor."), ("f", "none")):
        end = model_of(mixed, f"Fed3R-RF({RANDOM}) + FedAvg-1({part})")
        for name, array in end.params.items():
            moved = not np.array_equal(array, start.params[name])
            assert moved is not name.startswith(still), name
    results = result_of(mixed, f"OLL(Fed3R-RF({RANDOM}) + FedAvg-1(f)) + FP-1(f)")
    assert results.personal.clients
    ridge = result_of(mixed, f"Fed3R-RF({RANDOM}) + FedAvg-1(f) + ridge")
    assert own(ridge) > 0.5


@pytest.mark.parametrize(
    "text", [f"Fed3R-RF-FT(FedAvg-ROUNDS, {RANDOM})", "FedNCM-FT(FedAvg-ROUNDS)"]
)
def test_random_features_and_class_means_are_refitted_too(mixed, text):
    start = model_of(mixed, text.split("-FT")[0] + f"({RANDOM})" * ("RF" in text))
    still = model_of(mixed, text.replace("ROUNDS", "1(f, lr=1e-12, clients=4)"))
    assert weights_apart(still, start) < 0.02
    end, again = (model_of(mixed, text.replace("ROUNDS", "2(f, lr=0.05)")) for _ in range(2))
    assert np.array_equal(end.params["head.weight"], again.params["head.weight"])
    assert weights_apart(end, start) > weights_apart(still, start)


@pytest.mark.parametrize("head", ["FedCOF", "shared-variances", "ETF"])
def test_a_head_of_other_statistics_is_not_refitted(pictures, head):
    points = []
    with pytest.raises(HeadstartError, match="refit: expected a head of sums of features"):
        run(pictures, f"{head}-FT(FedAvg-1(f))", watch=points.append)
    assert points == []


def test_a_running_total_is_that_of_every_clients_last_visit():
    """Data that grow, and a class that appears: the sum is the fresh one, exactly."""
    rng = np.random.default_rng(0)
    spec, classes = Spec(3, 5), np.arange(3)
    extractor = refit.extractor_arrays(spec, initial(build(spec), None, 0))
    z, y = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 2, 40)
    grown = np.concatenate([y, [2, 2, 2]])
    more = np.concatenate([z, rng.normal(size=(3, 5)).astype(np.float32)])

    def visited(running, head, clients, round_):
        arrays = {**extractor, "classes": classes, **running.broadcast(clients)}
        step = refit.refit(spec, head, round_)
        return running.accepted(Simulator(clients).answers(step, arrays))

    for head in (Fed3R(), FedNCM(), Fed3RRandomFeatures(dimension=7, bandwidth=2.0)):
        small = {
            "a": ClientData(ArraySamples(z[:10], y[:10])),
            "b": ClientData(ArraySamples(z[10:], y[10:])),
        }
        running = visited(refit.RunningTotal(), head, small, 0)
        large = {"b": ClientData(ArraySamples(more[10:], grown[10:]), memory=small["b"].memory)}
        running = visited(running, head, large, 1)
        d = 7 if hasattr(head, "dimension") else 5
        found = head.solve(running.statistic(head, classes, d))
        fresh = head.solve(head.measure(more, grown))
        np.testing.assert_allclose(found.weights, fresh.weights, rtol=1e-9, atol=1e-12)
        assert found.classes.tolist() == [0, 1, 2]
