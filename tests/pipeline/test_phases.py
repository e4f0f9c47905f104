"""Pipelines carried out: what they give, that a kill loses nothing, and what is refused."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from headstart import Fed3R, Fed3RRandomFeatures, FedNCM, HeadstartError, LinearHead
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient import refit
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.steps import tensors
from headstart.pipeline import local, training
from headstart.pipeline.checkpoint import Checkpoint
from headstart.pipeline.config import dump_config, make_config, parsed
from headstart.pipeline.context import ModelState
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.local import planned
from headstart.pipeline.run import check_pipeline, run_config, simulate

DIGITS = {
    "data": "digits",
    "held_out": 0.4,
    "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.3},
}


@pytest.fixture(scope="module")
def digits():
    return prepare(make_config(DIGITS))


def run(experiment, text, **how):
    """The result, the model and the context of a pipeline."""
    return simulate(experiment, parsed(text), **how)


def result_of(experiment, text):
    return run(experiment, text)[0]


def model_of(experiment, text):
    return run(experiment, text)[1]


def timeless(result):
    """A result without when it was made and how long that took."""
    return replace(result, seconds=None, created="")


def shared(result):
    return result.personal.weighted("global")


def own(result):
    return result.personal.weighted()


def shared_hits(result):
    return result.personal.models["global"]


def own_hits(result):
    return result.personal.models[result.personal.final]


def spent(before, after, keys=("flops", "counted")):
    return [getattr(after, key) - getattr(before, key) for key in keys]


def load(path):
    return RunFolder(path).result()


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
    # 10 of 12 clients a round, 64·10 weights and 10 biases, 4 bytes each, each way; and once to
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
    at_home = result_of(digits, f"none + {method}-6 + FP-1(head)")
    assert at_home.accuracy == results.accuracy
    assert at_home.curve[-1].accuracy is None


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("none", 0.1),
        ("ETF", 0.1),
        ("OLL(none)", 0.01),
        ("OLL(ETF)", 0.01),
        ("Fed3R", 0.001),
        ("OLL(Fed3R)", 0.001),
    ],
)
def test_the_rate_of_the_papers_at_home(digits, text, rate):
    """A tenth after a closed form, a tenth by OLL whatever came before; the head alone has both."""
    context, stage = digits.context(), ModelState()
    for number, phase in enumerate(parsed(text).phases):
        stage = phase.run(context, stage, number)
    job, _ = planned(parsed("FP(head)").phases[-1], context, training.trainable(context, stage))
    assert job.training.rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("method", "setting", "usual"), [("pFedMe", "inner_rate", 0.1), ("Per-FedAvg", "alpha", 0.01)]
)
def test_rates_inside_a_method_follow_the_learning_rate_unless_they_are_given(
    digits, method, setting, usual
):
    """After a closed-form head the usual ones were a hundred times too long."""
    for init, scale in (("none", 1.0), ("ETF", 1.0), ("Fed3R", 0.01)):
        job = model_of(digits, f"{init} + {method}-1(lr=0.02)").job
        assert job.settings[setting] == pytest.approx(usual * scale)
        given = model_of(digits, f"{init} + {method}-1({setting}=0.3)").job
        assert given.settings[setting] == 0.3
        assert given.training.rate == pytest.approx(0.1 * scale)
    results = result_of(digits, f"Fed3R + {method}-20")
    assert results.accuracy > results.curve[0].accuracy - 0.02
    assert own(results) > shared(results) - 0.005


def test_the_settings_of_trainings_are_in_the_result_as_they_were_used(
    digits, pictures, monkeypatch
):
    used, begin, evaluate = [], training.begin, local.evaluate

    def begun(job, params):
        used.append(job.training.rate)
        return begin(job, params)

    def alone(context, state, job=None, home=None):
        used.extend([job.training.rate] if job else [])
        evaluate(context, state, job, home)

    monkeypatch.setattr(training, "begin", begun)
    monkeypatch.setattr(local, "evaluate", alone)
    cases = [
        (digits, "Fed3R + FedAvg-1(ψ) + FP-2(ψ)", {"lr": 0.001, "epochs": 1, "batch": 50}),
        (digits, "OLL(none + pFedMe-1) + FP-3", {"lr": 0.1, "inner_rate": 0.1}),
        (digits, "Fed3R + FedProx-1(lr=0.3, mu=2)", {"lr": 0.3, "mu": 2}),
        (pictures, "Fed3R-FT(FedAvg-1(f, lr=0.01)) + FP-1(ψ)", {"lr": 0.01, "momentum": None}),
    ]
    for experiment, text, expected in cases:
        used.clear()
        settings = result_of(experiment, text).settings
        phases = {key: said for key, said in settings.items() if key.startswith("phase ")}
        assert [said["lr"] for said in phases.values()] == used
        first = phases["phase 1"]
        assert {key: first.get(key) for key in expected} == expected
        assert list(phases)[1:] in ([], ["phase 3" if "OLL" in text else "phase 2"])


@pytest.mark.parametrize("how", ["prior", "ridge"])
def test_a_head_that_has_seen_no_features_is_not_personalized_in_closed_form(digits, how):
    with pytest.raises(HeadstartError, match=f"^{how}: expected a head that has seen features"):
        check_pipeline(digits.context(), parsed(f"ETF + {how}"))
    check_pipeline(digits.context(), parsed(f"ETF + FedAvg-1(ψ) + {how}"))


@pytest.mark.parametrize("frame", ["ETF", "Orthonormal"])
@pytest.mark.parametrize("how", ["prior", "ridge"])
def test_a_frame_that_was_trained_is_personalized_like_any_head(digits, frame, how):
    results = result_of(digits, f"{frame} + FedAvg-6(head, lr=0.5) + {how}")
    assert own(results) > shared(results)


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


def test_test_classes_that_nobody_trains_on_cannot_be_diagnosed(tmp_path):
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 20)
    split = np.where(label == 2, "test", "train")
    np.savez(tmp_path / "x.npz", features=rng.normal(size=(60, 4)), label=label, split=split)
    told_of = {"data": str(tmp_path / "x.npz"), "diagnostics": True}
    prepared = prepare(make_config({**told_of, "partition": {"name": "iid", "clients": 4}}))
    results = result_of(prepared, "none + FedAvg-2(head)")
    assert results.accuracy == 0
    assert results.curve[-1].diagnosis is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Fed3R + FedAvg-2(head, speed=3)", "speed"),
        ("Fed3R + FP-2(head, speed=3)", "speed"),
        ("Fed3R + FedAvg-2(φ)", "extractor"),
        ("Fed3R + FedAvg-2(head, refit=fed3r)", "refit: expected an extractor that trains"),
        ("Fed3R + FedAvg-2(head, batch=0)", "batch"),
        ("Fed3R + FedAvg-2(head, lr=1e300)", "rate"),
        ("Fed3R + FedAvg-2(head, drops=soon)", "drops"),
        ("Fed3R(name=x)", "name"),
        ("none(x=1)", "none"),
        ("Fed3R + prior(foo=1)", "prior"),
        ("Fed3R + FedAlt-2(φ)", "extractor"),
        ("Fed3R + FedSim-2(ψ)", "network .* whose head is personal and the other part shared"),
        ("Fed3R + pFedMe-2(ψ)", "network .* whose head is personal and the other part shared"),
        ("Fed3R + pFedMe-2(f)", "personal: expected one of extractor, head, got 'model'"),
        ("Fed3R + ridge + FP(head)", "ridge"),
        ("Fed3R + ridge + prior", "both"),
        ("Fed3R + FedAvg-2(head, lr=0.1, rate=0.01)", "one of lr and rate"),
        ("Fed3R + FP-2(head, rate=0.1, lr=0.01)", "one of rate and lr"),
    ],
)
def test_what_cannot_be_done_is_said(digits, text, said):
    with pytest.raises(HeadstartError, match=said):
        run(digits, text)


def test_nothing_is_carried_out_before_all_of_it_is_known_to_be_possible(digits):
    points = []
    with pytest.raises(HeadstartError, match="speed"):
        run(digits, "Fed3R + FedAvg-2(head) + FP-2(head, speed=3)", watch=points.append)
    assert points == []


def test_tests_at_home_are_no_bytes_of_a_method_and_the_model_is_its_head_on_features(digits):
    results = result_of(digits, "Fed3R + FedAvg-2(head) + FP-2(head)")
    trained, at_home = results.curve[-2:]
    assert trained.up == at_home.up
    same = result_of(digits, "Fed3R + FedAvg-2(f) + FP-2(f)")
    said = {"pipeline": "", "phases": ()}
    assert replace(timeless(same), **said) == replace(timeless(results), **said)


def test_rounds_at_which_the_rate_drops_can_be_said(digits):
    plain = model_of(digits, "Fed3R + FedAvg-3(head, lr=0.01)")
    slower = model_of(digits, 'Fed3R + FedAvg-3(head, lr=0.01, drops="1,2")')
    assert not np.array_equal(plain.params["head.weight"], slower.params["head.weight"])


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


def test_personal_phases_need_parts_to_test_on():
    bare = prepare(make_config({**DIGITS, "held_out": 0.0}))
    assert result_of(bare, "Fed3R + FedAvg-1(head)").personal is None
    for text in ("OLL(Fed3R)", "Fed3R + prior", "Fed3R + FP(head)"):
        with pytest.raises(HeadstartError, match="held_out"):
            run(bare, text)


# -- runs ------------------------------------------------------------------------------------------


def test_the_yaml_form_says_the_same(tmp_path):
    text = "Fed3R(ridge=0.1) + FedAvg-2(head)"
    phases = [{"init": "fed3r", "ridge": 0.1}, {"train": "fedavg", "part": "head", "rounds": 2}]
    one, two = (make_config({**DIGITS, "pipeline": given}) for given in (text, phases))
    assert dump_config(one) == dump_config(two)
    (results,) = run_config(one, tmp_path / "run").runs
    assert load(tmp_path / "run") == results
    head = LinearHead.load(tmp_path / "run" / "model.safetensors")
    prepared = prepare(one)
    found = head.accuracy(prepared.test.features, prepared.test.labels)
    assert found == pytest.approx(results.accuracy)
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    """kill -9 in the middle of a training with client memories; the end is the undisturbed one."""
    args = ["Fed3R + Scaffold-120(head) + Ditto-3", "--data", "digits", "checkpoint_every=3"]
    command = [sys.executable, "-m", "headstart", "run", *args, "--out"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    path = tmp_path / "killed" / "checkpoint.safetensors"
    process = subprocess.Popen([*command, str(tmp_path / "killed")], **quiet)
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert path.exists()
    assert not (tmp_path / "killed" / "results.json").exists()
    for name in ("killed", "undisturbed"):
        subprocess.run([*command, str(tmp_path / name)], check=True, **quiet)
    models = [tmp_path / name / "model.safetensors" for name in ("killed", "undisturbed")]
    assert models[0].read_bytes() == models[1].read_bytes()
    one, two = (load(model.parent) for model in models)
    assert timeless(one) == timeless(two)


def test_a_run_stopped_in_a_later_phase_goes_on_as_if_it_had_not_been(digits, tmp_path):
    text = "OLL(Fed3R + FedAvg-3(head)) + Ditto-6"
    whole = result_of(digits, text)
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", every=2)

    def stop(point):
        if (point.phase, point.round) == (3, 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(digits, text, checkpoint=checkpoint, watch=stop)
    again = run(digits, text, checkpoint=checkpoint)[0]
    assert timeless(again) == timeless(whole)


# -- an extractor that trains ----------------------------------------------------------------------


def painted(folder, wrong=99):
    """Four clients, three classes told by colour, 12 pixels; every so many are of another class."""
    rng = np.random.default_rng(0)
    for client in range(4):
        for at in range(18):
            pixels = rng.integers(0, 90, (12, 12, 3))
            pixels[:, :, at % 3] += 110
            place = folder / f"c{client}" / f"k{(at + (at % wrong == 5)) % 3}" / f"{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(place)
    return {"data": str(folder), "network": "small_cnn", "pixels": 8, "held_out": 0.3, "cohort": 2}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return prepare(make_config(painted(tmp_path_factory.mktemp("pictures"))))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Pictures that no head separates: its temperature is not 0, and there is a slope."""
    return prepare(make_config(painted(tmp_path_factory.mktemp("mixed"), wrong=6)))


