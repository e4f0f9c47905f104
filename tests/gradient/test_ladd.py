"""LADD's rounds: one cluster is FedAvg with self-training, none of its own is one cluster."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from headstart.data.backbones.catalogue import NETWORKS, Network
from headstart.data.samples import ArraySamples
from headstart.errors import HeadstartError
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient import steps
from headstart.gradient.cluster_models import OWN, AveragedTeacher
from headstart.gradient.clustered import Clustering, begin_clustered, clustered_rounds
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, rounds
from headstart.gradient.models import Batch, Spec, initial
from headstart.gradient.pixel_losses import VOID, SelfTraining
from headstart.gradient.recipe import Local
from headstart.gradient.steps import Job
from headstart.testing.federations import assert_same, fresh

CLASSES, SIDE, CLIENTS = 3, 8, 5
SPEC = Spec(CLASSES, 4, network="tiny-streets", batch_norm="average")
QUICK = Training(rate=0.05, epochs=2, batch=2, momentum=0.9)
PLAN = Plan(rounds=4, clients=3, seed=1)
ONE = dict.fromkeys([f"c{k}" for k in range(CLIENTS)], 0)
THREE = {"c0": 0, "c1": 0, "c2": 1, "c3": 1, "c4": 2}


class Streets(nn.Sequential):
    def __init__(self, classes=None):
        super().__init__(nn.Conv2d(3, 4, 3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())


@pytest.fixture(scope="module", autouse=True)
def network():
    NETWORKS.add(
        Network("tiny-streets", "for tests", 4, module=Streets, stride=4),
        place="tests:tiny-streets",
    )


def unlabelled(seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"c{k}": ClientData(
            ArraySamples(
                rng.integers(0, 256, (4, 3, SIDE, SIDE), dtype=np.uint8),
                np.full((4, SIDE, SIDE), VOID, np.int16),
            )
        )
        for k in range(CLIENTS)
    }


def job(**settings):
    return Job("ladd", SPEC, QUICK, "model", settings)


class Watched(Simulator):
    """What clients were asked, and who was in each sum."""

    def total(self, step, broadcast=None, cohort=None):
        self.__dict__.setdefault("asked", []).append((dict(broadcast), tuple(cohort)))
        return super().total(step, broadcast, cohort)


def clustered(clustering, plan=PLAN, data=None, **settings):
    work = job(**settings)
    federation = Watched(fresh(data or unlabelled()))
    start = begin_clustered(work, clustering, initial(work.model, None, 0))
    states = list(clustered_rounds(work, plan, federation, np.arange(CLASSES), clustering, start))
    return states, federation.asked


def self_trained(plan=PLAN):
    work = job(kd=0.0)
    federation = Simulator(fresh(unlabelled()))
    start = begin(work, initial(work.model, None, 0))
    return list(rounds(work, plan, federation, np.arange(CLASSES), start))


def test_one_cluster_without_distillation_or_averaging_is_fedavg_with_self_training():
    """Bit for bit, the running statistics too, and for as many bytes."""
    ours, _ = clustered(Clustering(ONE), kd=0.0)
    for state, plain in zip(ours, self_trained(), strict=True):
        assert_same(state.params(0), plain.params)
        assert (state.up, state.down) == (plain.up, plain.down)
    start = initial(job().model, None, 0)
    assert not np.array_equal(ours[-1].params(0)["head.weight"], start["head.weight"])


def test_nothing_of_their_own_is_one_cluster_in_what_clients_train_from():
    """The sums are apart, so that the last bit of a float32 may differ; the models do not."""
    apart, asked = clustered(Clustering(THREE, own="none"))
    together, _ = clustered(Clustering(ONE))
    for state, one in zip(apart, together, strict=True):
        for cluster in range(3):
            assert_same(state.params(cluster), state.params(0))
        for name, array in one.params(0).items():
            np.testing.assert_allclose(state.params(0)[name], array, rtol=1e-4, atol=1e-5)
    (first, _), *_ = asked
    np.testing.assert_array_equal(first["shared"], asked[1][0]["shared"])


@pytest.mark.parametrize("own", OWN)
def test_a_cluster_without_a_sampled_client_keeps_what_it_has(own):
    """The thesis's sum is over nobody; the authors' program overwrites it with the others' mean."""
    plan = Plan(rounds=3, clients=1, seed=1)
    states, asked = clustered(Clustering(THREE, own=own), plan)
    sampled = [{THREE[name] for name in cohort} for _, cohort in asked]
    before = begin_clustered(job(), Clustering(THREE, own=own), initial(job().model, None, 0))
    for state, seen in zip(states, sampled, strict=True):
        for cluster in {0, 1, 2} - seen:
            assert_same(state.models.own[cluster], before.models.own[cluster])
        before = state


