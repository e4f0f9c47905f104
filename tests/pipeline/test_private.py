"""Private runs: one setting, three trusts, no exact numbers in what they leave, and refusals."""

import json

import pytest
from typer.testing import CliRunner

import headstart as hs
from headstart import HeadstartError
from headstart.cli import app
from headstart.cli.options import PrivacyOptions, config_of
from headstart.data.datasets import load
from headstart.pipeline.change import add, forget
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.phases import InitHead
from headstart.pipeline.pipeline import Pipeline
from headstart.pipeline.run import check_pipeline, run_config
from headstart.privacy.refusals import Abort

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
    ],
)
def test_settings_that_promise_nothing_are_refused(tmp_path, change, said):
    with pytest.raises(HeadstartError, match=said):
        run_config(configured(**change), tmp_path / "run")


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
    assert f"Head: {head}, by signal" in done.output
    assert f"ε = {epsilon} at δ = 1e-05" in done.output
    assert RunFolder(tmp_path / "run").result().head.name == head
