"""Sentences carried out: what they give, that a kill loses nothing, and what is refused."""

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
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.gradient import follow
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.steps import tensors
from headstart.runs.checkpoint import Checkpoint
from headstart.runs.config import dump_config, make_config, parsed
from headstart.runs.federate import prepare
from headstart.runs.folder import RunFolder
from headstart.runs.phases import tell
from headstart.runs.stories import compare, run_sentence
from headstart.runs.world import World

DIGITS = {
    "data": "digits",
    "held_out": 0.4,
    "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.3},
}


@pytest.fixture(scope="module")
def digits():
    return prepare(make_config(DIGITS))


def told(prepared, text):
    return tell(prepared, parsed(text))[0]


def share(result, when):
    return result.personal.weighted("global" if when == "before" else None)


def added(before, after, *keys):
    """What a point has cost more than the one before."""
    return [getattr(after, key) - getattr(before, key) for key in keys]


def timeless(result):
    """All but when it was made, and how long it took."""
    return replace(result, seconds=None, created="")


def test_the_first_point_is_the_closed_form_head(digits):
    results, stage = tell(digits, parsed("Fed3R"))
    pooled = Fed3R()
    z, y = digits.pooled()
    how = {"exact": True, "bound": float(digits.config.bound)}
    head = pooled.solve(pooled.measure(z, y, **how))
    expected = head.accuracy(digits.test.features, digits.test.labels)
    assert results.curve[0].accuracy == pytest.approx(expected)
    np.testing.assert_allclose(stage.params["head.weight"], head.weights, rtol=1e-5, atol=1e-7)
    assert results.phases == ("fed3r",)
    assert share(results, "before") == share(results, "after")


def test_training_goes_on_from_the_head_and_counts_what_it_costs(digits):
    results = told(digits, "Fed3R + FedAvg-6(head)")
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
    # 10 of 12 clients a round, 64·10 weights and 10 biases, 4 bytes each, each way
    assert curve[2].down - curve[1].down == pytest.approx(10 * 650 * 4)
    assert 0 <= (curve[2].up - curve[1].up) / (10 * 650 * 4) - 1 < 0.15


def test_torchs_count_of_a_head_is_two_thirds_of_what_is_written_down(digits):
    """2F_ψ of 3F_ψ a sample, and weighting the message: 650 numbers a visit, here within 4%."""
    head, clients = 64 * 10, len(digits.simulator.clients)
    curve = told(digits, "Fed3R + FedAvg-2(head) + FP-3(head)").curve
    assert curve[0].counted == curve[0].flops  # statistics are made without torch
    for before, after in itertools.pairwise(curve[:3]):
        done, counted = added(before, after, "flops", "counted")
        samples = done * clients / (3 * head)
        assert counted * clients == pytest.approx(2 * head * samples + 10 * 650)
        assert 2 / 3 < counted / done < 2 / 3 + 0.04
    done, counted = added(curve[2], curve[3], "flops", "counted")
    assert counted == pytest.approx(done * 2 / 3)  # at home nothing is sent


def test_only_local_labels_and_closed_forms_help_and_sgd_starts_from_them(digits):
    oll, prior = told(digits, "OLL(Fed3R)"), told(digits, "Fed3R + prior")
    assert share(oll, "after") > share(oll, "before") + 0.01
    assert share(prior, "after") >= share(oll, "after")
    assert share(oll, "before") == share(prior, "before")
    trained = told(digits, "OLL(Fed3R) + FP-3(head)")
    assert share(trained, "after") >= share(oll, "after") - 0.01
    both = told(digits, "Fed3R + prior + FP-1(head, lr=1e-12)")
    assert share(both, "after") == pytest.approx(share(prior, "after"))


def test_every_epoch_shows_local_and_absent_classes(digits):
    results = told(digits, "Fed3R + FP-3(head, every_epoch=true)")
    assert [row.epoch for row in results.epochs] == [0, 1, 2, 3]
    first, *_, last = results.epochs
    assert last.own > first.own
    assert last.absent < first.absent  # what a client lacks it forgets
    hidden = told(digits, "OLL(Fed3R) + FP-1(head, every_epoch=true)")
    assert {row.absent for row in hidden.epochs} == {0.0}


