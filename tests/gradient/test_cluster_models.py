"""Models of clusters: one cluster is FedAvg, nobody is forgotten, teachers are means."""

import numpy as np
import pytest

from headstart.errors import HeadstartError
from headstart.federation.simulator import Simulator
from headstart.gradient import steps
from headstart.gradient.cluster_models import (
    OWN,
    AveragedTeacher,
    ClusterModels,
    ClusterTotal,
    own_names,
)
from headstart.gradient.loop import Plan
from headstart.gradient.models import Model, Spec, initial, shaped
from headstart.gradient.steps import Job
from headstart.testing.federations import SHORT, assert_same, fresh, run, vectors

from .helpers import normed  # noqa: F401  # registers the network

MODEL = Model(Spec(3, 4, network="normed", batch_norm="average"))
CLIENTS, CLUSTERS = 6, {0: (0, 2, 3), 1: (1, 5), 2: (4,)}


def tree(seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in MODEL.shapes.items()}


def total(models, cluster, members):
    """Σwδ of clients that end at models of their own."""
    moved, weight = dict.fromkeys(MODEL.shapes, 0.0), 0.0
    start = models.of(cluster)
    for client in members:
        end, w = tree(100 + client), client + 1.0
        moved = {name: moved[name] + w * (end[name] - start[name]) for name in moved}
        weight += w
    return ClusterTotal(moved, weight)


def round_of(models, clusters):
    return models.after({s: total(models, s, ids) for s, ids in clusters.items() if ids})


def mean_of(members):
    weights = [client + 1.0 for client in members]
    return {
        name: np.average([tree(100 + c)[name] for c in members], axis=0, weights=weights)
        for name in MODEL.shapes
    }


@pytest.mark.parametrize("own", OWN)
def test_shared_parts_are_of_all_and_own_parts_of_the_cluster(own):
    names = own_names(MODEL, own)
    models = round_of(ClusterModels.begin(tree(0), 3, names), CLUSTERS)
    everybody = mean_of(range(CLIENTS))
    for cluster, members in CLUSTERS.items():
        found, theirs = models.of(cluster), mean_of(members)
        assert found.keys() == MODEL.shapes.keys()
        for name, array in found.items():
            expected = theirs[name] if name in names else everybody[name]
            np.testing.assert_allclose(array, expected, atol=1e-5)


def test_what_is_a_clusters_own():
    assert own_names(MODEL, "none") == ()
    assert set(own_names(MODEL, "all")) == set(MODEL.shapes)
    assert set(own_names(MODEL, "head")) == {"head.weight", "head.bias"}
    assert set(own_names(MODEL, "batch-norm")) == {
        f"extractor.norm.{part}" for part in ("weight", "bias", "running_mean", "running_var")
    }
    assert set(own_names(MODEL, "extractor")) | {"head.weight", "head.bias"} == set(MODEL.shapes)


def test_one_cluster_is_one_model_whatever_is_its_own():
    """And several clusters with nothing of their own train from the same bits."""
    everybody = tuple(range(CLIENTS))
    ends = [
        round_of(ClusterModels.begin(tree(0), 1, own_names(MODEL, own)), {0: everybody}).of(0)
        for own in OWN
    ]
    for end in ends:
        for name, array in end.items():
            assert np.array_equal(array, ends[0][name])
    models = round_of(ClusterModels.begin(tree(0), 3, ()), CLUSTERS)
    for cluster in (1, 2):
        for name, array in models.of(cluster).items():
            assert np.array_equal(array, models.of(0)[name])
    for name, array in models.mean().items():
        np.testing.assert_allclose(array, models.of(0)[name], rtol=1e-6)


def test_a_cluster_without_a_client_is_not_forgotten():
    names = own_names(MODEL, "head")
    before = round_of(ClusterModels.begin(tree(0), 3, names), CLUSTERS)
    after = round_of(before, {0: (0, 2), 1: (), 2: (4,)})
    for name in MODEL.shapes:
        same = np.array_equal(after.of(1)[name], before.of(1)[name])
        assert same == (name in names)
        assert not np.array_equal(after.of(0)[name], before.of(0)[name])
    with pytest.raises(HeadstartError, match="round: expected clients with samples, got none"):
        before.after({})
    with pytest.raises(HeadstartError, match="own: expected one of all, head"):
        own_names(MODEL, "decoder")


def test_one_cluster_over_a_federation_is_fedavg_to_the_bit():
    job, data = Job("fedavg", Spec(3, 3), SHORT), vectors((8, 5, 9, 4))
    plan, classes = Plan(rounds=3, clients=3), np.arange(3)
    state, _ = run(job, data, plan)
    federation, start = Simulator(fresh(data)), initial(job.model, None, 5)
    models = ClusterModels.begin(start, 1, own_names(job.model, "all"))
    for round_ in range(3):
        arrays = steps.broadcast(job, models.of(0), {}, classes)
        cohort = plan.cohort(federation.clients, round_)
        answer = federation.total(steps.update(job, round_), arrays, cohort).statistic
        moved = shaped(answer.vector("update"), job.names.shared, job.model.shapes)
        models = models.after({0: ClusterTotal(moved, answer.number("weight"))})
    assert_same(models.of(0), state.params)


# -- teachers --------------------------------------------------------------------------------------


def number(value):
    return {"head.bias": np.array([value], np.float32)}


@pytest.mark.parametrize(("start", "every"), [(0, 1), (4, 1), (4, 2), (6, 3)])
def test_a_teacher_is_the_model_and_then_the_mean_of_models(start, every):
    how, teacher, models = AveragedTeacher(start, every), number(-7.0), {}
    for round_ in range(14):
        models[round_] = float(round_**2)
        teacher = how.after(teacher, number(models[round_]), round_)
        renewed = round_ - round_ % every
        taken = [renewed] if renewed < start else range(start, renewed + 1, every)
        expected = np.mean([models[t] for t in taken])
        assert float(teacher["head.bias"][0]) == pytest.approx(expected)


@pytest.mark.parametrize(("settings", "said"), [((-1, 1), "start: "), ((0, 0), "every: ")])
def test_mistakes_are_named(settings, said):
    with pytest.raises(HeadstartError, match=f"{said}expected a whole number"):
        AveragedTeacher(*settings)
