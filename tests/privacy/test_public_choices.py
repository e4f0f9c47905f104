"""What a plan takes from public data: a mean, a projection; and what images are."""

from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart import HeadstartError
from headstart.data.samples import ArraySamples
from headstart.errors import StepRefusedError
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.privacy.differential import Private
from headstart.privacy.masked import Masked
from headstart.privacy.plan import PrivacyPlan
from headstart.privacy.sensitivity import unit_rows
from headstart.privacy.statement import Statement
from headstart.privacy.unit_sums import unit_sums

from .private_runs import FED3R, NCM, TRUSTS, X, Y, planned, private

MEAN = unit_rows(X[1200:]).mean(axis=0)
COLUMNS = np.linalg.svd(X[1200:] - X[1200:].mean(axis=0), full_matrices=False)[2][:30].T


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_public_mean_costs_no_message(trust):
    one = private(trust, mean=MEAN)
    release = one.total(FED3R).statistic
    assert [name.partition("-")[0] for name in one.budget.charges] == ["gram"]
    assert release.direction @ MEAN == pytest.approx(np.linalg.norm(MEAN))
    assert hs.Fed3R().solve(release).accuracy(X[1200:], Y[1200:]) > 0.8
    said = str(Statement.of_plain(release.statement))
    assert "the mean of public data, " in said
    assert "in 1 message" in said


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("mean", [True, False, MEAN @ COLUMNS])
def test_a_projected_head_takes_features_as_they_are(trust, mean):
    one = private(trust, projection=COLUMNS, mean=mean, dimension=64)
    release = one.total(FED3R).statistic
    assert release.dimension == 30
    head = hs.Fed3R().solve(release)
    assert head.weights.shape == (10, 64)
    rows = unit_rows(X[1200:] @ COLUMNS, release.direction)
    weights = head.weights @ COLUMNS
    inside = release.classes[np.argmax(rows @ weights.T, axis=1)]
    assert np.mean(head.predict(X[1200:]) == inside) > 0.999  # but for the lattice
    assert head.accuracy(X[1200:], Y[1200:]) > 0.7
    assert "the projection of public data, " in str(Statement.of_plain(release.statement))


def test_another_public_mean_or_projection_is_another_release():
    names = {planned(**how).text for how in ({}, {"mean": MEAN}, {"projection": COLUMNS})}
    names |= {planned(mean=MEAN + 1).text, planned(projection=COLUMNS[:, :9]).text}
    assert len(names) == 5
    assert planned(mean=MEAN).text == planned(mean=2 * MEAN).text  # the same direction


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mean": np.zeros(64)}, "mean: expected a mean that points somewhere"),
        ({"mean": [np.nan, 1.0]}, "mean: expected a vector of numbers"),
        ({"mean": np.ones((2, 2))}, "mean: expected a vector of numbers"),
        ({"mean": np.ones(5), "dimension": 64}, "mean: expected 64 numbers, got 5"),
        ({"mean": np.ones(64), "projection": COLUMNS}, "mean: expected 30 numbers, got 64"),
        ({"projection": np.ones((3, 4))}, "projection: expected a matrix d×p with p ≤ d"),
        ({"projection": [["a"]]}, "projection: expected a matrix"),
        ({"projection": np.full((4, 2), np.inf)}, "projection: expected a matrix"),
        ({"projection": np.ones((5, 2)), "dimension": 64}, "projection: expected 64 rows, got 5"),
    ],
)
def test_public_arrays_that_are_none_are_refused(change, said):
    with pytest.raises(HeadstartError, match=said):
        planned(**change)


class Pictures(ArraySamples):
    """Samples that are parts of images, twelve of each."""

    per_image = 12

    @property
    def image_of(self):
        return np.arange(len(self)) // 12


def pictures(clients=8):
    """Digits of one class are an image together, more or less."""
    order = np.argsort(Y[:1200], kind="stable")
    parts = np.array_split(np.random.default_rng(0).permutation(order.reshape(-1, 12)), clients)
    held = {f"c{k}": own.reshape(-1) for k, own in enumerate(parts)}
    return Simulator({name: ClientData(Pictures(X[own], Y[own])) for name, own in held.items()})


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("head", [hs.Fed3R(), hs.FedNCM()], ids=lambda head: head.name)
def test_an_image_is_hidden_whole(trust, head):
    inner = Masked(pictures(), 8, range(10)) if trust == "secure-sum" else pictures()
    plan = PrivacyPlan(100.0, 1e-5, range(10), 100, unit="image", trust=trust, rows=12)
    release = Private(inner, plan).total(steps.measure(head)).statistic
    assert head.solve(release).accuracy(X[1200:], Y[1200:]) > 0.6
    said = str(Statement.of_plain(release.statement))
    for piece in (
        "Unit: image",
        "add or remove one image",
        "100 planned images of at most 12 samples",
        "each image counts for 3 samples at most",
        "persons with more than one image",
    ):
        assert piece in said
    assert release.sigma("counts") > 12 / plan.mu  # all samples of an image are counted


@pytest.mark.parametrize("change", ["larger", "other rows", "none", "only"])
@pytest.mark.parametrize("trust", ["client", "secure-sum"])
def test_a_server_that_lets_images_count_for_more_is_refused(trust, change):
    """The noise by which images are shortened is the noise that is added."""
    plan = PrivacyPlan(8.0, 1e-5, range(10), 100, unit="image", trust=trust, rows=12)
    noise = plan.noise("sums", 8)
    image = {
        "larger": replace(noise, variances={k: 9 * v for k, v in noise.variances.items()}),
        "other rows": replace(noise, rows=13),
        "none": None,
        "only": noise,
    }[change]
    asked = replace(noise, rows=None) if change == "only" else noise
    inner = Masked(pictures(), 8, range(10)) if trust == "secure-sum" else pictures()
    with pytest.raises(StepRefusedError, match="image: expected the noise that is added"):
        inner.total(unit_sums("sums", range(10), asked, {"samples": 1200}, image))


def test_images_larger_than_planned_are_refused():
    plan = PrivacyPlan(4.0, 1e-5, range(10), 100, unit="image", rows=11)
    with pytest.raises(HeadstartError, match="rows: expected images of at most 11 samples, got 12"):
        Private(pictures(), plan).total(NCM)
    with pytest.raises(HeadstartError, match="rows: expected the most samples of an image"):
        planned(rows=12)