def test_a_sentence_twice_gives_the_same_bits_and_another_seed_others(digits):
    text = "none + Scaffold-3(head) + Ditto-2"
    (one, first), (two, second) = (tell(digits, parsed(text)) for _ in range(2))
    assert timeless(one) == timeless(two)
    for name, array in first.params.items():
        assert np.array_equal(array, second.params[name])
    other = prepare(make_config({**DIGITS, "seed": 1}))
    assert told(other, text).curve != one.curve


def test_early_stopping_and_a_window_of_models(digits):
    stopped = told(digits, "Fed3R + FedAvg-40(head, lr=1e-9, patience=2)")
    assert stopped.curve[-1].round < 40
    plain = tell(digits, parsed("none + FedAvg-4(head, lr=0.5)"))[1]
    wima = tell(digits, parsed("none + FedAvg-4(head, lr=0.5, window=4)"))[1]
    assert not np.allclose(plain.params["head.weight"], wima.params["head.weight"])


def test_a_later_phase_that_stops_early_has_its_last_point():
    prepared = prepare(make_config({**DIGITS, "evaluate_every": 7}))
    text = "Fed3R + FedAvg-3(head) + FedAvg-40(head, lr=30, patience=2)"
    results, stage = tell(prepared, parsed(text))
    last = results.curve[-1]
    assert (last.phase, last.round) == (2, 3)  # the round at which the first phase ended
    assert last.accuracy == results.accuracy == World(prepared).accuracy(stage)
    assert last.up > results.curve[-2].up


@pytest.mark.parametrize("method", ["Ditto", "Per-FedAvg", "pFedMe", "local-only"])
def test_the_accuracy_of_a_personal_training_is_that_of_what_clients_share(digits, method):
    results, stage = tell(digits, parsed(f"Fed3R + {method}-6(head)"))
    assert results.accuracy == World(digits).accuracy(stage)
    first, *_, last = (point.accuracy for point in results.curve)
    assert results.accuracy == last
    assert (first == last) == (method == "local-only")
    at_home = told(digits, f"Fed3R + {method}-6(head) + FP-1(head)")
    assert at_home.accuracy == results.accuracy
    assert at_home.curve[-1].accuracy is None


@pytest.mark.parametrize("frame", ["ETF", "Orthonormal"])
@pytest.mark.parametrize("how", ["prior", "ridge"])
def test_a_frame_that_was_trained_is_personalized_like_any_head(digits, frame, how):
    results = told(digits, f"{frame} + FedAvg-6(head, lr=0.5) + {how}")
    assert share(results, "after") > share(results, "before")


def test_the_head_that_clients_calibrate_counts_as_sent_to_them(digits):
    results, stage = tell(digits, parsed("Fed3R"))
    head = replace(stage.head, temperature=None)
    sent = len(digits.simulator.clients) * len(head.to_bytes())
    assert results.curve[0].down == sent
    assert told(digits, "none").curve[0].down == 0
    assert told(digits, "ETF").curve[0].down == 0


def test_test_classes_that_nobody_trains_on_cannot_be_diagnosed(tmp_path):
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 20)
    split = np.where(label == 2, "test", "train")
    np.savez(tmp_path / "x.npz", features=rng.normal(size=(60, 4)), label=label, split=split)
    told_of = {"data": str(tmp_path / "x.npz"), "diagnostics": True}
    prepared = prepare(make_config({**told_of, "partition": {"name": "iid", "clients": 4}}))
    results = told(prepared, "none + FedAvg-2(head)")
    assert results.accuracy == 0
    assert "angle" not in (results.curve[-1].diagnosis or {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Fed3R + FedAvg-2(head, speed=3)", "speed"),
        ("Fed3R + FP-2(head, speed=3)", "speed"),
        ("Fed3R + FedAvg-2(φ)", "extractor"),
        ("Fed3R + FedAvg-2(head, follow=true)", "follow"),
        ("Fed3R + FedAvg-2(head, batch=0)", "batch"),
        ("Fed3R + FedAvg-2(head, lr=1e300)", "rate"),
        ("Fed3R + FedAvg-2(head, drops=soon)", "drops"),
        ("Fed3R(name=x)", "name"),
        ("none(x=1)", "none"),
        ("Fed3R + prior(foo=1)", "prior"),
        ("Fed3R + FedAlt-2(φ)", "extractor"),
        ("Fed3R + ridge + FP(head)", "ridge"),
        ("Fed3R + ridge + prior", "both"),
        ("Fed3R + FedAvg-2(head, lr=0.1, rate=0.01)", "one of lr and rate"),
        ("Fed3R + FP-2(head, rate=0.1, lr=0.01)", "one of rate and lr"),
    ],
)
def test_what_cannot_be_done_is_said(digits, text, said):
    with pytest.raises(HeadstartError, match=said):
        tell(digits, parsed(text))


