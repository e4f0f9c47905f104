"""Seeds: what each of them changes, what is run again, and the other engines' same bits."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headstart import HeadstartError
from headstart.gradient.loop import Plan
from headstart.gradient.models import build, initial
from headstart.pipeline import run
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import compare

DIGITS = {"data": "digits", "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.3}}


@pytest.fixture
def carried_out(monkeypatch):
    """The (pipeline, seed) that were run, not read."""
    done, real = [], run.simulate

    def counted(experiment, pipeline, **how):
        done.append((str(pipeline), experiment.config.seed))
        return real(experiment, pipeline, **how)

    monkeypatch.setattr(run, "simulate", counted)
    monkeypatch.setattr(run, "write_report", lambda results, root: None)
    return done


def drawn(seed, **more):
    """What a seed decides: the test set, who holds what, who is asked, where training begins."""
    experiment = prepare(make_config({**DIGITS, "seed": seed, **more}))
    names = experiment.federation.clients
    plan = Plan(rounds=3, clients=3, seed=experiment.config.seed)
    spec = experiment.context().spec(None)
    return (
        experiment.test.features.tobytes(),
        tuple(len(client.samples.labels) for client in experiment.clients.values()),
        tuple(tuple(plan.cohort(names, round_)) for round_ in range(3)),
        initial(build(spec), None, experiment.config.seed)["head.weight"].tobytes(),
    )


def test_a_seed_changes_test_split_partition_cohorts_and_initialization(tmp_path):
    untested = {"data": str(tmp_path / "digits.npz")}
    digits = prepare(make_config(DIGITS)).train
    np.savez(untested["data"], features=digits.features, label=digits.labels)
    for what in zip(*(drawn(seed, **untested) for seed in (0, 1, 2)), strict=True):
        assert len(set(what)) == 3
    fixed = list(zip(*(drawn(seed, split_seed=7, **untested) for seed in (0, 1, 2)), strict=True))
    assert [len(set(what)) for what in fixed] == [1, 1, 3, 3]
    assert drawn(7, **untested)[:2] == tuple(what[0] for what in fixed[:2])


def test_seeds_follow_the_first_and_only_what_is_missing_is_run(tmp_path, carried_out):
    config = make_config({**DIGITS, "seed": 4})
    (two,) = compare(["FedNCM"], config, tmp_path, seeds=2)
    assert two.seeds == (4, 5)
    (three,) = compare(["FedNCM"], config, tmp_path, seeds=3)
    assert three.seeds == (4, 5, 6)
    assert carried_out == [("FedNCM", 4), ("FedNCM", 5), ("FedNCM", 6)]
    assert three.runs[:2] == two.runs  # their seconds too
    assert len({run.head.digest for run in three.runs}) == 1  # digits have a test part of their own
    assert len({run.split.counts for run in three.runs}) == 3
    assert [RunFolder(tmp_path / f"seed-{seed}").result() for seed in (4, 5, 6)] == list(three.runs)
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(HeadstartError, match="seeds: expected how many"):
            compare(["FedNCM"], config, tmp_path, seeds=wrong)


def test_one_seed_becomes_several_in_the_same_folder(tmp_path, carried_out, monkeypatch):
    config = make_config({**DIGITS, "seed": 4})
    texts = ["FedNCM", "LDA"]
    one = compare(texts, config, tmp_path)
    moved = Path.rename

    def cut(path, target):
        if path.name == "results.json":
            raise KeyboardInterrupt
        return moved(path, target)

    monkeypatch.setattr(Path, "rename", cut)
    with pytest.raises(KeyboardInterrupt):
        compare(texts, config, tmp_path, seeds=2)
    monkeypatch.setattr(Path, "rename", moved)
    two = compare(texts, config, tmp_path, seeds=2)
    assert [result.seeds for result in two] == [(4, 5), (4, 5)]
    assert [result.runs[0] for result in two] == [result.runs[0] for result in one]
    assert len(carried_out) == 4
    assert run.load_results(tmp_path) == two
    assert {place.name for place in (tmp_path / "01").iterdir()} == {"seed-4", "seed-5"}
    model = (tmp_path / "01" / "seed-4" / "model.safetensors").read_bytes()
    alone = tmp_path / "alone"
    compare(["FedNCM"], config, alone)
    assert (alone / "model.safetensors").read_bytes() == model
    other = make_config({**DIGITS, "seed": 9})
    with pytest.raises(HeadstartError, match=r"alone holds a run of seed 4; ask for seeds with"):
        compare(["FedNCM"], other, alone, seeds=3)
    with pytest.raises(HeadstartError, match="holds another run"):
        compare(["LDA"], config, alone, seeds=3)
    assert (alone / "config.yaml").exists()  # what is refused moves nothing


def test_a_comparison_that_was_cut_short_runs_what_is_missing(tmp_path, carried_out, monkeypatch):
    texts, config = ["FedNCM", "Fed3R + FedAvg-2(head)", "LDA"], make_config(DIGITS)
    real = run.save

    def cut(folder, result, *rest):
        if result.pipeline.startswith("Fed3R"):
            raise KeyboardInterrupt
        real(folder, result, *rest)

    monkeypatch.setattr(run, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        compare(texts, config, tmp_path)
    monkeypatch.setattr(run, "save", real)
    first, *_ = results = compare(texts, config, tmp_path)
    asked = [name.split(" ")[0].casefold() for name, _ in carried_out]
    assert asked == ["fedncm", "fed3r", "fed3r", "lda"]
    more = compare([*texts, "FedCOF"], config, tmp_path)
    assert more[:3] == results
    assert len(carried_out) == 5
    assert RunFolder(tmp_path / "01").result() == first.runs[0]
    with pytest.raises(HeadstartError, match="another run"):
        compare(["FedNCM", "FedCOF"], config, tmp_path)
    with pytest.raises(HeadstartError, match="twice"):
        compare(["Fed3R", "fed3r"], config, tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


# -- other federations, from the command line ------------------------------------------------------


@pytest.fixture
def result_of(tmp_path):
    """What a command leaves in its folder."""

    def result(*words):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        split = ["--data", "digits", "--clients", "20", "--alpha", "0.5", "--held-out", "0.3"]
        command = [sys.executable, "-m", "headstart", "run", "Fed3R", *split, *words]
        done = subprocess.run([*command, "--out", str(place)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return RunFolder(place).result()

    return result


def test_secure_sums_are_the_simulators_and_single_clients_are_not_seen(result_of):
    plain = result_of()
    masked = result_of("federation={group_size: 10, secure: true}")
    assert masked.head.digest == plain.head.digest == masked.pooled.digest
    assert masked.accuracy == plain.accuracy
    assert masked.head.temperature == pytest.approx(plain.head.temperature, rel=1e-6)
    assert plain.personal is not None
    assert masked.personal is None
    assert plain.notes == ()
    refused = ["No personal accuracy"]
    assert [note.split(":")[0] for note in masked.notes] == refused
    stated = result_of("federation.group_size=10", "federation.secure=true", "temperature=0.3")
    assert stated.head.temperature == 0.3
    assert [note.split(":")[0] for note in stated.notes] == refused


def test_groups_without_masks_are_the_simulators(result_of):
    assert result_of("federation.group_size=10").head.digest == result_of().head.digest


def test_a_ray_cluster_gives_the_simulators_bits(result_of):
    pytest.importorskip("ray")
    plain, found = result_of(), result_of("federation={engine: ray, workers: 2}")
    assert found.head.digest == plain.head.digest
    assert found.accuracy == plain.accuracy
    assert found.personal == plain.personal


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"secure": True}, "secure: expected exact sums of groups"),
        ({"engine": "rai"}, "engine: expected one of"),
        ({"engine": "simulator", "workers": 2}, "workers"),
        ({"group_size": 0}, "group_size"),
        ({"group_size": 99}, "group_size: expected 1 to 10 clients, got 99"),
    ],
)
def test_a_federation_that_cannot_be_is_named(given, said):
    with pytest.raises(HeadstartError) as caught:
        prepare(make_config({**DIGITS, "federation": given}))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_personalization_of_single_clients_is_refused_behind_masks(tmp_path):
    config = {**DIGITS, "held_out": 0.3, "federation": {"group_size": 10, "secure": True}}
    with pytest.raises(HeadstartError, match="expected answers of single clients, got secure sums"):
        compare(["OLL(Fed3R)"], make_config(config), tmp_path / "run")
    assert not (tmp_path / "run").exists()
