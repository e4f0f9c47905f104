"""Federations from Python: what data may be, what is refused, and what a result can do."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import headstart as hs
from headstart.heads import HEADS
from headstart.registry import qualified

from .test_plugins import HEAD, METHOD


@pytest.fixture(scope="module", autouse=True)
def unreported():
    """A run writes no page here: it would take most of its time (`report` and `save` still do)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headstart.pipeline.run.write_report", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def samples():
    """Three Gaussian classes in four dimensions, of six clients."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=240)
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(240, 4))
    return X, y, np.arange(240) % 6


@pytest.fixture
def frame(samples):
    X, y, client = samples
    made = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    return made.assign(label=y, client=client)


@pytest.fixture(scope="module")
def one(samples):
    """One pipeline with two seeds, a part of every client held back."""
    return hs.run("Fed3R + FedAvg-2(head)", samples, seeds=2, held_out=0.3, cohort=3)


def digest(result):
    """Of the exact total, which every sample of every client is in."""
    return result.runs[0].head.digest


# -- data ------------------------------------------------------------------------------------------


def test_the_same_samples_are_the_same_run_however_they_come(samples, frame, tmp_path):
    X, y, client = samples
    path = tmp_path / "mine.npz"
    np.savez(path, X=X, y=y, client=client)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    ways = [samples, list(samples), frame, path, str(path), tmp_path / "mine.csv"]
    found = [hs.run("Fed3R", way) for way in ways]
    assert len({digest(result) for result in found}) == 1
    assert len({result.accuracy for result in found}) == 1
    assert found[0].accuracy > 0.6


def test_a_name_is_data_too():
    (run,) = hs.run("FedNCM", "digits", keep_uploads=False).runs
    assert run.data.name == "digits"
    assert run.split.settings == {"clients": 50, "alpha": 0.1}


def test_columns_of_a_frame_may_have_other_names(frame, samples):
    other = frame.rename(columns={"label": "kind", "client": "user"})
    result = hs.run("Fed3R", other, label="kind", client="user")
    assert digest(result) == digest(hs.run("Fed3R", samples))
    assert result.runs[0].data.dimension == 4


def test_a_frame_says_what_is_test(frame):
    test = np.arange(len(frame)) % 4 == 0
    said = frame.assign(split=np.where(test, "test", "train"), flag=test)  # a boolean feature
    (run,) = hs.run("FedNCM", said).runs
    assert (run.data.test, run.data.dimension) == (60, 5)
    assert run.split.test_fraction is None


def test_test_samples_of_their_own(samples):
    X, y, client = samples
    (run,) = hs.run("Fed3R", (X[60:], y[60:], client[60:]), test=(X[:60], y[:60])).runs
    assert (run.data.samples, run.data.test) == (180, 60)


def test_test_samples_in_a_file(samples, tmp_path):
    X, y, client = samples
    np.savez(tmp_path / "train.npz", X=X[60:], y=y[60:], client=client[60:])
    np.savez(tmp_path / "test.npz", X=X[:60], y=y[:60])
    result = hs.run("Fed3R", tmp_path / "train.npz", test=tmp_path / "test.npz")
    inside = hs.run("Fed3R", (X[60:], y[60:], client[60:]), test=(X[:60], y[:60]))
    assert (digest(result), result.accuracy) == (digest(inside), inside.accuracy)


def test_clients_and_alpha_mean_dirichlet_by_class(samples):
    X, y, _ = samples
    (run,) = hs.run("FedNCM", (X, y), clients=5, alpha=0.5).runs
    assert (run.split.name, run.split.settings) == ("dirichlet", {"clients": 5, "alpha": 0.5})
    named = hs.run(
        "FedNCM", (X, y), partition={"name": "dirichlet", "clients": 5, "alpha": 0.5}
    ).runs[0]
    assert run.split.counts == named.split.counts
    assert hs.run("FedNCM", (X, y), clients=5).runs[0].split.settings["alpha"] == 0.1


# -- what is refused -------------------------------------------------------------------------------

X, Y = np.eye(4), np.arange(4) % 2
WRONG = {
    "unknown key 'cohrt'; did you mean 'cohort'": {"cohrt": 3},
    "unknown key 'zzz'; expected one of ": {"zzz": 3},
    "data: expected a name, a path, .* got int": {"data": 3},
    "data: labels: expected one per sample": {"data": (X, Y[:3])},
    "data: expected a column 'label' .*got 'a'": {"data": pd.DataFrame({"a": [1.0]})},
    "data: expected numbers in the feature columns, got others in b": {
        "data": pd.DataFrame({"b": ["x", "y"], "label": [0, 1]})
    },
    "data: 'split': row 2: expected train or test, got 'tset'": {
        "data": pd.DataFrame({"b": [1.0, 2.0], "label": [0, 1], "split": ["train", "tset"]})
    },
    "data: features: row 2, feature 1: expected a finite number": {
        "data": pd.DataFrame({"b": pd.array([1, None], dtype="Int64"), "label": [0, 1]})
    },
    "data: clients: ": {
        "data": pd.DataFrame({"b": [1.0, 2.0], "label": [0, 1], "client": ["x", None]})
    },
    "partition: data does not say whose a sample is": {"data": (X, Y)},
    "test: expected arrays beside data": {"test": "mine.npz"},
    "test: expected a path beside data": {"data": "digits", "test": (X, Y)},
    "test: expected features of dimension 4, got 3": {"test": (X[:, :3], Y)},
    "partition: expected it, or clients and alpha, got both": {"clients": 2, "partition": "iid"},
    "views: expected images, which can be mirrored, got features": {"views": "flip"},
    "clients: expected .*got 0": {"clients": 0},
    "alpha: expected .*got 0": {"clients": 2, "alpha": 0},
    "seeds: expected how many .*got 0": {"seeds": 0},
    "pipelines: expected a list of them, got one": {"pipelines": "Fed3R"},
    "expected at least one pipeline, got none": {"pipelines": []},
    "expected different pipelines, got 'Fed3R' twice": {"pipelines": ["Fed3R", hs.Fed3R()]},
    "engine: expected one of ray, simulator, got 'rey'": {"federation": {"engine": "rey"}},
    "federation: simulator has settings .*got workers": {"federation": {"workers": 2}},
}


@pytest.mark.parametrize("said", WRONG)
def test_a_mistake_is_one_line(said, tmp_path):
    arguments = {"pipelines": ["Fed3R"], "data": (X, Y, Y), **WRONG[said]}
    with pytest.raises(hs.HeadstartError, match=said) as caught:
        hs.compare(**arguments, out=tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# -- seeds and folders -----------------------------------------------------------------------------


def test_seeds_follow_the_first(samples):
    both = hs.run("FedNCM", samples, seeds=2, seed=3)
    assert both.seeds == (3, 4)
    assert both.accuracy.values == tuple(
        hs.run("FedNCM", samples, seed=seed).accuracy for seed in (3, 4)
    )
    assert both.runs[0].split.counts != both.runs[1].split.counts
    fixed = hs.run("FedNCM", samples, seeds=2, split_seed=3)
    assert fixed.runs[0].split.counts == fixed.runs[1].split.counts


def test_a_folder_is_resumed_and_extended_with_the_same_arrays_alone(samples, tmp_path):
    X, y, client = samples
    first = hs.compare(["Fed3R", "FedNCM"], samples, seeds=2, out=tmp_path / "out")
    kept = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/seed-*/results.json")
    }
    assert len(kept) == 4
    more = hs.compare(["Fed3R", "FedNCM", "LDA"], samples, seeds=3, out=tmp_path / "out")
    assert [result.seeds for result in more] == [(0, 1, 2)] * 3
    assert more[0].runs[:2] == first[0].runs
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    with pytest.raises(hs.HeadstartError, match="was begun with other data") as caught:
        hs.compare(["Fed3R", "FedNCM"], (X + 1, y, client), seeds=2, out=tmp_path / "out")
    assert "\n" not in str(caught.value)
    with pytest.raises(hs.HeadstartError, match="holds another run"):
        hs.compare(["Fed3R", "FedNCM"], samples, seeds=2, minimum=2, out=tmp_path / "out")


# -- results ---------------------------------------------------------------------------------------


def test_tables_of_a_result(one):
    rows, curves, clients = one.to_pandas(), one.curves(), one.clients()
    assert list(rows.seed) == [0, 1]
    assert tuple(rows.accuracy) == one.accuracy.values
    assert rows.personal_after.mean() == pytest.approx(one.personal_accuracy)
    last = curves.groupby("seed").last()
    assert list(last.accuracy) == list(rows.accuracy)
    assert list(last.up) == list(rows.bytes_up)
    assert curves.groupby("seed").up.is_monotonic_increasing.all()
    assert list(curves["round"]) == [0, 1, 2] * 2
    assert len(clients) == 12
    assert clients[clients.seed == 0].samples.sum() == sum(map(sum, one.runs[0].split.counts))
    assert clients.accuracy_global.between(0, 1).all()


def test_tables_of_a_comparison(one, samples):
    other = hs.run("FedNCM", samples)
    both = hs.Comparison((one, other))
    assert list(both.to_pandas().pipeline) == [one.pipeline] * 2 + ["FedNCM"]
    assert len(both.clients()) == 18
    assert both.to_pandas().personal_after.isna().tolist() == [False, False, True]


@pytest.mark.parametrize("by", ["round", "bytes", "flops", "formula"])
def test_a_figure_shows_every_pipeline(one, by):
    (axes,) = one.figure(by).axes
    (line,) = axes.lines
    assert line.get_ydata()[-1] == pytest.approx(one.accuracy)
    assert (np.diff(line.get_xdata()) >= 0).all()


def test_an_unknown_axis_is_refused(one):
    with pytest.raises(hs.HeadstartError, match=r"by: expected .*, got 'time'"):
        one.figure("time")


def test_what_is_saved_is_loaded(one, samples, tmp_path):
    loaded = hs.load_result(one.save(tmp_path / "one"))
    assert loaded.runs == one.runs
    assert (tmp_path / "one" / "report.html").exists()
    np.testing.assert_array_equal(loaded.model.predict(samples[0]), one.model.predict(samples[0]))
    with pytest.raises(hs.HeadstartError, match=r"save: .* is not empty"):
        one.save(tmp_path / "one")
    both = hs.Comparison((one, hs.run("FedNCM", samples)))
    again = hs.load_result(both.save(tmp_path / "both"))
    assert [result.runs for result in again] == [result.runs for result in both]
    for nothing in (tmp_path / "none", tmp_path):
        with pytest.raises(hs.HeadstartError, match="run: "):
            hs.load_result(nothing)


def test_a_report_is_a_page_with_its_tables(one, tmp_path):
    page = one.report(tmp_path / "page")
    assert page == tmp_path / "page" / "report.html"
    assert one.pipeline in page.read_text(encoding="utf-8")
    table = pd.read_csv(tmp_path / "page" / "clients.csv")
    assert len(table) == len(one.clients())
    assert (tmp_path / "page" / "curves.csv").exists()


def test_models_predict_what_was_measured(samples):
    X, y, client = samples
    test = (X[:60], y[:60])
    result = hs.run("Fed3R", (X[60:], y[60:], client[60:]), test=test, seeds=2)
    found = tuple(np.mean(model.predict(X[:60]) == y[:60]) for model in result.models)
    assert found == result.accuracy.values
    np.testing.assert_array_equal(result.model.weights, result.models[0].weights)


def test_an_exported_model_predicts_the_same(one, samples, tmp_path):
    import onnxruntime

    path = one.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path)
    features = samples[0].astype(np.float32)
    scores, found = session.run(["scores", "class"], {"features": features})
    np.testing.assert_array_equal(found, one.model.predict(features))
    np.testing.assert_allclose(scores, one.model.scores(features), rtol=1e-6, atol=1e-6)


# -- heads and methods of one's own ----------------------------------------------------------------


@dataclass(frozen=True)
class Plain(hs.FedNCM):
    """A head that nobody registered."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "Plain"