def test_nothing_is_carried_out_before_all_of_it_is_known_to_be_possible(digits):
    points = []
    with pytest.raises(HeadstartError, match="speed"):
        tell(digits, parsed("Fed3R + FedAvg-2(head) + FP-2(head, speed=3)"), watch=points.append)
    assert points == []


def test_tests_at_home_are_no_bytes_of_a_method_and_the_model_is_its_head_on_features(digits):
    results = told(digits, "Fed3R + FedAvg-2(head) + FP-2(head)")
    trained, at_home = results.curve[-2:]
    assert trained.up == at_home.up
    same = told(digits, "Fed3R + FedAvg-2(f) + FP-2(f)")
    assert timeless(replace(same, pipeline="", phases=())) == timeless(
        replace(results, pipeline="", phases=())
    )


def test_rounds_at_which_the_rate_drops_can_be_said(digits):
    plain = tell(digits, parsed("Fed3R + FedAvg-3(head, lr=0.01)"))[1]
    slower = tell(digits, parsed('Fed3R + FedAvg-3(head, lr=0.01, drops="1,2")'))[1]
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
    results, stage = tell(prepare(config), parsed("Fed3R + FedAvg-1(head)"))
    assert stage.spec.classes == 2
    assert results.accuracy is not None


def test_personal_phases_need_parts_to_test_on():
    bare = prepare(make_config({**DIGITS, "held_out": 0.0}))
    assert told(bare, "Fed3R + FedAvg-1(head)").personal is None
    for text in ("OLL(Fed3R)", "Fed3R + prior", "Fed3R + FP(head)"):
        with pytest.raises(HeadstartError, match="held_out"):
            tell(bare, parsed(text))


# -- runs ------------------------------------------------------------------------------------------


