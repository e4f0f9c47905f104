"""The server's half: a run from its first question to its model, its report and its next run."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from headstart import Fed3R, HeadstartError, LinearHead
from headstart.data.samples import ArraySamples
from headstart.deploy.flower.collect import due
from headstart.deploy.ledger import Ledger
from headstart.deploy.nodes import online
from headstart.results import SeedResult

from .fake_grid import (
    EXACT,
    FakeGrid,
    asked_of,
    digest,
    heard_of,
    run_settings,
    served,
    write_samples,
)


def test_a_run_gives_the_simulators_total_a_model_and_a_report(experiment, nodes, tmp_path):
    test = experiment.test
    np.savez(tmp_path / "test.npz", features=test.features, label=test.labels)
    told = run_settings(tmp_path, test_data=str(tmp_path / "test.npz"), personal=True)
    results = served(FakeGrid(nodes), told)
    assert isinstance(results, SeedResult)
    assert results.head.digest == digest(experiment.clients)
    assert sorted(results.split.clients) == sorted(experiment.clients)
    arrivals = results.head.arrivals
    assert [each.clients for each in arrivals] == [1, 2, 3, 4, 5]  # a head after each upload
    assert arrivals[-1].accuracy > arrivals[0].accuracy > 0.2
    model = LinearHead.load(tmp_path / "out" / "model.safetensors")
    head = Fed3R().solve(experiment.federation.total(EXACT).statistic)
    assert np.array_equal(model.weights, head.weights)
    assert model.temperature is not None
    assert results.accuracy == pytest.approx(head.accuracy(test.features, test.labels))
    assert results.personal.weighted("oll") >= results.personal.weighted("global")
    page = (tmp_path / "out" / "report.html").read_text()
    assert results.head.digest[:8] in page
    assert "As clients arrive" in page
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert {model.state for model in ledger.models()} == {"current", "older"}
        assert results.ledger == ledger.id
        members = ledger.members()
    for node in nodes:  # each was told that its upload is in
        receipt = heard_of(node)["receipt"]
        assert receipt["digest"] == members[node.name]


def test_the_missing_are_left_out_and_a_later_run_asks_only_them(experiment, nodes, tmp_path):
    nodes[1].fault, nodes[3].fault = "silent", "dead"
    late = nodes.pop()
    grid = FakeGrid(nodes)
    first = served(grid, run_settings(tmp_path, wanted=4))
    data = experiment.clients
    there = {node.name: data[node.name] for node in nodes if not node.fault}
    assert first.head.digest == digest(there)
    assert {(t.client, t.code) for t in first.failures} >= {
        (nodes[1].name, "missing"),
        (nodes[3].name, "unreachable"),
    }
    nodes[1].fault = nodes[3].fault = None
    grid.add(late)
    for node in nodes:
        node.heard.clear()
    second = served(grid, run_settings(tmp_path, wanted=5))
    assert second.head.digest == digest(data)
    assert [each.clients for each in second.head.arrivals] == [1, 2, 3, 4, 5]
    asked = {node.name: asked_of(node) for node in [*nodes, late]}
    for node in (nodes[1], nodes[3], late):
        assert asked.pop(node.name) == ["measure", "calibrate"]
    assert set(map(tuple, asked.values())) == {("calibrate",)}


def test_a_run_that_was_cut_short_goes_on(experiment, nodes, tmp_path, monkeypatch):
    class Cut(Exception):
        pass

    from headstart.deploy.flower import output

    solved, calls = output.Output.solved, []

    def cut(*told):
        calls.append(told)
        if len(calls) == 3:
            raise Cut
        return solved(*told)

    monkeypatch.setattr(output.Output, "solved", cut)
    with pytest.raises(Cut):
        served(FakeGrid(nodes), run_settings(tmp_path))
    assert LinearHead.load(tmp_path / "out" / "model.safetensors")  # of the second upload
    assert served(FakeGrid(nodes), run_settings(tmp_path)).head.digest == digest(experiment.clients)


def test_a_forgotten_client_is_not_asked_again(experiment, nodes, tmp_path):
    served(FakeGrid(nodes), run_settings(tmp_path))
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.forget(nodes[0].name)
    nodes[0].heard.clear()
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4))
    assert [each.clients for each in results.head.arrivals] == [1, 2, 3, 4]
    kept = {node.name: experiment.clients[node.name] for node in nodes[1:]}
    assert results.head.digest == digest(kept)
    assert nodes[0].heard == []
    assert nodes[0].name not in json.loads((tmp_path / "ledger" / "nodes.json").read_text())["keys"]


def test_a_forgotten_node_under_a_new_name_needs_the_operators_word(experiment, nodes, tmp_path):
    served(FakeGrid(nodes), run_settings(tmp_path))
    old = nodes[0].name
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.forget(old)
    nodes[0].name = nodes[0].config["client"] = "alias"
    nodes[0].heard.clear()
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4))
    assert {(t.client, t.code) for t in results.failures} == {("alias", "forgotten")}
    assert nodes[0].heard == []
    kept = (tmp_path / "ledger" / "nodes.json").read_text()
    key = next(node.key for node in online(FakeGrid(nodes)) if node.name == "alias")
    assert old not in kept
    assert key not in kept
    fewer = experiment.clients[old]
    own = ArraySamples(fewer.samples.features[1:], fewer.samples.labels[1:])
    fewer = replace(fewer, samples=own)
    write_samples(nodes[0].config["data"], fewer)  # the same bytes would stay out
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=5, readmit="alias"))
    assert "alias" in results.split.clients
    assert not results.failures


def test_a_ledger_is_of_one_agreement(nodes, tmp_path):
    served(FakeGrid(nodes), run_settings(tmp_path))
    with pytest.raises(HeadstartError, match="begun with another step"):
        served(FakeGrid(nodes), run_settings(tmp_path, pipeline="fedncm"))
    with pytest.raises(HeadstartError, match="begun with another dimension"):
        served(FakeGrid(nodes), run_settings(tmp_path, dimension=65))


def test_heads_are_solved_after_each_of_the_first_uploads_and_ever_more_rarely():
    solved, last = [], 0
    for number in range(1, 3001):
        if due(number, last):
            solved.append(number)
            last = number
    assert solved[:100] == list(range(1, 101))
    assert len(solved) < 200


def test_a_deployed_result_tells_failures_arrivals_and_its_ledger(nodes, tmp_path):
    nodes[0].fault = "dead"
    results = served(FakeGrid(nodes), run_settings(tmp_path, pipeline="Fed3R + FedAvg-1(head)"))
    assert {(failure.client, failure.code) for failure in results.failures} == {
        (nodes[0].name, "unreachable")
    }
    assert [each.clients for each in results.head.arrivals] == [1, 2, 3, 4]
    with Ledger.open(tmp_path / "ledger", write=False) as ledger:
        assert results.ledger == ledger.id
        assert results.head.digest == ledger.total().digest()
        assert [each.client for each in results.clients] == sorted(ledger.members())
    assert SeedResult.from_json((tmp_path / "out" / "results.json").read_text()) == results
    page = (tmp_path / "out" / "report.html").read_text()
    assert results.pipeline == "Fed3R + FedAvg-1(ψ)"
    assert results.pipeline in page
    assert nodes[0].name in page
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert not left & {"total.safetensors", "clients.json", "uploads"}  # the ledger's alone
