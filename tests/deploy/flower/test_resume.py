"""A server that dies and goes on, and questions that come too late."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord

from headstart import LinearHead
from headstart.deploy.flower.messages import Question, Reply
from headstart.deploy.flower.server import serve
from headstart.federation import steps

from .fake_grid import FakeGrid, asked, nodes_of, run_settings


class Died(Exception):
    """Of a server, in the middle of a training."""


def dying_after(grid: FakeGrid, rounds: int) -> FakeGrid:
    """A grid whose server dies when the clients of its `rounds`-th update have answered."""
    push, seen = grid.push_messages, []

    def counted(messages):
        steps_ = [Question.from_content(message.content).step for message in messages]
        ids = push(messages)
        seen.extend(step for step in steps_[:1] if step and step.name == "update")
        if len(seen) == rounds:
            raise Died
        return ids

    grid.push_messages = counted
    return grid


@pytest.mark.parametrize(
    ("text", "deaths"),
    [
        ("Fed3R + Scaffold-4(head, lr=0.01)", (1, 3)),  # client memories and the server's own
        ("Fed3R + FedDyn-4(head)", (3,)),
        ("Fed3R + FedAvg-2(head) + Ditto-3", (3, 2)),  # before the second training's checkpoint
    ],
)
def test_a_training_goes_on_after_the_servers_death(experiment, tmp_path, text, deaths):
    """To the same bits, wherever it died: the clients go back to the round of the checkpoint."""
    found = []
    for place, killed in (("whole", ()), ("killed", deaths)):
        own = tmp_path / place
        own.mkdir()
        nodes = nodes_of(experiment.clients, own)
        told = run_settings(own, pipeline=text, personal=True, cohort=3)
        for number, rounds in enumerate(killed):  # every run is new to Flower, and so is its state
            with pytest.raises(Died):
                serve(dying_after(FakeGrid(nodes), rounds), told, f"run {number}", poll=0.01)
        result = serve(FakeGrid(nodes), told, "last run", poll=0.01)
        assert not result.failures
        assert not (own / "out" / "checkpoint.safetensors").exists()
        found.append((result, LinearHead.load(own / "out" / "model.safetensors")))
    (whole, one), (resumed, two) = found
    assert np.array_equal(one.weights, two.weights)
    assert np.array_equal(one.bias, two.bias)
    assert resumed.personal == whole.personal
    assert resumed.curve == whole.curve


def test_a_node_that_lost_its_memories_says_so_in_one_line(experiment, nodes, tmp_path):
    told = run_settings(tmp_path, pipeline="Fed3R + Scaffold-3(head, lr=0.01)", cohort=5)
    with pytest.raises(Died):
        serve(dying_after(FakeGrid(nodes), 2), told, "one", poll=0.01)
    (Path(nodes[0].config["folder"]) / "memories.safetensors").unlink()
    results = serve(FakeGrid(nodes), told, "two", poll=0.01)
    assert {failure.client for failure in results.failures} == {nodes[0].name}
    assert "remembers nothing any more; begin a new training" in results.failures[0].text


def test_a_question_older_than_a_clients_memories_is_refused_in_one_line(nodes):
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job, broadcast, update

    job = Job("scaffold", Spec(10, 64))
    params = {"head.weight": np.zeros((10, 64), np.float32), "head.bias": np.zeros(10, np.float32)}
    zeros = {"control": params}
    words = broadcast(job, params, zeros, np.arange(10))

    def said(turn: int, last: int) -> Reply:
        return asked(nodes, Question(update(job, turn), words, None, "a training", turn, last))

    first = said(1, 0)
    assert not first.code
    second = said(2, 1)
    assert said(2, 1) == second  # asked again: the same answer, from the same memories
    assert said(3, 2).payload != second.payload
    lost = said(2, 0)
    assert (lost.code, lost.payload) == ("failed", b"")
    assert lost.text.startswith("training: expected to go on after question 0")
    assert "\n" not in lost.text


def test_a_question_of_another_version_is_refused_in_one_line(nodes):
    content = Question(steps.counts()).to_content()
    about = {**json.loads(content["about"]["json"]), "version": 1}
    content["about"] = ConfigRecord({"json": json.dumps(about)})
    reply = asked(nodes, content)
    assert (reply.code, reply.payload) == ("failed", b"")
    assert reply.text == (
        "question: expected version 3 of the protocol, got 1; "
        "install the same version of Headstart everywhere"
    )