def test_the_extractor_trains_under_a_frozen_head(pictures):
    start = model_of(pictures, "Fed3R")
    end = model_of(pictures, "Fed3R + FedAvg-2(φ)")
    assert np.array_equal(start.params["head.weight"], end.params["head.weight"])
    moved = [
        name for name in start.params if not np.array_equal(start.params[name], end.params[name])
    ]
    assert moved
    assert all(name.startswith("extractor.") for name in moved)
    whole = result_of(pictures, "none + FedAvg-2(f) + FedAlt-1(personal=head) + FP-1(head)")
    assert whole.personal.clients


def test_clients_that_share_a_part_of_a_model_have_no_accuracy_together(pictures, tmp_path):
    config = make_config({**pictures.config.model_dump(), "pipeline": "Fed3R + FedPer-1(f)"})
    (results,) = run_config(config, tmp_path / "run").runs
    assert results.curve[0].accuracy is not None
    assert results.accuracy is None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "clients share a part of a model" in page
    assert "Nothing was evaluated" not in page


@pytest.mark.parametrize("method", ["FedSim", "FedAlt", "pFedMe"])
@pytest.mark.parametrize(("personal", "shared"), [("ψ", "extractor"), ("φ", "head")])
def test_the_part_that_is_named_stays_with_the_client(pictures, method, personal, shared):
    """And the other alone is sent: 2b bytes a round and client, or 2dC."""
    start = model_of(pictures, "none")
    results, stage, _ = run(pictures, f"none + {method}-1({personal}, lr=0.1)")
    moved = {n.partition(".")[0] for n, a in start.params.items() if (a != stage.params[n]).any()}
    assert moved == {shared}
    first, last = results.curve
    b = sum(a.size for n, a in start.params.items() if n.startswith("extractor."))
    sent, kept = (b, 129 * 3) if shared == "extractor" else (128 * 3, b)  # a formula has no bias
    assert last.formula_up - first.formula_up == 2 * 4 * sent
    assert last.accuracy is None
    memories = [client.memory for client in pictures.clients.values()]
    assert [len(own["personal"]) for own in memories if own] == [kept, kept]


