"""The client's half: what a node refuses, keeps to itself, and reads of its own samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart import Fed3R, heads
from headstart.data.samples import ArraySamples
from headstart.deploy.admission import Contract
from headstart.federation import steps
from headstart.federation.protocol import ClientData, tallies
from headstart.federation.simulator import Simulator

from .fake_grid import (
    EXACT,
    federation,
    nodes_of,
    solved,
)


def test_a_client_of_few_samples_refuses_says_why_and_can_be_told_otherwise(tmp_path):
    few = ClientData(ArraySamples(np.eye(4)[[0, 1, 2, 3] * 2], np.array([0, 1] * 4)))
    lone = ClientData(ArraySamples(np.ones((20, 4)), np.array([0] * 19 + [1])))
    own = tmp_path / "own"
    own.mkdir()
    nodes = nodes_of({"few": few, "lone": lone}, own, small=False)
    over_grid = federation(nodes, contract=Contract("1", EXACT.params, 4))
    assert list(over_grid.answers(EXACT)) == []
    assert [failure.code for failure in over_grid.failures] == ["small", "small"]
    assert "8 samples" in over_grid.failures[0].text
    assert "class of one sample" in over_grid.failures[1].text
    counted = over_grid.total(steps.measure(heads.make("etf"), bound=1.0))  # counts alone may go
    assert counted.clients == over_grid.total(steps.counts()).clients == ("few", "lone")
    nodes[0].config["small"] = True
    assert [answer.clients for answer in over_grid.answers(EXACT)] == [("few",)]


def trainings():
    """Every other step whose answer holds features, on three classes of four dimensions."""

    from headstart.federation.channels import channels
    from headstart.gradient.models import Spec
    from headstart.gradient.refit import ACCEPTED, refit
    from headstart.gradient.steps import Job, broadcast, full_gradient, update

    job = Job("fedavg", Spec(3, 4))
    params = {"head.weight": np.zeros((3, 4), np.float32), "head.bias": np.zeros(3, np.float32)}
    words = broadcast(job, params, {}, np.arange(3))
    none = np.zeros(0, np.uint64)
    told = {"extractor": np.zeros(0, np.float32), "classes": np.arange(3), ACCEPTED: none}
    return {
        "update": (update(job, 0), words),
        "gradient": (full_gradient(job, 0), words),
        "refit": (refit(job.spec, Fed3R(), 0), told),
        "channels": (channels(), {}),
    }


@pytest.mark.parametrize("name", ["update", "gradient", "refit", "channels"])
def test_few_samples_are_not_shown_by_any_other_step_either(tmp_path, name):
    """a row of a head's update is, for one sample, its feature vector."""
    sample = np.array([[0.1, 0.7, 0.3, 0.9]])
    one = {"one": ClientData(ArraySamples(sample, np.array([1])))}
    nodes = nodes_of(one, tmp_path, small=False, train="model")
    over_grid = federation(nodes)
    step, words = trainings()[name]
    assert list(over_grid.answers(step, words)) == []
    (failure,) = over_grid.failures
    assert failure.code == "small"
    assert "1 samples (fewer than 10)" in failure.text
    assert SHOWS[name] in failure.text
    assert "Ask for a secure sum or for noise" in failure.text
    assert "small = true" in failure.text
    nodes[0].config["small"] = True
    if name == "channels":  # a node holds features, which have no colours
        assert list(over_grid.answers(step, words)) == []
        assert "channels: expected images" in over_grid.failures[-1].text
        return
    (sent,) = over_grid.answers(step, words)
    if name == "update":  # what the refusal kept from the server
        row = sent.statistic.vectors[0][4:8]
        assert np.allclose(row / np.linalg.norm(row), sample[0] / np.linalg.norm(sample[0]))


SHOWS = {
    "update": "a row of an update is a sum of features",
    "gradient": "a row of a gradient is a sum of features",
    "refit": "class of one sample",
    "channels": "the colours of so few images",
}


@pytest.fixture
def rotated(tmp_path):
    """A node of fewer samples than dimensions: the last bits it sends are those of its secret."""
    own = tmp_path / "rotated"
    own.mkdir()
    data = ClientData(
        ArraySamples(np.random.default_rng(0).uniform(size=(12, 20)), np.arange(12) % 2)
    )
    return nodes_of({"few": data}, own)


def test_a_secret_is_drawn_once_and_is_its_owners_alone(rotated):
    nodes = rotated
    path = Path(nodes[0].config["folder"]) / "secret"
    path.unlink()
    over_grid = federation(nodes[:1], contract=Contract("1", EXACT.params, 20))
    (one,), (two,) = ([answer.payload for answer in over_grid.answers(EXACT)] for _ in "ab")
    assert one == two
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32
    path.unlink()
    (three,) = (answer.payload for answer in over_grid.answers(EXACT))
    assert three != one  # the rotation is another


def test_what_a_node_cannot_read_stays_in_its_own_log(nodes, tmp_path, caplog):
    path = tmp_path / "broken.csv"
    path.write_text("label,x\n1,private-cell\n")
    nodes[0].config["data"] = str(path)
    over_grid = federation(nodes[:1])
    assert list(over_grid.answers(EXACT)) == []
    (failure,) = over_grid.failures
    assert failure.code == "failed"
    assert "private-cell" not in failure.text
    assert "broken.csv" not in failure.text


def test_a_table_of_many_clients_gives_a_node_its_own_rows_only(experiment, tmp_path):
    clients = dict(list(experiment.clients.items())[:2])
    path = tmp_path / "all.npz"
    np.savez(
        path,
        features=np.concatenate([data.samples.features for data in clients.values()]),
        label=np.concatenate([data.samples.labels for data in clients.values()]),
        client=np.concatenate([np.full(len(d.samples), name) for name, d in clients.items()]),
    )
    own = tmp_path / "own"
    own.mkdir()
    nodes = nodes_of(clients, own, data=str(path))
    assert (
        federation(nodes).total(EXACT).statistic.digest()
        == Simulator(clients).total(EXACT).statistic.digest()
    )
    nodes[0].config["client"] = nodes[0].name = "stranger"
    over_grid = federation(nodes)
    assert len(list(over_grid.answers(EXACT))) == 1


def test_a_node_can_hold_out_a_part_of_its_own(experiment, tmp_path):
    name, data = next(iter(experiment.clients.items()))
    plain = replace(data, test=None)
    whole = tmp_path / "whole"
    whole.mkdir()
    nodes = nodes_of({name: plain}, whole, held_out=0.25)
    np.savez(nodes[0].config["data"], features=data.samples.features, label=data.samples.labels)
    head = solved(experiment.federation)
    over_grid = federation(nodes)
    tested = tallies(over_grid, steps.personal(), steps.with_head(head))[name][0]
    assert tested == np.floor(0.25 * len(data.samples.labels) + 0.5)
    assert over_grid.total(EXACT).statistic.samples == len(data.samples.labels) - tested
