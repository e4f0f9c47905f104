"""What goes into a training: models, labels and features; and mistakes that are named."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headstart import DataError, Fed3R, HeadstartError
from headstart.federation.simulator import Simulator
from headstart.gradient import models, steps
from headstart.gradient.engine import Training
from headstart.gradient.local import FineTuning
from headstart.gradient.loop import Plan, begin, one_round
from headstart.gradient.models import Model, Spec, flat, initial, shaped
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    assert_same,
    fresh,
    run,
    vectors,
)

from .helpers import JOB, NORMED, head_scores


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
    named = one_round(job, plan, Simulator(text, seed=1), np.array(["a", "b", "c"]), start)
    numbers = one_round(job, plan, Simulator(fresh(data), seed=1), np.arange(3), start)
    assert_same(named.params, numbers.params)
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


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    with pytest.raises(HeadstartError, match=message):
        MISTAKES[message]()


def test_a_network_by_another_name_is_not_this_one():
    assert models.build(NORMED) is models.build(Spec.of(NORMED.plain()))
    assert models.build(NORMED) is not models.build(replace(NORMED, batch_norm="local"))