def test_fedgela_at_home_has_the_clients_own_frame_and_the_shared_model_the_plain_one(tmp_path):
    """An extractor that has not moved: what differs is the frame."""
    config = painted(tmp_path)
    for path in tmp_path.glob("c*/*/*.png"):
        most = int(path.parts[-3][1:]) % 3
        if path.parts[-2] != f"k{most}" and int(path.stem) % 2:
            path.unlink()
    prepared = prepare(make_config(config))
    start = result_of(prepared, "ETF")
    assert shared_hits(start) == own_hits(start)
    text = "ETF + FedGELA-1(lr=1e-9)"
    still, further = result_of(prepared, text), result_of(prepared, f"{text} + FP-1(lr=1e-9)")
    assert still.accuracy == start.accuracy
    for results in (still, further):
        assert shared_hits(results) == shared_hits(start)
        assert own_hits(results) != shared_hits(results)
    assert still.personal == further.personal
    other = result_of(prepared, f"{text} + FP-1(like=fedbabu, lr=1e-9)")
    assert other.personal == start.personal


def test_torchs_count_of_a_network_lacks_what_nobody_needs(pictures):
    """No gradient by the pixels: 3% of small_cnn's 3F; with the head frozen, by its weights."""
    first, head = 8 * 8 * 32 * 27, 128 * 3
    ends = {}
    for part in ("f", "φ", "ψ"):
        before, after = result_of(pictures, f"none + FedAvg-1({part}, clients=4)").curve
        done, counted = spent(before, after)
        held = [len(client.samples.labels) for client in pictures.clients.values()]
        model = build(model_of(pictures, "none").spec)
        names = {"f": "model", "φ": "extractor", "ψ": "head"}[part]
        sent = sum(np.prod(model.shapes[name]) for name in model.part(names))
        ends[part] = (counted * 4 - 4 * sent) / sum(held), done * 4 / sum(held)
    assert ends["f"][0] == pytest.approx(ends["f"][1] - first)
    assert ends["φ"][0] == pytest.approx(ends["φ"][1] - first - head)
    assert ends["ψ"][0] == pytest.approx(ends["ψ"][1] - head)
    assert 0.96 < ends["f"][0] / ends["f"][1] < 0.98