def test_a_total_is_of_one_cluster():
    _, asked = clustered(Clustering(THREE))
    for _, cohort in asked:
        assert len({THREE[name] for name in cohort}) == 1
    assert len(asked) > PLAN.rounds


def test_the_teacher_is_sent_once_it_differs_and_the_source_always():
    plan = Plan(rounds=4, clients=CLIENTS)
    late = Clustering(ONE, teacher=AveragedTeacher(start=2))
    states, asked = clustered(late, plan)
    # renewed after rounds 1, 2, 3, 4: the mean of one model at t_start, of two after that
    assert ["model/teacher" in arrays for arrays, _ in asked] == [False, False, False, True]
    assert all("model/source" in arrays for arrays, _ in asked)
    mean = (states[1].params(0)["head.weight"] + states[2].params(0)["head.weight"]) / 2
    np.testing.assert_allclose(states[2].teachers[0]["head.weight"], mean, atol=1e-6)
    _, without = clustered(late, plan, kd=0.0)
    assert not any("model/source" in arrays for arrays, _ in without)


def test_masks_of_clients_are_not_looked_at():
    """Nothing but their size."""
    labelled = {
        name: replace(
            client,
            samples=ArraySamples(client.samples.features, np.zeros((4, SIDE, SIDE), np.int16)),
        )
        for name, client in unlabelled().items()
    }
    ours, _ = clustered(Clustering(THREE))
    theirs, _ = clustered(Clustering(THREE), data=labelled)
    assert_same(ours[-1].mean(), theirs[-1].mean())


def test_the_loss_is_the_one_of_three_models_with_their_own_statistics():
    """The teacher and the source are in evaluation, the model in training."""
    rng = np.random.default_rng(0)
    work = job(kd=0.7)
    model = work.model
    trees = [initial(model, None, seed) for seed in range(3)]
    for tree in trees:
        tree["extractor.1.running_mean"] = rng.normal(size=4).astype(np.float32)
    images = rng.integers(0, 256, (3, 3, SIDE, SIDE), dtype=np.uint8)
    x = torch.from_numpy(images)[None]
    own, teacher, source = map(steps.tensors, trees)
    void = torch.full((1, 3, SIDE, SIDE), VOID)
    batch = Batch(x, void, torch.full((1, 3), 1 / 3))
    local = Local(own, {}, {"teacher": teacher, "source": source}, 0.1)
    found = model.value(work.recipe.objective, steps.tensors(trees[0]), batch, local, True)

    def scores(tree, training):
        cells, grid, _ = model.cells(tree, x, training)
        rows = model.logits(tree, cells)[0].reshape(3, *grid, CLASSES).permute(0, 3, 1, 2)
        return nn.functional.interpolate(rows, (SIDE, SIDE), mode="bilinear")

    parts = (scores(steps.tensors(trees[0]), True), scores(teacher, False), scores(source, False))
    expected = SelfTraining(source=0.7)(*parts).mean()
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_what_cannot_be_is_refused():
    with pytest.raises(HeadstartError, match=r"ladd: expected a network that gives a class per"):
        Job("ladd", Spec(CLASSES, 4))
    with pytest.raises(HeadstartError, match=r"clusters: expected one for each client, none for c"):
        clustered(Clustering({"c0": 0}))
    with pytest.raises(HeadstartError, match=r"sure: "):
        job(sure=1.5).recipe  # noqa: B018
