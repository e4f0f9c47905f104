"""One set of options: the same names, defaults and help in every command that runs a federation."""

from dataclasses import fields

import numpy as np
import pytest
import typer

from headstart import HeadstartError
from headstart.cli import app
from headstart.cli.options import (
    ColumnOptions,
    FeatureOptions,
    PrivacyOptions,
    SplitOptions,
    config_of,
)
from headstart.data.datasets import Dataset, load
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare

COMMANDS = typer.main.get_command(app).commands
EVERY = {name: COMMANDS[name] for name in ("fit", "run", "compare")}


def shown(command, kind):
    """The names, default and help of the options that a group has."""
    wanted = {field.name for field in fields(kind)}
    return {
        one.name: (tuple(one.opts), one.default, one.help)
        for one in command.params
        if one.name in wanted
    }


@pytest.mark.parametrize(
    ("commands", "kind"),
    [
        (EVERY, SplitOptions),
        ({**EVERY, "features": COMMANDS["features"]}, FeatureOptions),
        ({**EVERY, **{name: COMMANDS[name] for name in ("evaluate", "predict")}}, ColumnOptions),
        (EVERY, PrivacyOptions),
    ],
    ids=["split", "features", "columns", "privacy"],
)
def test_commands_share_their_options(commands, kind):
    usual = shown(COMMANDS["fit"], kind)
    assert set(usual) == {field.name for field in fields(kind)}
    for name, command in commands.items():
        assert shown(command, kind) == usual, name


def config(base=None, **said):
    return config_of(base or {}, SplitOptions(**{"data": "digits", **said}))


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ({}, {"name": "dirichlet", "clients": 50, "alpha": 0.1}),
        ({"clients": 6}, {"name": "dirichlet", "clients": 6, "alpha": 0.1}),
        ({"shards": 3}, {"name": "shards", "clients": 50, "shards_per_client": 3}),
        ({"partition": "iid", "clients": 4}, {"name": "iid", "clients": 4}),
        ({"change": ["partition.clients=7"]}, {"name": "dirichlet", "clients": 7, "alpha": 0.1}),
        (
            {"clients": 6, "change": ["partition=iid", "partition.clients=7"]},
            {"name": "iid", "clients": 7},
        ),
        ({"data": "mine.csv"}, None),
        (
            {"data": "mine.csv", "clients": 5, "alpha": 2},
            {"name": "dirichlet", "clients": 5, "alpha": 2},
        ),
    ],
)
def test_who_the_clients_are(said, made):
    found = config(**said).partition
    assert (found and found.model_dump()) == made


def test_options_change_a_file():
    base = {
        "data": "digits",
        "partition": {"name": "dirichlet", "clients": 9, "alpha": 1},
        "seed": 4,
    }
    assert config(base, clients=5).partition.settings == {"clients": 5, "alpha": 1}
    other = config(base, partition="iid", clients=5)
    assert other.partition.model_dump() == {"name": "iid", "clients": 5}
    assert other.seed == 4
    assert config(base, seed=0, change=["seed=2"]).seed == 2
    assert config({**base, "partition": "iid"}, clients=5).partition.settings == {"clients": 5}


def test_what_a_command_lacks_is_said():
    with pytest.raises(HeadstartError, match="data: expected --data, got none"):
        config_of({}, SplitOptions())
    with pytest.raises(HeadstartError, match="iid has no 'alpha'"):
        config(partition="iid", clients=3, alpha=1)


# -- test samples of their own ---------------------------------------------------------------------


def test_outside_test_samples(tmp_path):
    digits = load("digits")
    train, test = digits.train_part(), digits.test_part()
    owner = (np.arange(len(train)) % 5).astype(str)
    np.savez(tmp_path / "train.npz", X=train.features, y=train.labels, client=owner)
    np.savez(tmp_path / "test.npz", X=test.features.astype(np.float32), y=test.labels)
    said = {"data": str(tmp_path / "train.npz"), "test": str(tmp_path / "test.npz")}
    experiment = prepare(make_config(said))
    np.testing.assert_array_equal(experiment.test.labels, test.labels)
    assert experiment.train.features.dtype == train.features.dtype
    assert sorted(experiment.clients) == ["0", "1", "2", "3", "4"]
    assert sum(len(one.samples) for one in experiment.clients.values()) == len(train)


@pytest.mark.parametrize(
    ("data", "outside", "message"),
    [
        ({"test": np.array([True, False])}, {}, "test: x has test samples of its own"),
        ({}, {"features": np.ones((1, 3))}, "test: expected features of dimension 2, got 3"),
        ({}, {"labels": ["a"]}, "test: expected labels like .*0.*, got .*a"),
    ],
)
def test_outside_test_samples_that_do_not_fit(data, outside, message):
    mine = Dataset("x", **{"features": np.eye(2), "labels": [0, 1], **data})
    other = Dataset("y", **{"features": np.ones((1, 2)), "labels": [0], **outside})
    with pytest.raises(HeadstartError, match=message):
        mine.with_outside(other)


def test_shifted_images_are_tested_among_the_data():
    with pytest.raises(HeadstartError, match="shift: expected test images among the data"):
        make_config({"data": "photos", "test": "others", "shift": 2})