def test_random_features_and_refitted_heads_are_counted(pictures, digits):
    """dD a sample more through the extractor; of kept features once a visit; (φ, ψ) each round."""
    size = {"f": {}, "ψ": {}}
    for part, costs in size.items():
        for name in ("Fed3R", "Fed3R-RF(dimension=128, bandwidth=2)"):
            before, after = result_of(pictures, f"{name} + FedAvg-1({part}, clients=4)").curve
            costs[name] = spent(before, after)
    held = sum(len(client.samples.labels) for client in pictures.clients.values()) / 4
    for part, done, counted in (("f", 3, 2), ("ψ", 1, 1)):  # ω never moves: no gradient by it
        plain, mapped = size[part].values()
        assert mapped[0] - plain[0] == pytest.approx(done * 128 * 128 * held)
        assert mapped[1] - plain[1] == pytest.approx(counted * 128 * 128 * held)
    kept = {}
    for name in ("Fed3R", "Fed3R-RF(dimension=64, bandwidth=2)"):
        before, after = result_of(digits, f"{name} + FedAvg-1(head, epochs=3, clients=12)").curve
        kept[name] = spent(before, after, ("flops", "counted", "formula_flops"))
    held = sum(len(client.samples.labels) for client in digits.clients.values()) / 12
    gaps = np.subtract(*reversed(kept.values()))
    np.testing.assert_allclose(gaps, [64 * 64 * held, 64 * 64 * held, 3 * 64 * 64 * held])
    refitted, plain = (
        result_of(pictures, f"Fed3R + FedAvg-1(f, clients=4{more})").curve[-1]
        for more in (", refit=fed3r", "")
    )
    once = result_of(pictures, "Fed3R").curve[0]
    for key in ("flops", "counted", "formula_flops", "formula_up"):
        assert spent(plain, refitted, [key]) == pytest.approx([getattr(once, key)])


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
