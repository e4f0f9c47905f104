"""Runs: a configuration in, a folder out, and changes that leave no trace where none should be."""

import csv
import json
import math

import numpy as np
import pytest
import yaml

import headstart as hs
from headstart.data.datasets import load
from headstart.federation.simulator import Simulator
from headstart.files import readable
from headstart.pipeline.change import add, forget
from headstart.pipeline.config import dump_config, make_config, read_config
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import run_config
from headstart.progress import silent


def run(config, path, progress=silent):
    """The result of the configuration's one seed."""
    (result,) = run_config(config, path, progress=progress).runs
    return result


def settings(**more):
    return {
        "data": "digits",
        "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.3},
        "pipeline": "Fed3R(ridge=1.0)",
        "held_out": 0.3,
        **more,
    }


@pytest.fixture
def finished(tmp_path):
    run(make_config(settings()), tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def newcomer(tmp_path):
    test = load("digits").test_part()
    np.savez(tmp_path / "new.npz", features=test.features[:30], label=test.labels[:30])
    return str(tmp_path / "new.npz")


def test_a_run_tells_who_gains_by_each_personal_head(finished):
    personal = finished.result().personal
    assert list(personal.models) == ["global", "oll", "prior", "ridge"]
    assert personal.clients == tuple(finished.members())
    for model in personal.models:
        assert 0 <= personal.mean(model) <= 1
    assert not personal.change("global").any()
    assert len(personal.change("ridge")) == sum(tested > 0 for tested in personal.tested)


@pytest.mark.parametrize("points", [1, 2, 5])
def test_every_upload_is_in_the_total_however_few_the_curves_points(tmp_path, points):
    results = run(make_config(settings(curve_points=points, exact=False)), tmp_path / "few")
    total = RunFolder(tmp_path / "few").model().provenance["samples"]
    assert total == results.data.samples
    assert len(results.head.arrivals) == points


def test_the_temperature_may_be_that_of_samples_left_out(tmp_path, finished):
    left = run(make_config(settings(temperature="left-out")), tmp_path / "left")
    plain = finished.result()
    assert left.head.temperature > plain.head.temperature
    for model in ("global", "oll"):
        assert left.personal.models[model] == plain.personal.models[model]


def test_a_temperature_that_is_stated_is_asked_of_nobody(tmp_path, monkeypatch):
    asked, total = [], Simulator.total

    def watched(self, step, *rest, **more):
        asked.append(step.name)
        return total(self, step, *rest, **more)

    monkeypatch.setattr(Simulator, "total", watched)
    results = run(make_config(settings(temperature=0.25)), tmp_path / "stated")
    assert "calibrate" not in asked
    assert results.head.temperature == 0.25
    assert RunFolder(tmp_path / "stated").model().temperature == 0.25
    assert RunFolder(tmp_path / "stated").config.temperature == 0.25
    run(make_config(settings()), tmp_path / "asked")
    assert "calibrate" in asked


@pytest.mark.parametrize("wrong", ["cold", 0, -1.0, math.inf, math.nan, True, None])
def test_a_temperature_that_is_none_is_named(wrong):
    said = "config: temperature: expected training, left-out or a number above 0, got "
    with pytest.raises(hs.HeadstartError, match=said):
        make_config(settings(temperature=wrong))


def test_a_run_folder_holds_what_it_promises(finished):
    there = {item.name for item in finished.path.iterdir()}
    assert there >= {
        "config.yaml",
        "events.jsonl",
        "curves.csv",
        "clients.csv",
        "model.safetensors",
        "total.safetensors",
        "clients.json",
        "results.json",
        "report.html",
        "uploads",
    }
    events = [
        json.loads(line) for line in (finished.path / "events.jsonl").read_text().splitlines()
    ]
    assert events[0]["event"] == "start"
    assert events[-1]["event"] == "finished"
    rows = list(csv.DictReader((finished.path / "clients.csv").read_text().splitlines()))
    assert {row["client"] for row in rows} == set(finished.members())
    assert len(list((finished.path / "uploads").iterdir())) == len(finished.members())


def test_the_model_is_the_pooled_one(finished):
    prepared = prepare(finished.config)
    z, y = prepared.pooled()
    head = hs.Fed3R(ridge=1.0)
    whole = head.measure(z, y, exact=True, bound=float(finished.config.bound))
    assert finished.load_total(head).digest() == whole.digest()
    np.testing.assert_allclose(finished.model().weights, head.solve(whole).weights)
    result = finished.result()
    assert result.head.digest == result.pooled.digest == whole.digest()
    assert result.accuracy == result.pooled.accuracy


def test_the_saved_config_repeats_the_run(finished, tmp_path):
    run(read_config(finished.path / "config.yaml"), tmp_path / "again")
    for name in ("total.safetensors", "model.safetensors", "clients.json"):
        assert (tmp_path / "again" / name).read_bytes() == (finished.path / name).read_bytes()


def test_add_then_forget_returns_to_the_same_bytes(finished, newcomer):
    before = {p.name: p.read_bytes() for p in finished.path.glob("*.safetensors")}
    members = finished.members()
    add(finished.path, "late", newcomer)
    assert "late" in finished.members()
    assert finished.upload_path("late").exists()
    forget(finished.path, "late")
    assert {p.name: p.read_bytes() for p in finished.path.glob("*.safetensors")} == before
    assert finished.members() == members
    assert not finished.upload_path("late").exists()


def test_forgetting_is_never_having_joined(finished):
    gone = next(iter(finished.members()))
    forget(finished.path, gone)
    head = finished.head()
    rest = [finished.upload_path(name).read_bytes() for name in finished.members()]
    never = hs.total(hs.Moments.from_bytes(message) for message in rest)
    assert finished.load_total(head).digest() == never.digest()
    assert finished.model().provenance["total"] == never.digest()
    last = json.loads((finished.path / "events.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "forget"
    assert last["superseded"] != last["total"]


def test_forgetting_without_a_kept_upload_measures_the_data_again(tmp_path, newcomer):
    run(make_config(settings(keep_uploads=False)), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    before = (folder.path / "total.safetensors").read_bytes()
    add(folder.path, "late", newcomer)
    with pytest.raises(hs.HeadstartError, match="left no upload"):
        forget(folder.path, "late")
    with pytest.raises(hs.HeadstartError, match="not what"):
        forget(folder.path, "late", "digits")
    forget(folder.path, "late", newcomer)
    assert (folder.path / "total.safetensors").read_bytes() == before


def test_heads_of_rows_forget_too(tmp_path, newcomer):
    run(make_config(settings(pipeline="FedCOF")), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    before = folder.load_total(folder.head()).digest()
    add(folder.path, "late", newcomer)
    forget(folder.path, "late")
    assert folder.load_total(folder.head()).digest() == before


def test_a_client_joins_once(finished, newcomer):
    add(finished.path, "late", newcomer)
    with pytest.raises(hs.HeadstartError, match="already"):
        add(finished.path, "late", newcomer)


def test_a_change_cut_short_is_mended_from_the_uploads(finished, newcomer):
    """The total was written, the list of its clients not: the list rules."""
    state = (finished.path / "clients.json").read_bytes()
    digest = finished.load_total(finished.head()).digest()
    add(finished.path, "late", newcomer)
    (finished.path / "clients.json").write_bytes(state)
    assert finished.load_total(finished.head()).digest() == digest


def test_an_interrupted_run_goes_on_to_the_same_result(finished, tmp_path):
    class Stop(Exception):
        pass

    def stop(what, done, of):
        if done == 5:
            raise Stop

    config = make_config(settings())
    with pytest.raises(Stop):
        run(config, tmp_path / "cut", stop)
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "cut" / "uploads").iterdir()}
    assert len(kept) == 5
    run(config, tmp_path / "cut")
    assert all(p.stat().st_mtime_ns == when for p, when in kept.items())
    for name in ("total.safetensors", "model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (finished.path / name).read_bytes()


def test_a_folder_of_another_run_is_left_alone(finished):
    with pytest.raises(hs.HeadstartError, match="another run"):
        run(make_config(settings(seed=7)), finished.path)
    assert run(make_config(settings()), finished.path) == finished.result()  # read, not run


def test_hostile_client_ids_stay_in_their_folder(finished, newcomer):
    for name in ("../../evil", "..", ".hidden", "a/b", "é" * 200, "x" * 300, "nul\x00"):
        assert finished.upload_path(name).parent == finished.path / "uploads"
        add(finished.path, name, newcomer)
        assert finished.upload_path(readable(name)).exists()
    assert len(list((finished.path / "uploads").iterdir())) == len(finished.members())


def test_every_head_can_be_the_main_one(tmp_path):
    from headstart.heads import HEADS

    for name in HEADS:
        said = "(dimension=64, bandwidth=auto)" if name == "fed3r-rf" else ""
        config = make_config(settings(pipeline=name + said, curve_points=2))
        results = run(config, tmp_path / name)
        assert 0 <= results.accuracy <= 1
        assert RunFolder(tmp_path / name).model().provenance["method"] == name


@pytest.mark.parametrize("precision", ["float64", "float32", "float16", "int8"])
def test_runs_without_exactness_have_no_digests_to_compare(tmp_path, precision):
    results = run(make_config(settings(exact=False, precision=precision)), tmp_path / "run")
    assert results.pooled.digest == ""
    assert results.accuracy > 0.8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partition": {"name": "iid", "n": 3, "clients": 2}}, "iid has no 'n'"),
        ({"piplines": 1}, "did you mean 'pipeline'"),
        ({"pipeline": "fed3s"}, "did you mean 'fed3r'"),
        ({"pipeline": []}, "pipeline: expected a list of phases"),
        ({"partition": {"name": "dirichlet", "alfa": 1}}, "did you mean 'alpha'"),
        ({"partition": "dirichlte"}, "did you mean 'dirichlet'"),
        ({"test_fraction": 2}, "test_fraction"),
        ({"seed": "x"}, "seed"),
        ({"precision": "int4", "exact": False}, "precision"),
        ({"precision": "int8"}, "exact"),
    ],
)
def test_a_wrong_config_says_what_is_wrong(change, message):
    with pytest.raises(hs.HeadstartError, match=message):
        make_config(settings(**change))


def test_changes_reach_inner_keys(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"data": "digits", "partition": "dirichlet"}))
    config = read_config(path, ["partition.alpha=0.5", "partition.clients=3", "seed=4"])
    assert config.partition.settings == {"alpha": 0.5, "clients": 3}
    assert config.seed == 4


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "data: digits\npipeline: 3"])
def test_a_wrong_yaml_file_is_one_line(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(hs.HeadstartError) as caught:
        read_config(tmp_path / "c.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["data: " + "[" * 3000, "data: \x07"])
def test_a_hostile_yaml_file_is_one_line(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(hs.HeadstartError, match="is not YAML"):
        read_config(tmp_path / "c.yaml")


def test_an_exponent_is_a_number(tmp_path):
    (tmp_path / "c.yaml").write_text("data: '1e5'\npipeline: [{init: fed3r, ridge: 1e-3}]\n")
    config = read_config(tmp_path / "c.yaml", ["smoothing=2e-1"])
    assert config.pipeline == [{"init": "fed3r", "ridge": 0.001}]
    assert config.smoothing == 0.2
    (tmp_path / "again.yaml").write_text(dump_config(config))
    assert read_config(tmp_path / "again.yaml") == config


def test_a_lost_or_broken_total_is_folded_again(finished):
    path = finished.path / "total.safetensors"
    whole = finished.load_total(finished.head()).digest()
    path.write_bytes(path.read_bytes()[:300])
    assert finished.load_total(finished.head()).digest() == whole
    path.unlink()
    assert finished.load_total(finished.head()).digest() == whole


def test_only_what_a_client_sent_is_folded_again(finished):
    (finished.path / "total.safetensors").unlink()
    one, two = list(finished.members())[:2]
    finished.upload_path(one).write_bytes(finished.upload_path(two).read_bytes())
    with pytest.raises(hs.HeadstartError, match=f"upload of '{one}'"):
        finished.load_total(finished.head())


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    """An upload of samples that are no longer there must not meet new ones."""

    def save(shift):
        data = load("digits")
        np.savez(
            tmp_path / "d.npz",
            features=data.features + shift,
            label=data.labels,
            client=(np.arange(len(data)) % 6).astype(str),
        )

    def stop(what, done, of):
        if done == 3:
            raise KeyboardInterrupt

    save(0.0)
    config = make_config({"data": str(tmp_path / "d.npz"), "bound": 2, "pipeline": "FedNCM"})
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run", stop)
    save(0.25)
    with pytest.raises(hs.HeadstartError, match="other data"):
        run(config, tmp_path / "run")
    save(0.0)
    result = run(config, tmp_path / "run")
    assert result.head.digest == result.pooled.digest


def test_a_forgetting_cut_short_before_the_model_is_finished_by_the_next(finished):
    """The total and its list were written, the model and the upload not."""
    gone = next(iter(finished.members()))
    model = (finished.path / "model.safetensors").read_bytes()
    upload = finished.upload_path(gone).read_bytes()
    after = forget(finished.path, gone).provenance["total"]
    (finished.path / "model.safetensors").write_bytes(model)
    finished.upload_path(gone).write_bytes(upload)
    assert forget(finished.path, gone).provenance["total"] == after
    assert finished.model().provenance["total"] == after
    assert not finished.upload_path(gone).exists()
