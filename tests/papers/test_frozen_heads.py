"""Frozen heads in pipelines, and the diagnostics of their training."""

from __future__ import annotations

import numpy as np
import pytest

from headstart import HeadstartError, gradient
from headstart.gradient import diagnose
from headstart.papers import feddr_paper as paper
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import simulate
from headstart.report import page
from headstart.results import RunResult

from .feddr_runs import settings


def result_of(experiment, text):
    return simulate(experiment, parsed(text))[0]


def model_of(experiment, text):
    return simulate(experiment, parsed(text))[1]


def test_directions_are_what_predicts(pictures):
    """A loss of directions makes a head's rows unit and takes its bias away."""
    prepared = prepare(settings(pictures))
    stage = model_of(prepared, "none + dot-regression-1(lr=1e-9)")
    np.testing.assert_allclose(np.linalg.norm(stage.params["head.weight"], axis=1), 1, rtol=1e-6)
    assert not stage.params["head.bias"].any()
    kept = model_of(prepared, "none + FedBABU-1")
    start = model_of(prepared, "none")
    for name in ("head.weight", "head.bias"):
        assert np.array_equal(kept.params[name], start.params[name])
    assert kept.last.train == "extractor"


def test_a_closed_form_head_can_be_a_target(pictures):
    prepared = prepare(settings(pictures))
    start, stage = (model_of(prepared, text) for text in ("Fed3R", "Fed3R + dot-regression-1(φ)"))
    np.testing.assert_allclose(stage.params["head.weight"], start.params["head.weight"], atol=1e-6)
    moved = [n for n in start.params if not np.array_equal(stage.params[n], start.params[n])]
    assert any(name.startswith("extractor.") for name in moved)
    assert stage.last.training.rate == pytest.approx(0.5)  # a tenth of its own


def test_frames_are_not_calibrated_and_what_trains_towards_them_begins_anew(pictures):
    prepared = prepare(settings(pictures))
    for text, rate in (("ETF + FedDr+-1", 5.0), ("Orthonormal + SphereFed-1", 6.5)):
        stage = model_of(prepared, text)
        assert stage.spec.temperature == 1
        assert stage.last.training.rate == rate


def test_at_home_clients_go_on_with_the_objective_they_trained_with(pictures):
    prepared = prepare(settings(pictures, held_out=0.3))
    texts = ("", "(like=dot-regression)", "(like=FedDr+)", "(like=fedavg, φ)")
    found = [result_of(prepared, f"ETF + FedDr+-1(lr=0.1) + FP-2{text}").personal for text in texts]
    assert found[0] == found[2]
    assert all(own.clients == found[0].clients for own in found)
    with pytest.raises(HeadstartError, match=r"like: expected one of .*, got 'fedsgd'"):
        result_of(prepared, "ETF + FP-1(like=fedsgd)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ETF + FedDr+-1(ψ)", "expected to train the extractor alone"),
        ("none + FedBABU-1(f)", "expected to train the extractor alone"),
        ("none + FedAvg-1(term=l2)", "term: expected one of none, prox, fd, kd, ld, moon, ntd"),
        ("none + FedAvg-1(mix=0.5)", "mix: expected a term to mix with, got none"),
        ("ETF + FedDr+-1(term=fd)", "term: expected another than fd, which this method has"),
        ("none + FedProx-1(term=prox)", "term: expected another than prox, which this method"),
    ],
)
def test_what_cannot_be_trained_is_said(pictures, text, said):
    with pytest.raises(HeadstartError, match=said):
        result_of(prepare(settings(pictures)), text)


def test_features_have_no_extractor_to_train_and_random_networks_no_statistics(pictures):
    digits = {"data": "digits", "partition": {"name": "iid", "clients": 3}}
    with pytest.raises(HeadstartError, match="expected an extractor that trains"):
        result_of(prepare(make_config(digits)), "ETF + FedDr+-1")
    config = settings(pictures, network="mobilenet")
    with pytest.raises(HeadstartError, match="batch_norm: expected average or local for mobilenet"):
        result_of(prepare(config), "ETF + FedDr+-1")


def test_matched_tests_and_held_out_parts_exclude_each_other(pictures):
    with pytest.raises(HeadstartError, match="held_out: with matched"):
        settings(pictures, matched=True, held_out=0.3)
    prepared = prepare(settings(pictures, matched=True))
    for client in prepared.clients.values():
        assert set(client.test.labels) <= set(client.samples.labels)
        assert len(client.test.labels)


def test_diagnostics_are_off_unless_asked_for_and_change_no_model(pictures):
    text = "ETF + FedDr+-2(lr=0.5)"
    plain, first, _ = simulate(prepare(settings(pictures)), parsed(text))
    asked, second, _ = simulate(prepare(settings(pictures, diagnostics=True)), parsed(text))
    assert {point.diagnosis for point in plain.curve} == {None}
    assert all(set(point.diagnosis) == set(diagnose.NAMES) for point in asked.curve[1:])
    assert [p.accuracy for p in plain.curve] == [p.accuracy for p in asked.curve]
    assert [p.down for p in plain.curve] == [p.down for p in asked.curve]
    for name, array in first.params.items():
        assert np.array_equal(array, second.params[name])
    assert "Features and the head" in page([RunResult((asked,))])
    assert "Features and the head" not in page([RunResult((plain,))])


def test_a_rate_of_almost_nothing_moves_no_feature(pictures):
    still = result_of(prepare(settings(pictures, diagnostics=True)), "ETF + FedDr+-1(lr=1e-20)")
    point = still.curve[-1].diagnosis
    for kind in diagnose.KINDS:
        assert point[f"{kind}_gap"] == pytest.approx(0, abs=1e-6)
        assert point[f"{kind}_distance"] == pytest.approx(0, abs=1e-6)
        assert -1 <= point[f"{kind}_alignment"] <= 1
    moved = result_of(prepare(settings(pictures, diagnostics=True)), "ETF + FedDr+-1(lr=1.0)")
    assert moved.curve[-1].diagnosis["observed_gap"] > 0
    assert moved.curve[-1].diagnosis["observed_angle"] > 1


def test_every_method_of_table_4_is_one():
    assert set(paper.TABLE_4) <= set(gradient.METHODS)