def test_the_yaml_form_says_the_same(tmp_path):
    text = "Fed3R(ridge=0.1) + FedAvg-2(head)"
    phases = [{"init": "fed3r", "ridge": 0.1}, {"train": "fedavg", "part": "head", "rounds": 2}]
    one, two = (make_config({**DIGITS, "phases": given}) for given in (text, phases))
    assert dump_config(one) == dump_config(two)
    results = run_sentence(one, tmp_path / "run")
    assert RunFolder(tmp_path / "run").results() == results.runs
    head = LinearHead.load(tmp_path / "run" / "model.safetensors")
    prepared = prepare(one)
    found = head.accuracy(prepared.test.features, prepared.test.labels)
    assert found == pytest.approx(results.accuracy)
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_compare_runs_what_is_missing_only(tmp_path):
    config = make_config(DIGITS)
    texts = ["Fed3R", "FedNCM + FedAvg-2(head)"]
    first = compare(texts[:1], config, tmp_path / "both")
    both = compare(texts, config, tmp_path / "both")
    assert both[0] == first[0]  # its seconds too: it was not run again
    assert [one.pipeline for one in both] == ["fed3r", "fedncm + fedavg-2(ψ)"]
    assert RunFolder(both[1].path).results() == both[1].runs
    before = (tmp_path / "both" / "report.html").read_bytes()
    with pytest.raises(HeadstartError, match="another"):
        compare(["FedNCM"], config, tmp_path / "both")
    with pytest.raises(HeadstartError, match="another"):
        compare([texts[0], "FedNCM"], config, tmp_path / "both")
    assert (tmp_path / "both" / "report.html").read_bytes() == before
    with pytest.raises(HeadstartError, match="twice"):
        compare(["Fed3R", "fed3r"], config, tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


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
    (one,), (two,) = (RunFolder(model.parent).results() for model in models)
    assert timeless(one) == timeless(two)


def test_a_run_stopped_in_a_later_phase_goes_on_as_if_it_had_not_been(digits, tmp_path):
    sentence = parsed("OLL(Fed3R + FedAvg-3(head)) + Ditto-6")
    whole = tell(digits, sentence)[0]
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", every=2)

    def stop(point):
        if (point.phase, point.round) == (3, 5):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tell(digits, sentence, checkpoint=checkpoint, watch=stop)
    again = tell(digits, sentence, checkpoint=checkpoint)[0]
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
    start = tell(pictures, parsed("Fed3R"))[1]
    end = tell(pictures, parsed("Fed3R + FedAvg-2(φ)"))[1]
    assert np.array_equal(start.params["head.weight"], end.params["head.weight"])
    moved = [
        name for name in start.params if not np.array_equal(start.params[name], end.params[name])
    ]
    assert moved
    assert all(name.startswith("extractor.") for name in moved)
    whole = tell(pictures, parsed("none + FedAvg-2(f) + FedAlt-1(personal=head) + FP-1(head)"))[0]
    assert whole.personal.clients


def test_clients_that_share_a_part_of_a_model_have_no_accuracy_together(pictures, tmp_path):
    config = make_config({**pictures.config.model_dump(), "phases": "Fed3R + FedPer-1(f)"})
    (result,) = run_sentence(config, tmp_path / "run").runs
    assert result.curve[0].accuracy is not None
    assert result.accuracy is result.confusion is None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "clients share a part of a model" in page
    assert "Nothing was evaluated" not in page


def test_torchs_count_of_a_network_lacks_what_nobody_needs(pictures):
    """No gradient by the pixels: 3% of small_cnn's 3F; with the head frozen, by its weights."""
    first, head = 8 * 8 * 32 * 27, 128 * 3
    ends = {}
    for part in ("f", "φ", "ψ"):
        before, after = told(pictures, f"none + FedAvg-1({part}, clients=4)").curve
        done, counted = added(before, after, "flops", "counted")
        held = [len(client.labels) for client in pictures.simulator.data.values()]
        model = build(tell(pictures, parsed("none"))[1].spec)
        names = {"f": "model", "φ": "extractor", "ψ": "head"}[part]
        sent = sum(np.prod(model.shapes[name]) for name in model.part(names))
        ends[part] = (counted * 4 - 4 * sent) / sum(held), done * 4 / sum(held)
    assert ends["f"][0] == pytest.approx(ends["f"][1] - first)
    assert ends["φ"][0] == pytest.approx(ends["φ"][1] - first - head)
    assert ends["ψ"][0] == pytest.approx(ends["ψ"][1] - head)
    assert 0.96 < ends["f"][0] / ends["f"][1] < 0.98


def test_random_features_and_statistics_that_follow_are_counted(pictures, digits):
    """dD a sample more through the extractor; of kept features once a visit; (φ, ψ) each round."""
    size = {"f": {}, "ψ": {}}
    for part, costs in size.items():
        for name in ("Fed3R", "Fed3R-RF(dimension=128, bandwidth=2)"):
            before, after = told(pictures, f"{name} + FedAvg-1({part}, clients=4)").curve
            costs[name] = added(before, after, "flops", "counted")
    held = sum(len(client.labels) for client in pictures.simulator.data.values()) / 4
    for part, done, counted in (("f", 3, 2), ("ψ", 1, 1)):  # ω never moves: no gradient by it
        plain, mapped = size[part].values()
        assert mapped[0] - plain[0] == pytest.approx(done * 128 * 128 * held)
        assert mapped[1] - plain[1] == pytest.approx(counted * 128 * 128 * held)
    kept = {}
    for name in ("Fed3R", "Fed3R-RF(dimension=64, bandwidth=2)"):
        before, after = told(digits, f"{name} + FedAvg-1(head, epochs=3, clients=12)").curve
        kept[name] = added(before, after, "flops", "counted", "formula_flops")
    held = sum(len(client.labels) for client in digits.simulator.data.values()) / 12
    gaps = np.subtract(*reversed(kept.values()))
    np.testing.assert_allclose(gaps, [64 * 64 * held, 64 * 64 * held, 3 * 64 * 64 * held])
    follows, plain = (
        told(pictures, f"Fed3R + FedAvg-1(f, clients=4{more})").curve[-1]
        for more in (", follow=true", "")
    )
    once = told(pictures, "Fed3R").curve[0]
    for key in ("flops", "counted", "formula_flops", "formula_up"):
        assert added(plain, follows, key) == pytest.approx([getattr(once, key)])


def test_fed3r_ft_follows_the_extractor(pictures):
    results, stage = tell(pictures, parsed("Fed3R-FT(FedAvg-3(f))"))
    assert results.phases == ("fed3r", "fedavg-3(f, follow=true)")
    assert np.isfinite(stage.params["head.weight"]).all()
    still = tell(pictures, parsed("Fed3R-FT(FedAvg-1(f, lr=1e-12))"))[1]
    start = tell(pictures, parsed("Fed3R"))[1]
    moved = np.abs(still.params["head.weight"] - start.params["head.weight"]).max()
    assert moved < 0.02  # nothing has moved: the sums are those the head was solved from


RANDOM = "dimension=8, bandwidth=auto"


def test_random_features_of_an_extractor_that_trains(mixed):
    """The model through torch is the closed form's head through NumPy, then it trains."""
    start = tell(mixed, parsed(f"Fed3R-RF({RANDOM})"))[1]
    view = World(mixed).features(start.params)
    model, x = build(start.spec), mixed.test.features
    params = tensors(start.params)
    with torch.no_grad():
        found = model.logits(params, model.features(params, model.inputs(x)[None]))[0].numpy()
    expected = start.head.scores(view.test.features) / start.head.temperature
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert start.params["head.weight"].shape == (3, 8)
    assert start.spec.temperature > 1e-3
    for part, still in (("φ", "head."), ("ψ", "extractor."), ("f", "none")):
        end = tell(mixed, parsed(f"Fed3R-RF({RANDOM}) + FedAvg-1({part})"))[1]
        for name, array in end.params.items():
            moved = not np.array_equal(array, start.params[name])
            assert moved is not name.startswith(still), name
    results = told(mixed, f"OLL(Fed3R-RF({RANDOM}) + FedAvg-1(f)) + FP-1(f)")
    assert results.personal.clients
    ridge = told(mixed, f"Fed3R-RF({RANDOM}) + FedAvg-1(f) + ridge")
    assert share(ridge, "after") > 0.5


@pytest.mark.parametrize(
    "text", [f"Fed3R-RF-FT(FedAvg-ROUNDS, {RANDOM})", "FedNCM-FT(FedAvg-ROUNDS)"]
)
def test_random_features_and_class_means_follow_the_extractor_too(mixed, text):
    start = tell(mixed, parsed(text.split("-FT")[0] + f"({RANDOM})" * ("RF" in text)))[1]
    still = tell(mixed, parsed(text.replace("ROUNDS", "1(f, lr=1e-12)")))[1]
    moved = np.abs(still.params["head.weight"] - start.params["head.weight"]).max()
    assert moved < 0.02
    end = tell(mixed, parsed(text.replace("ROUNDS", "2(f, lr=0.05)")))[1]
    again = tell(mixed, parsed(text.replace("ROUNDS", "2(f, lr=0.05)")))[1]
    assert np.array_equal(end.params["head.weight"], again.params["head.weight"])
    assert np.abs(end.params["head.weight"] - start.params["head.weight"]).max() > moved


@pytest.mark.parametrize("head", ["FedCOF", "shared-variances", "ETF"])
def test_a_head_of_other_statistics_does_not_follow(pictures, head):
    points = []
    with pytest.raises(HeadstartError, match="follow: expected a head of sums of features"):
        tell(pictures, parsed(f"{head}-FT(FedAvg-1(f))"), watch=points.append)
    assert points == []


def test_statistics_that_follow_are_those_of_every_clients_last_visit():
    """Data that grow, and a class that appears: the sum is the fresh one, exactly."""
    rng = np.random.default_rng(0)
    spec, classes = Spec(3, 5), np.arange(3)
    params = initial(build(spec), None, 0)
    words = follow.extractor_words(spec, params, classes)
    z, y = rng.normal(size=(40, 5)).astype(np.float32), rng.integers(0, 2, 40)
    grown = np.concatenate([y, [2, 2, 2]])
    more = np.concatenate([z, rng.normal(size=(3, 5)).astype(np.float32)])
    for head in (Fed3R(), FedNCM(), Fed3RRandomFeatures(dimension=7, bandwidth=2.0)):
        d = 7 if hasattr(head, "dimension") else 5
        small = {"a": ClientData(z[:10], y[:10]), "b": ClientData(z[10:], y[10:])}
        simulator = Simulator(small)
        sum_ = simulator.total(follow.follow(spec, head), words).vectors[0]
        memory = small["b"].memory
        large = {"b": ClientData(more[10:], grown[10:], memory=memory)}
        sum_ = sum_ + Simulator(large).total(follow.follow(spec, head), words).vectors[0]
        found = head.solve(follow.unpacked(sum_, head.statistic, classes, d))
        fresh = head.solve(head.measure(more, grown))
        np.testing.assert_allclose(found.weights, fresh.weights, rtol=1e-9, atol=1e-12)
        assert found.classes.tolist() == [0, 1, 2]
