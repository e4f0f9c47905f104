"""Uploads over a grid: which are refused, what their senders are told, and which end no run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from headstart import Fed3R, HeadstartError, LinearHead
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData
from headstart.results import SeedResult

from .fake_grid import (
    FakeGrid,
    digest,
    heard_of,
    run_settings,
    served,
)


def test_an_upload_with_which_nothing_can_be_solved_is_named_and_the_last_model_stays(
    nodes, tmp_path, monkeypatch
):
    from headstart.errors import SolveError
    from headstart.heads.fed3r import Fed3R

    solve, calls = Fed3R.solve, []

    def third(head, total):
        calls.append(total)
        if len(calls) == 3:
            raise SolveError("ridge: not positive")
        return solve(head, total)

    monkeypatch.setattr(Fed3R, "solve", third)
    assert len(served(FakeGrid(nodes), run_settings(tmp_path)).split.clients) == 5
    lines = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    uploads = [event["client"] for event in events if event["event"] == "upload"]
    unsolved = [event for event in events if event["event"] == "unsolved"]
    assert [event["clients"] for event in unsolved] == [[uploads[2]]]
    assert LinearHead.load(tmp_path / "out" / "model.safetensors")


def test_a_refused_upload_is_told_why_and_is_not_in_the_total(experiment, nodes, tmp_path):
    smallest = min(experiment.clients.values(), key=lambda data: len(data.samples.labels))
    cap = len(smallest.samples)
    with pytest.raises(HeadstartError, match="collection: expected an upload"):
        served(FakeGrid(nodes), run_settings(tmp_path, samples=cap - 1, ledger=str(tmp_path / "b")))
    results = served(FakeGrid(nodes), run_settings(tmp_path, samples=cap, wanted=1))
    assert results.data.samples == cap
    refused = [node for node in nodes if node.name not in results.split.clients]
    assert {t.code for t in results.failures} == {"counts"}
    for node in refused:
        news = heard_of(node)
        assert news["refused"] == "counts"
        assert str(cap) in news["text"]


def test_features_of_another_extractor_are_refused(experiment, nodes, tmp_path, monkeypatch):
    def other(content):
        about = {**json.loads(content["about"]["json"]), "extractor": {"name": "x"}}
        return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})

    nodes[4].fault = other
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4))
    assert {(t.client, t.code) for t in results.failures} == {(nodes[4].name, "extractor")}
    kept = {node.name: experiment.clients[node.name] for node in nodes[:4]}
    assert results.head.digest == digest(kept)


def claiming(identity: str | None, payload: bytes | None = None):
    """A node that says what made its features, and may send something else."""

    def spoil(content: RecordDict) -> RecordDict:
        about = json.loads(content["about"]["json"])
        about["extractor"] = identity and {"name": identity, "identity": identity}
        changed = {"about": ConfigRecord({"json": json.dumps(about)})}
        if payload is not None:
            array = Array("uint8", (len(payload),), "headstart.wire", payload)
            changed["arrays"] = ArrayRecord({"upload": array})
        return RecordDict({**content, **changed})

    return spoil


def test_words_of_a_client_end_no_run_and_forge_no_line_of_the_log(nodes, tmp_path, caplog):
    def saying(**words):
        def spoil(content: RecordDict) -> RecordDict:
            about = {**json.loads(content["about"]["json"]), **words}
            return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})

        return spoil

    nodes[0].fault = saying(code="failed", text="\ud800")
    nodes[1].fault = saying(code="a\nb", text="bad\nINFO : headstart: all is well\x1b[2J")
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=3))
    assert len(results.split.clients) == 3
    assert SeedResult.from_json((tmp_path / "out" / "results.json").read_text()) == results
    codes = {t.client: t.code for t in results.failures}
    assert codes == {nodes[0].name: "malformed", nodes[1].name: "failed"}
    said = [line for line in map(caplog.handler.format, caplog.records) if "all is well" in line]
    assert said
    assert all(line.isprintable() for line in said)


def test_a_label_that_no_file_can_hold_is_refused_before_it_is_durable(nodes, unchecked, tmp_path):
    lone = ClientData(ArraySamples(np.ones((12, 64)), np.array(["\ud800"] * 12)))
    own = tmp_path / "own"
    own.mkdir()
    measured = Fed3R().measure(*lone.samples.read(), exact=True, bound=1.0, secret=b"")
    nodes[0].fault = claiming(None, measured.to_bytes())
    text = run_settings(tmp_path, wanted=1, labels="text", ledger=str(tmp_path / "text"))
    with pytest.raises(HeadstartError, match=r"UTF-8.*\[classes\]"):
        served(FakeGrid(nodes[:1]), text)
    assert len(served(FakeGrid(nodes[1:]), run_settings(tmp_path, wanted=4)).split.clients) == 4


def test_where_sums_are_not_exact_the_servers_bound_holds_as_well(experiment, nodes, tmp_path):
    """features a thousand times as large count a million times."""
    data = experiment.clients[nodes[0].name]
    large = (
        Fed3R().measure(1000 * data.samples.features, data.samples.labels, secret=b"").to_bytes()
    )

    def scaled(content: RecordDict) -> RecordDict:
        array = Array("uint8", (len(large),), "headstart.wire", large)
        return RecordDict({**content, "arrays": ArrayRecord({"upload": array})})

    nodes[0].fault = scaled
    results = served(FakeGrid(nodes), run_settings(tmp_path, exact=False, wanted=4))
    assert {(t.client, t.code) for t in results.failures} == {(nodes[0].name, "bound")}
    assert len(results.split.clients) == 4


def test_random_features_have_a_bound_of_their_own(nodes, tmp_path):
    """That of the features may be smaller than √(2/D)."""
    told = run_settings(tmp_path, pipeline="fed3r-rf(dimension=8)", exact=False, bound=0.01)
    assert not served(FakeGrid(nodes), told).failures


def test_a_cap_of_one_client_says_nothing_of_the_others(nodes, tmp_path):
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4, caps={nodes[0].name: 1}))
    assert {(t.client, t.code) for t in results.failures} == {(nodes[0].name, "counts")}
    assert sorted(results.split.clients) == sorted(node.name for node in nodes[1:])
