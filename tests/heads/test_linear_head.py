"""The head itself: scores, temperature, local labels, the local prior, files."""

import json
from dataclasses import replace

import numpy as np
import pytest

from headstart import DataError, Fed3R, FedNCM, HeadstartError, LinearHead, Moments, WireError
from headstart.heads.linear import TEMPERATURES

RNG = np.random.default_rng(0)
Y = RNG.choice(4, size=200, p=[0.5, 0.3, 0.15, 0.05])
Z = RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(200, 6))
NAMES = np.array(["ant", "bee", "cat", "dog"])


def make_head(**options):
    return Fed3R(**options).solve(Moments.measure(Z, NAMES[Y]))


def hand_probabilities(scores, temperature):
    shifted = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    return shifted / shifted.sum(axis=1, keepdims=True)


def cross_entropy(head, temperature):
    truth = np.searchsorted(head.classes, NAMES[Y])
    p = hand_probabilities(head.scores(Z), temperature)
    return -np.log(np.maximum(p[np.arange(len(Y)), truth], 1e-300)).sum()


def test_scores_and_predictions_by_hand():
    head = LinearHead(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.5, 0.0]), np.array([3, 7]))
    np.testing.assert_allclose(head.scores([[1.0, 1.0], [2.0, 0.0]]), [[1.5, 2.0], [2.5, 0.0]])
    assert head.predict([[1.0, 1.0], [2.0, 0.0]]).tolist() == [7, 3]
    assert head.accuracy([[1.0, 1.0], [2.0, 0.0]], [7, 7]) == 0.5
    assert head.dimension == 2


@pytest.mark.parametrize("features", [np.zeros((2, 5)), np.zeros((1, 2, 6)), [["a"] * 6]])
def test_features_of_another_shape_are_named(features):
    with pytest.raises(DataError, match="features"):
        make_head().scores(features)


@pytest.mark.parametrize("call", ["accuracy", "losses", "calibrate"])
@pytest.mark.parametrize(
    "labels", [NAMES[Y][:-1], NAMES[Y][:1], [], Y], ids=["short", "one", "none", "integers"]
)
def test_labels_that_do_not_fit_are_named(call, labels):
    with pytest.raises(DataError, match="labels"):
        getattr(make_head(), call)(Z, labels)


def test_a_client_without_samples_adds_nothing_to_the_losses():
    assert not make_head().losses(Z[:0], []).any()
    with pytest.raises(DataError, match="labels"):
        make_head().accuracy(Z[:0], [])


# -- temperature -----------------------------------------------------------------------------------


def test_probabilities_need_calibration():
    with pytest.raises(HeadstartError, match="calibrate"):
        make_head().probabilities(Z)
    with pytest.raises(HeadstartError, match="calibrate"):
        make_head().with_prior({"ant": 3, "bee": 1})


@pytest.mark.parametrize("normalize", [True, False])
def test_calibrated_probabilities_are_a_softmax(normalize):
    head = make_head(normalize=normalize).calibrate(Z, NAMES[Y])
    p = head.probabilities(Z)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert (p > 0).all()
    np.testing.assert_allclose(p, hand_probabilities(head.scores(Z), head.temperature), rtol=1e-9)
    assert np.array_equal(head.classes[p.argmax(axis=1)], head.predict(Z))


@pytest.mark.parametrize("normalize", [True, False])
def test_the_losses_are_cross_entropies(normalize):
    head = make_head(normalize=normalize)
    losses = head.losses(Z, NAMES[Y])
    for i in range(20, len(TEMPERATURES), 7):
        assert losses[i] == pytest.approx(cross_entropy(head, TEMPERATURES[i]), rel=1e-6)


def test_losses_add_over_clients():
    head, names = make_head(), NAMES[Y]
    parts = sum(head.losses(Z[i::3], names[i::3]) for i in range(3))
    np.testing.assert_allclose(parts, head.losses(Z, names), rtol=1e-9)


def test_calibration_takes_the_highest_of_equally_good_temperatures():
    """Samples that are separated without fail have no loss at all below some temperature."""
    z, y = np.eye(3) * 4, np.arange(3)
    model = FedNCM().solve(FedNCM().measure(z, y))
    losses = np.round(model.losses(z, y), 2)
    at = model.calibrated(losses).temperature
    lowest = TEMPERATURES[losses == losses.min()]
    assert len(lowest) > 5
    assert lowest[-2] < at <= lowest[-1]


@pytest.mark.parametrize("normalize", [True, False])
def test_calibration_takes_the_lowest_cross_entropy(normalize):
    head = make_head(normalize=normalize)
    chosen = head.calibrate(Z, NAMES[Y]).temperature
    best = cross_entropy(head, chosen)
    assert TEMPERATURES[0] < chosen < TEMPERATURES[-1]
    for temperature in TEMPERATURES:
        assert best <= cross_entropy(head, temperature) * (1 + 1e-9)


def test_samples_of_unknown_classes_do_not_count():
    head, names = make_head(), NAMES[Y]
    more = np.concatenate([Z, Z[:5]]), np.concatenate([names, ["zebra"] * 5])
    np.testing.assert_allclose(head.losses(*more), head.losses(Z, names))
    with pytest.raises(DataError, match="labels"):
        head.calibrate(Z[:5], ["zebra"] * 5)


# -- one client's own ------------------------------------------------------------------------------