@pytest.mark.usefixtures("registered")
def test_a_plain_head_goes_on_only_where_it_is_known(samples, tmp_path):
    result = hs.run(Plain(), samples, out=tmp_path / "out")
    assert result.pipeline == qualified(Plain)
    assert result.accuracy == hs.run("FedNCM", samples).accuracy
    assert hs.run(Plain(), samples, out=tmp_path / "out").runs == result.runs
    del HEADS._known()[qualified(Plain).casefold().replace("_", "")]
    with pytest.raises(hs.HeadstartError, match="is not loaded in this process") as caught:
        hs.run(result.pipeline, samples, out=tmp_path / "out")
    assert qualified(Plain) in str(caught.value)
    assert hs.load_result(tmp_path / "out").runs == result.runs  # reading needs no code


@pytest.fixture
def ray():
    module = pytest.importorskip("ray")
    yield
    module.shutdown()


@pytest.mark.usefixtures("registered", "ray")
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_plugins_are_compared_on_every_engine(samples, tmp_path):
    files = [tmp_path / "centred.py", tmp_path / "fed_nesterov.py"]
    for path, text in zip(files, (HEAD, METHOD), strict=True):
        path.write_text(text)
    trained = ["Fed3R + FedNesterov-2(head, momentum=0)", "Fed3R + FedAvg-2(head)"]
    pipelines = ["CentredMeans", *trained]
    how = {"plugins": files, "seeds": 2, "cohort": 3}
    here = hs.compare(pipelines, samples, **how)
    mine, half, average = here
    assert mine.pipeline == "centred-means"
    assert mine.accuracy > 0.6
    assert mine.seeds == (0, 1)
    assert half.accuracy.values == average.accuracy.values
    there = hs.compare(pipelines, samples, **how, federation={"engine": "ray", "workers": 2})
    assert digest(there[0]) == digest(mine)
    for one, other in zip(here, there, strict=True):
        assert one.accuracy.values == pytest.approx(other.accuracy.values, abs=0.03)


def test_a_result_is_printed_in_a_line():
    results = hs.compare(["Fed3R", "FedNCM"], data="digits", clients=5, seeds=2)
    first, *_ = str(results[0].runs[0]).splitlines()
    assert first.startswith("<SeedResult Fed3R, seed 0: accuracy 0.")
    assert str(results[0]).startswith("<RunResult Fed3R, 2 seeds: accuracy 0.")
    assert "±" in str(results[0])
    lines = str(results).splitlines()
    assert lines[0] == "<Comparison"
    assert [line.split(",")[0] for line in lines[1:]] == [
        "  <RunResult Fed3R",
        "  <RunResult FedNCM",
    ]
    assert max(map(len, lines)) < 120
