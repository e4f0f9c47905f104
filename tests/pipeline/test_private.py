"""Private runs: one setting, three trusts, no exact numbers in what they leave, and refusals."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import headstart as hs
from headstart import HeadstartError
from headstart.cli import app
from headstart.cli.options import PrivacyOptions, config_of
from headstart.data.datasets import load
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.pipeline.change import add, forget
from headstart.pipeline.config import PrivateConfig, make_config
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.phases import InitHead
from headstart.pipeline.pipeline import Pipeline
from headstart.pipeline.private import private_federation
from headstart.pipeline.run import check_pipeline, compare, run_config
from headstart.privacy.accountant import composed, epsilon_of
from headstart.privacy.refusals import Abort
from headstart.statistics.exact import LEVELS

from ..data.test_cells import cells

PRIVATE = {"epsilon": 4, "delta": 1e-5}


def configured(private=None, **more):
    plain = {
        "data": "digits",
        "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.5},
        "pipeline": "Fed3R",
        "private": {**PRIVATE, **(private or {})},
    }
    return make_config({**plain, **more})


@pytest.mark.parametrize("trust", ["server", "secure-sum", "client"])
def test_a_private_run_states_what_it_promises(tmp_path, trust):
    config = configured({"trust": trust})
    (run,) = run_config(config, tmp_path / "run").runs
    assert run.accuracy > 0.7
    assert (run.privacy.epsilon, run.privacy.unit, run.privacy.trust) == (4, "sample", trust)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Who holds what" not in page  # nobody may say
    assert "As clients arrive" not in page  # a release comes once
    for _, text in run.privacy.facts:
        assert text.split(". ")[0][:60] in page
    model = hs.LinearHead.load(tmp_path / "run" / "model.safetensors")
    assert model.provenance["private"]["trust"] == trust
    assert model.temperature is None


def test_nothing_exact_is_left_in_its_results(tmp_path):
    config = configured(held_out=0.3)
    (run,) = run_config(config, tmp_path / "run").runs
    experiment = prepare(config)
    assert run.split.counts is None
    assert not any((run.clients, run.reveals, run.pooled, run.personal, run.split.summary))
    assert run.data.digest == ""
    text = (tmp_path / "run" / "results.json").read_text()
    exact = experiment.partition.counts(experiment.train.labels)[1].sum(axis=0).tolist()
    assert json.dumps(exact) not in text
    plain = prepare(configured().model_copy(update={"private": None}))
    z, y = plain.pooled()
    digest = hs.Fed3R().measure(z, y, exact=True, bound=float(plain.config.bound)).digest()
    assert digest not in text
    assert not list((tmp_path / "run" / "uploads").iterdir())
    assert not (tmp_path / "run" / "total.safetensors").exists()


def test_a_bound_that_was_taken_from_the_features_is_not_told(tmp_path):
    data = load("digits")
    np.savez(tmp_path / "loud.npz", X=777 * data.features, y=data.labels)
    config = configured(data=str(tmp_path / "loud.npz"))
    (run,) = run_config(config, tmp_path / "run").runs
    assert float(prepare(config).config.bound) == 1024.0
    assert run.settings["bound"] == 1.0
    assert "1024.0" not in (tmp_path / "run" / "results.json").read_text()


def test_a_page_of_several_releases_adds_them_up(tmp_path):
    results = compare(["FedNCM", "Fed3R"], configured(), tmp_path / "run", 2)
    spent = composed(run.privacy.spent_mu for result in results for run in result.runs)
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"4 releases over the same data: ε = {epsilon_of(spent, 1e-5):.4g}" in page


def test_a_run_that_was_cut_short_draws_no_noise_again(tmp_path):
    config = configured()
    (first,) = run_config(config, tmp_path / "run").runs
    (tmp_path / "run" / "results.json").unlink()
    (again,) = run_config(config, tmp_path / "run").runs
    assert again.head.digest == first.head.digest
    (tmp_path / "run" / "results.json").unlink()
    next((tmp_path / "run" / "budget").glob("gram-*.safetensors")).unlink()
    with pytest.raises(Abort, match="cut short"):
        run_config(config, tmp_path / "run")


def test_a_release_cannot_be_changed(tmp_path):
    run_config(configured(), tmp_path / "run")
    for change in (
        lambda: forget(tmp_path / "run", "client-0"),
        lambda: add(tmp_path / "run", "new", "digits"),
    ):
        with pytest.raises(HeadstartError, match="holds a private release, which cannot be"):
            change()


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("Fed3R + FedAvg-2(head)", "expected a head alone, got FedAvg-2"),
        ("OLL(Fed3R)", "expected a head alone, got OLL"),
        ("FedCOF", "solved from noisy sums .*, got fedcof"),
        ("Fed3R-RF", "solved from noisy sums .*, got fed3r-rf"),
        ("Fed3R(ridge=gcv)", "λ follows from the noise"),
        ("Fed3R(bias=true)", "bias: expected False with noisy sums"),
        ("Fed3R + prior", "expected a head alone, got prior"),
        ("Fed3R + ridge", "expected a head alone, got ridge"),
    ],
)
def test_what_no_noise_hides_is_refused(tmp_path, pipeline, said):
    config = configured(pipeline=pipeline, held_out=0.3)
    with pytest.raises(HeadstartError, match=said):
        run_config(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exact": False}, "private: expected exact sums"),
        ({"private": {"epsilon": 1, "delta": 0.1}}, "delta: expected at most 1/samples"),
        ({"private": {"epsilon": -1}}, "epsilon: expected a number above 0"),
        ({"private": {"epsilon": 1, "classes": [0, 1]}}, "2 classes agreed beforehand"),
        ({"private": {"epsilon": None}}, "private.epsilon"),
        ({"temperature": 0.1}, "temperature: expected none with private, got 0.1"),
        ({"temperature": "left-out"}, "temperature: expected none with private"),
        ({"private": {"epsilon": 1, "residual": True}}, "residual: expected class means"),
        ({"private": {"epsilon": 1, "classes": ["a"]}}, "classes: expected whole numbers"),
        ({"private": {"epsilon": 1, "mean": "none.npy"}}, "mean: cannot read none.npy"),
        ({"private": {"epsilon": 1, "projection": __file__}}, "projection: expected an array"),
    ],
)
def test_settings_that_promise_nothing_are_refused(tmp_path, change, said):
    with pytest.raises(HeadstartError, match=said):
        run_config(configured(**change), tmp_path / "run")


def test_a_public_mean_and_projection_are_files(tmp_path):
    data = load("digits").test_part().features
    np.save(tmp_path / "columns.npy", np.linalg.svd(data, full_matrices=False)[2][:30].T)
    np.save(tmp_path / "mean.npy", data.mean(axis=0) @ np.load(tmp_path / "columns.npy"))
    public = {"mean": str(tmp_path / "mean.npy"), "projection": str(tmp_path / "columns.npy")}
    (run,) = run_config(configured(public), tmp_path / "run").runs
    assert run.accuracy > 0.7
    assert run.privacy.given == ("direction", "projection")
    assert run.privacy.messages == 1
    assert (run.privacy.dimension, run.data.dimension) == (30, 64)
    np.save(tmp_path / "mean.npy", np.ones(3))
    with pytest.raises(HeadstartError, match="mean: expected 30 numbers, got 3"):
        run_config(configured(public), tmp_path / "other")


def test_fit_corrects_class_means_and_takes_classes_from_a_file(tmp_path):
    classes = tmp_path / "classes.txt"
    classes.write_text("".join(f"{label}\n" for label in range(12)) + "\n")
    words = ["fit", "--data", "digits", "--clients", "5", "--epsilon", "8"]
    words += ["--classes", str(classes), "-s", "private.residual=true"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "the head for it: fedncm" in " ".join(done.output.split())
    run = RunFolder(tmp_path / "run").result()
    assert (run.privacy.classes, run.privacy.messages) == (12, 3)
    for text, said in ((b"", "classes: expected one per line"), (b"\xff", "expected a text file")):
        classes.write_bytes(text)
        with pytest.raises(HeadstartError, match=said):
            PrivacyOptions(epsilon=1.0, classes=classes).put({})
    with pytest.raises(HeadstartError, match="classes: cannot read"):
        PrivacyOptions(epsilon=1.0, classes=tmp_path / "none").put({})


@pytest.mark.parametrize("head", ["fed3r", "fedncm"])
def test_what_to_expect_is_said_before_a_run_per_client(tmp_path, head):
    words = ["fit", "--data", "digits", "--clients", "100", "--epsilon", "1", "--unit", "client"]
    done = CliRunner().invoke(app, [*words, "--head", head, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    plan = prepare(configured({"epsilon": 1, "unit": "client"})).federation.plan
    signal = plan.signal(64, 100)
    said = f"Signal: a class's sum stands {signal:.2g} times above its noise"
    assert " ".join(done.output.split()).startswith(said)


def test_the_budget_is_told(tmp_path):
    run_config(configured(), tmp_path / "run")

    def told(*words):
        done = CliRunner().invoke(app, ["ledger", "budget", *map(str, words)])
        return " ".join(done.output.split()), done.exception

    text, _ = told(tmp_path / "run")
    assert "mean-" in text
    assert text.count("released") == 2
    assert "spent: ε = 4 at δ = 1e-05 (μ = 0.9249)" in text
    assert "promised: ε = 4 at δ = 1e-05; left for one more release: μ = 0" in text
    text, _ = told(tmp_path / "run" / "budget", "--delta", "0.001")
    assert "spent: ε = 2.851 at δ = 0.001 " in text
    next((tmp_path / "run" / "budget").glob("gram-*.safetensors")).unlink()
    assert "cut short" in told(tmp_path / "run")[0]
    assert "budget: expected the folder of a private run" in str(told(tmp_path)[1])
    next((tmp_path / "run" / "budget").glob("gram-*.json")).write_text("{}")
    assert "is damaged" in str(told(tmp_path / "run")[1])


def test_scenes_hide_images_or_clients():
    data = cells()
    clients = {
        name: ClientData(data.picked(np.flatnonzero(data.clients == name))) for name in ("a", "b")
    }
    clients = {"all": ClientData(data.picked(np.arange(len(data))))} | clients
    test = data.picked(np.arange(3))
    with pytest.raises(HeadstartError, match="unit: expected image or client, for a sample of sce"):
        private_federation(Simulator(clients), PrivateConfig(epsilon=1), clients, test)
    private = PrivateConfig(epsilon=100, unit="image")
    federation = private_federation(Simulator(clients), private, clients, test)
    plan = federation.plan
    assert (plan.unit, plan.rows, len(plan.labels)) == ("image", 48, 11)
    assert plan.samples == len(data)  # images
    release = federation.total(steps.measure(hs.FedNCM())).statistic
    assert (release.dimension, len(release.classes)) == (5, 11)
    seen = sum(len(client.samples) for client in clients.values())
    assert abs(release.tables["counts"].sum() / LEVELS - seen) < 20 * release.sigma("counts")
    assert release.statement["unit"] == "image"


def test_the_rule_of_heads_is_noted(tmp_path):
    (run,) = run_config(configured({"epsilon": 0.2}), tmp_path / "run").runs
    assert any("By a rule of thumb fedncm is the better head" in note for note in run.notes)
    assert not any(
        "rule of thumb" in note
        for note in run_config(configured({"epsilon": 0.2}, pipeline="FedNCM"), tmp_path / "other")
        .runs[0]
        .notes
    )


def test_options_are_settings():
    options = PrivacyOptions(epsilon=2.0, trust="client")
    config = config_of({"data": "digits", "private": {"epsilon": 1, "unit": "client"}}, options)
    assert (config.private.epsilon, config.private.unit, config.private.trust) == (
        2.0,
        "client",
        "client",
    )
    with pytest.raises(HeadstartError, match="trust: expected epsilon with it"):
        config_of({"data": "digits"}, PrivacyOptions(trust="client"))


def test_classes_and_samples_of_a_simulation_are_those_it_was_planned_with():
    experiment = prepare(configured())
    plan = experiment.federation.plan
    assert plan.labels.tolist() == list(range(10))
    assert plan.samples == experiment.partition.sizes().sum()
    check_pipeline(experiment.context(), Pipeline(InitHead("fedncm")))
    assert load("digits").dimension == 64


@pytest.mark.parametrize(("epsilon", "head"), [(4, "fed3r"), (0.3, "fedncm")])
def test_fit_takes_the_head_that_noise_leaves_the_better_one(tmp_path, epsilon, head):
    words = ["fit", "--data", "digits", "--clients", "5", "--epsilon", str(epsilon)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert f"times above its noise; the head for it: {head}" in " ".join(done.output.split())
    assert f"ε = {epsilon} at δ = 1e-05" in done.output
    assert RunFolder(tmp_path / "run").result().head.name == head
