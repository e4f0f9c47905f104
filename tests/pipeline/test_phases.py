"""Pipelines carried out: what their phases give, and what they cost."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from headstart import Fed3R
from headstart.pipeline import training
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare

from .helpers import DIGITS, model_of, own, result_of, run, shared, spent, timeless


def test_the_first_point_is_the_closed_form_head(digits):
    results, stage, _ = run(digits, "Fed3R")
    pooled = Fed3R()
    z, y = digits.pooled()
    how = {"exact": True, "bound": float(digits.config.bound)}
    head = pooled.solve(pooled.measure(z, y, **how))
    expected = head.accuracy(digits.test.features, digits.test.labels)
    assert results.curve[0].accuracy == pytest.approx(expected)
    np.testing.assert_allclose(stage.head.weights, head.weights, rtol=1e-5, atol=1e-7)
    assert results.phases == ("Fed3R",)
    assert shared(results) == own(results)


def test_training_goes_on_from_the_head_and_counts_what_it_costs(digits):
    results = result_of(digits, "Fed3R + FedAvg-6(head)")
    curve = results.curve
    assert [(point.phase, point.round) for point in curve] == [
        (0, 0),
        *((1, n) for n in range(1, 7)),
    ]
    assert curve[-1].accuracy > curve[0].accuracy - 0.02
    for key in ("up", "down", "flops", "formula_up", "formula_flops"):
        values = [getattr(point, key) for point in curve]
        assert values == sorted(values), key
        assert values[-1] > values[0], key
    # 10 of 12 clients per round, 64·10 weights and 10 biases, 4 bytes each, each way; and once to
    # each client the list of 10 classes
    assert curve[1].down - curve[0].down == 10 * (650 * 4 + 10 * 8)
    assert curve[-1].down - curve[0].down == 6 * 10 * 650 * 4 + 12 * 10 * 8
    assert (
        0 <= (curve[2].up - curve[1].up) / (10 * 650 * 4) - 1 < 0.2
    )  # the header, and the names of its fields


def test_torchs_count_of_a_head_is_two_thirds_of_what_is_written_down(digits):
    """2F_ψ of 3F_ψ a sample, and weighting the message: 650 numbers a visit, here within 4%."""
    head, clients = 64 * 10, len(digits.clients)
    curve = result_of(digits, "Fed3R + FedAvg-2(head) + FP-3(head)").curve
    assert curve[0].counted == curve[0].flops  # statistics are made without torch
    for before, after in itertools.pairwise(curve[:3]):
        done, counted = spent(before, after)
        samples = done * clients / (3 * head)
        assert counted * clients == pytest.approx(2 * head * samples + 10 * 650)
        assert 2 / 3 < counted / done < 2 / 3 + 0.04
    done, counted = spent(*curve[2:4])
    assert counted == pytest.approx(done * 2 / 3)  # at home nothing is sent


def test_only_local_labels_and_closed_forms_help_and_sgd_starts_from_them(digits):
    oll, prior = result_of(digits, "OLL(Fed3R)"), result_of(digits, "Fed3R + prior")
    assert own(oll) > shared(oll) + 0.01
    assert own(prior) >= own(oll)
    assert shared(oll) == shared(prior)
    trained = result_of(digits, "OLL(Fed3R) + FP-3(head)")
    assert own(trained) >= own(oll) - 0.01
    both = result_of(digits, "Fed3R + prior + FP-1(head, lr=1e-12)")
    assert own(both) == pytest.approx(own(prior))


def test_every_epoch_shows_local_and_absent_classes(digits):
    results = result_of(digits, "Fed3R + FP-3(head, every_epoch=true)")
    assert [row.epoch for row in results.epochs] == [0, 1, 2, 3]
    first, *_, last = results.epochs
    assert last.own > first.own
    assert last.absent < first.absent  # what a client lacks it forgets
    hidden = result_of(digits, "OLL(Fed3R) + FP-1(head, every_epoch=true)")
    assert {row.absent for row in hidden.epochs} == {0.0}


def test_a_sentence_twice_gives_the_same_bits_and_another_seed_others(digits):
    text = "none + Scaffold-3(head) + Ditto-2"
    (one, first, _), (two, second, _) = (run(digits, text) for _ in range(2))
    assert timeless(one) == timeless(two)
    for name, array in first.params.items():
        assert np.array_equal(array, second.params[name])
    other = prepare(make_config({**DIGITS, "seed": 1}))
    assert result_of(other, text).curve != one.curve


def test_early_stopping_and_a_window_of_models(digits):
    stopped = result_of(digits, "Fed3R + FedAvg-40(head, lr=1e-9, patience=2)")
    assert stopped.curve[-1].round < 40
    plain = model_of(digits, "none + FedAvg-4(head, lr=0.5)")
    wima = model_of(digits, "none + FedAvg-4(head, lr=0.5, window=4)")
    assert not np.allclose(plain.params["head.weight"], wima.params["head.weight"])


def test_a_later_phase_that_stops_early_has_its_last_point():
    prepared = prepare(make_config({**DIGITS, "evaluate_every": 7}))
    text = "Fed3R + FedAvg-3(head) + FedAvg-40(head, lr=30, patience=2)"
    results, stage, context = run(prepared, text)
    last = results.curve[-1]
    assert (last.phase, last.round) == (2, 3)  # the round at which the first phase ended
    assert last.accuracy == results.accuracy == context.accuracy(stage)
    assert last.up > results.curve[-2].up


@pytest.mark.parametrize("method", ["Ditto", "Per-FedAvg", "pFedMe", "local-only"])
def test_the_accuracy_of_a_personal_training_is_that_of_what_clients_share(digits, method):
    results, stage, context = run(digits, f"none + {method}-6")
    assert results.accuracy == context.accuracy(stage)
    first, *_, last = (point.accuracy for point in results.curve)
    assert results.accuracy == last
    assert (first == last) == (method == "local-only")
    tuned = result_of(digits, f"none + {method}-6 + FP-1(head)")
    assert tuned.accuracy == results.accuracy
    assert tuned.curve[-1].accuracy is None


def test_the_head_that_clients_calibrate_counts_as_sent_to_them(digits):
    results, stage, _ = run(digits, "Fed3R")
    head = replace(stage.head, temperature=None)
    sent = len(digits.clients) * len(head.to_bytes())
    assert results.curve[0].down == sent
    assert result_of(digits, "none + FedAvg-1(head)").curve[0].down == 0
    assert result_of(digits, "ETF").curve[0].down == 0


def test_a_temperature_that_is_stated_costs_no_message(digits):
    stated = prepare(make_config({**DIGITS, "temperature": 0.3}))
    results, stage, context = run(stated, "Fed3R")
    first = results.curve[0]
    assert first.down == 0
    assert first.up < result_of(digits, "Fed3R").curve[0].up
    assert training.trainable(context, stage).spec.temperature == stage.head.temperature == 0.3
    none = model_of(stated, "none + FedAvg-1(head)")
    assert none.spec.temperature == 1  # it is that of a closed-form head


def test_tests_at_home_are_no_bytes_of_a_method_and_the_model_is_its_head_on_features(digits):
    results = result_of(digits, "Fed3R + FedAvg-2(head) + FP-2(head)")
    trained, tuned = results.curve[-2:]
    assert trained.up == tuned.up
    same = result_of(digits, "Fed3R + FedAvg-2(f) + FP-2(f)")
    said = {"pipeline": "", "phases": ()}
    assert replace(timeless(same), **said) == replace(timeless(results), **said)


def test_a_class_that_only_left_out_clients_have_is_no_class_of_the_model(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.array([0, 1] * 20 + [2])
    clients = np.array(["a"] * 20 + ["b"] * 20 + ["c"])
    split = np.array(["train"] * 41)
    split[[0, 1, 20, 21]] = "test"
    path = tmp_path / "data.npz"
    z = rng.normal(size=(41, 4)).astype(np.float32)
    np.savez(path, features=z, label=labels, client=clients, split=split)
    config = make_config({"data": str(path), "minimum": 2, "cohort": 2})
    results, stage, _ = run(prepare(config), "Fed3R + FedAvg-1(head)")
    assert stage.spec.classes == 2
    assert results.accuracy is not None
