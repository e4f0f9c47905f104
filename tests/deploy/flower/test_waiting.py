"""Whom a run waits for, for how long, and what it says of it."""

from __future__ import annotations

from headstart.deploy.flower import waiting
from headstart.deploy.flower.waiting import Waiting
from headstart.deploy.ledger import Ledger

from .fake_grid import (
    EXACT,
    FakeGrid,
    federation,
    run_settings,
    served,
)


def lines_of(caplog, word):
    return [text for _, _, text in caplog.record_tuples if text.startswith(f"headstart: {word}")]


def test_who_waits_says_for_whom_and_who_is_done_where_the_model_is(
    nodes, tmp_path, caplog, monkeypatch
):
    caplog.set_level("INFO", "flwr")
    monkeypatch.setattr(waiting, "PAUSE", 0.05)
    silent, *others = [node.name for node in nodes]
    nodes[0].fault = "silent"
    expected = " ".join([silent, *others, "site-z"])
    told = run_settings(tmp_path, nodes=expected, deadline=3.0)
    served(FakeGrid(nodes), told)
    assert lines_of(caplog, "waiting") == [
        f"headstart: waiting for {silent} (asked), site-z (not online); 4 of 5 uploads are in"
    ]
    (done,) = lines_of(caplog, "done")
    assert done == (
        f"headstart: done: {tmp_path / 'out' / 'model.safetensors'} is the model of 4 clients, "
        f"without {silent} and site-z; report.html is beside it"
    )


def test_who_is_forgotten_is_not_waited_for(nodes, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", "flwr")
    names = [node.name for node in nodes]
    served(FakeGrid(nodes), run_settings(tmp_path, nodes=" ".join(names)))
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.forget(names[0])
    monkeypatch.setattr(waiting, "PAUSE", 0.05)
    caplog.clear()
    served(FakeGrid(nodes[1:]), run_settings(tmp_path, nodes=" ".join(names)))
    assert lines_of(caplog, "waiting") == [
        "headstart: waiting for 1 more node (not online); 4 of 5 uploads are in"
    ]
    assert names[0] not in caplog.text


def test_a_round_of_training_says_whom_it_waits_for(nodes, caplog, monkeypatch):
    caplog.set_level("INFO", "flwr")
    monkeypatch.setattr(waiting, "PAUSE", 0.05)
    nodes[2].fault = "silent"
    assert len(list(federation(nodes, deadline=0.5).answers(EXACT))) == 4
    assert lines_of(caplog, "waiting") == [f"headstart: waiting for {nodes[2].name} (asked)"]


def test_a_line_names_so_many_and_is_not_said_twice():
    said, now = [], [0.0]
    wait = Waiting(said.append, pause=5, again=60, clock=lambda: now[0])
    many = [f"site-{number:02d}" for number in range(14)]
    for at, silent in ((0, many), (4, many), (5, many), (9, many), (50, many), (65, many)):
        now[0] = at
        wait({"asked": silent})
    first = ", ".join(many[:10])
    assert said == [f"waiting for {first} and 4 more (asked)"] * 2
    for at, silent in ((66, many[:2]), (70, many[:2]), (71, [])):
        now[0] = at
        wait({"asked": silent})
    assert said[2:] == ["waiting for site-00 and site-01 (asked)"]


def test_once_the_wanted_are_in_the_rest_is_not_waited_for_long(nodes, tmp_path):
    nodes[0].fault = "silent"
    told = run_settings(tmp_path, wanted=4, deadline=86400.0, patience=0.0)
    results = served(FakeGrid(nodes), told)
    assert len(results.split.clients) == 4
    assert [(t.client, t.code) for t in results.failures] == [(nodes[0].name, "missing")]