def test_only_local_labels_keeps_scores_of_its_classes():
    head = make_head()
    own = head.restrict(["dog", "ant"])
    assert own.classes.tolist() == ["ant", "dog"]
    assert np.array_equal(own.scores(Z), head.scores(Z)[:, [0, 3]])
    assert set(own.predict(Z)) <= {"ant", "dog"}
    assert own.restrict(["dog"]).predict(Z).tolist() == ["dog"] * 200


@pytest.mark.parametrize("classes", [["ant", "zebra"], [], [1, 2]])
def test_unknown_classes_are_named(classes):
    with pytest.raises(DataError, match="classes"):
        make_head().restrict(classes)


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 3.0])
def test_the_local_prior_is_bayes_rule(smoothing):
    """A normalized head has lost the global prior: p(c|z) ∝ softmax(scores/T)·p_k(c)."""
    head = make_head().calibrate(Z, NAMES[Y])
    counts = {"ant": 1, "cat": 6, "dog": 0}
    own = head.with_prior(counts, smoothing=smoothing)
    assert own.classes.tolist() == ["ant", "cat"]
    mass = np.array([1.0, 6.0]) + smoothing
    posterior = head.probabilities(Z)[:, [0, 2]] * (mass / mass.sum())
    posterior /= posterior.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(own.probabilities(Z), posterior, rtol=1e-8)


@pytest.mark.parametrize("rebalance", [0.0, 0.8])
def test_the_global_prior_is_taken_out_of_unnormalized_heads(rebalance):
    head = make_head(normalize=False, rebalance=rebalance).calibrate(Z, NAMES[Y])
    g = np.bincount(Y) ** (1 - rebalance)
    np.testing.assert_allclose(head.prior, g / g.sum())
    own = head.with_prior({"ant": 2, "bee": 2, "cat": 10}, smoothing=0.0)
    mass = np.array([2, 2, 10]) / 14
    posterior = head.probabilities(Z)[:, :3] * mass / head.prior[:3]
    posterior /= posterior.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(own.probabilities(Z), posterior, rtol=1e-8)


def test_the_global_frequencies_as_local_prior_change_nothing():
    head = make_head(normalize=False).calibrate(Z, NAMES[Y])
    counts = dict(zip(NAMES.tolist(), np.bincount(Y).tolist(), strict=True))
    own = head.with_prior(counts, smoothing=0.0)
    np.testing.assert_allclose(own.scores(Z), head.scores(Z), atol=1e-12)


def test_a_second_local_prior_replaces_the_first():
    head = make_head().calibrate(Z, NAMES[Y])
    first = head.with_prior({"ant": 50, "bee": 1, "cat": 3})
    again = first.with_prior({"ant": 1, "bee": 9})
    direct = head.with_prior({"ant": 1, "bee": 9})
    np.testing.assert_allclose(again.probabilities(Z), direct.probabilities(Z), rtol=1e-8)


def test_a_local_prior_moves_towards_what_the_client_has():
    head = make_head().calibrate(Z, NAMES[Y])
    few, many = ({"ant": 10, "dog": n} for n in (1, 100))
    shares = [(head.with_prior(c).predict(Z) == "dog").mean() for c in (few, many)]
    assert shares[0] < shares[1]


@pytest.mark.parametrize("counts", [{}, {"ant": 0}, {"zebra": 3}])
def test_a_prior_of_unknown_classes_is_an_error(counts):
    with pytest.raises(DataError, match="classes"):
        make_head().calibrate(Z, NAMES[Y]).with_prior(counts)


@pytest.mark.parametrize("smoothing", [-1.0, float("nan")])
def test_a_smoothing_below_zero_is_an_error(smoothing):
    with pytest.raises(DataError, match="smoothing"):
        make_head().calibrate(Z, NAMES[Y]).with_prior({"ant": 3}, smoothing=smoothing)


# -- files -----------------------------------------------------------------------------------------


def test_a_personal_head_comes_back_from_its_file(tmp_path):
    head = make_head(normalize=False).calibrate(Z, NAMES[Y]).with_prior({"ant": 2, "dog": 9})
    head.save(tmp_path / "head.safetensors")
    loaded = LinearHead.load(tmp_path / "head.safetensors")
    assert np.array_equal(loaded.probabilities(Z), head.probabilities(Z))
    assert np.array_equal(loaded.prior, head.prior)
    assert loaded.provenance == json.loads(json.dumps(head.provenance))


def test_a_missing_file_and_a_damaged_one_are_named(tmp_path):
    path = tmp_path / "head.safetensors"
    with pytest.raises(DataError, match=r"head\.safetensors"):
        LinearHead.load(path)
    make_head().save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WireError):
        LinearHead.load(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_samples_that_are_not_finite_are_not_predicted(bad):
    head = LinearHead(np.eye(3), np.zeros(3), np.arange(3))
    with pytest.raises(DataError, match="finite"):
        head.predict([[bad, 0.0, 0.0]])


@pytest.mark.parametrize("count", [-1, float("nan"), float("inf"), "many"])
def test_a_prior_is_of_counts(count):
    head = replace(make_head(), temperature=1.0)
    label = head.classes.tolist()[0]
    with pytest.raises(DataError, match="counts: expected a number"):
        head.with_prior({label: count})


def test_ragged_features_are_refused():
    with pytest.raises(DataError, match="rows of one length"):
        make_head().predict([[1.0], [1.0, 2.0]])


def test_scores_compare_labels_of_one_kind():
    from headstart.evaluate import scores

    head = make_head()
    other = ["a"] if head.classes.dtype.kind == "i" else [1]
    with pytest.raises(DataError, match="expected classes like"):
        scores(head, np.zeros((1, head.dimension)), other)
