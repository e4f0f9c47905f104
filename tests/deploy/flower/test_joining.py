"""A node holds its server to what it agreed to when it joined, and itself as well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart import Fed3R, FedNCM, LinearHead
from headstart.data.samples import ArraySamples
from headstart.deploy.admission import Contract
from headstart.deploy.agreement import FILE, Agreement, held
from headstart.deploy.flower import client as node_half
from headstart.deploy.flower.settings import NodeSettings
from headstart.errors import HeadstartError, printable
from headstart.federation import steps
from headstart.federation.protocol import ClientData, Step

from .fake_grid import federation, nodes_of

D, BOUND = 6, 2.0
STEP = steps.measure(Fed3R(), exact=True, bound=BOUND)
TERMS = {
    "norm": 1.0,
    "labels": "text",
    "class_list": ("ant", "bee", "cow"),
    "extractor": {"name": "mobilenet_v2", "identity": "abc"},
}


def contract(**changes):
    return Contract(
        "1", **{"step": STEP.params, "dimension": D, "class_list": (0, 1, 2), **changes}
    )


def node_of(folder, labels=(0, 1), d=D, **config):
    rng = np.random.default_rng(0)
    samples = ArraySamples(rng.uniform(size=(30, d)), np.array(labels)[np.arange(30) % len(labels)])
    return nodes_of({"site": ClientData(samples)}, folder, small=False, **config)[0]


def answer(node, **terms):
    """What one node sends that is asked to join, or the failure in its place."""
    agreed = contract(**terms)
    over = federation([node], contract=agreed)
    found = list(over.answers(Step("measure", agreed.step)))
    return found[0] if found else over.failures[-1]


def private(node):
    return Path(node.config["folder"])


def head_of(classes, d=D):
    return steps.with_head(LinearHead(np.ones((len(classes), d)), np.zeros(len(classes)), classes))


# -- joining ---------------------------------------------------------------------------------------


def test_the_first_terms_are_on_the_disk_before_the_answer_and_damage_to_them_is_no_new_joining(
    tmp_path, monkeypatch
):
    node, path, there = node_of(tmp_path), tmp_path / "site" / FILE, []
    perform = node_half.perform
    monkeypatch.setattr(
        node_half, "perform", lambda *a: (there.append(path.exists()), perform(*a))[1]
    )
    assert answer(node).clients == ("site",)
    assert there == [True]
    assert path.stat().st_mode & 0o777 == 0o600
    assert held(private(node)) == Agreement.of(contract())
    sound = path.read_text()
    plain = json.loads(sound)
    for damage in ("", "[]", "{", sound[:-9], "[" * 100_000, '{"version": 1}'):
        _refuses_damaged(node, path, damage)
    for name, value in {
        "version": 2, "bound": "1", "dimension": 0, "labels": 3, "class_list": 5, "extractor": [1],
        "norm": -1.0, "more": 1,
    }.items():  # fmt: skip
        _refuses_damaged(node, path, json.dumps({**plain, name: value}))
    path.write_text(sound)
    assert answer(node).clients == ("site",)


def _refuses_damaged(node, path, text):
    path.write_text(text)
    failure = answer(node)
    assert failure.code == "failed"
    assert "agreement.json in the private folder is damaged" in failure.text
    assert failure.text.isprintable()
    assert path.read_text() == text


def test_terms_are_plain_values_and_come_back():
    agreed = Agreement.of(contract(**TERMS))
    assert Agreement.from_plain(json.loads(json.dumps(agreed.to_plain()))) == agreed
    for name, value in {
        "bound": 0,
        "dimension": "6",
        "class_list": [1, "a"],
        "extractor": 3,
    }.items():
        with pytest.raises(HeadstartError, match="expected the terms of a contract"):
            Agreement.from_plain({**agreed.to_plain(), name: value})


def test_nobody_measures_a_node_that_has_joined_with_nothing(tmp_path):
    node = node_of(tmp_path)
    over = federation([node], contract=None)
    assert list(over.answers(STEP)) == []
    assert (over.failures[0].code, held(private(node))) == ("agreement", None)


OTHERS = {
    "dimension": ({"labels": (0, 1), "d": D + 1}, "this node has 7, the server says 6"),
    "kind": ({"labels": ("a", "b")}, "server says integer, this node has labels of the other kind"),
    "class": ({"labels": (0, 77)}, "server says 3 classes, this node has a class beyond"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_node_with_other_samples_than_agreed_sends_nothing_and_names_no_class(tmp_path, other):
    own, said = OTHERS[other]
    node = node_of(tmp_path, **own)
    failure = answer(node)
    assert failure.code == "agreement"
    assert said in failure.text
    assert "77" not in failure.text
    assert held(private(node)) is None


def test_a_node_of_another_extractor_sends_nothing(tmp_path):
    node = node_of(tmp_path)
    failure = answer(node, extractor=TERMS["extractor"])
    assert failure.code == "agreement"
    assert "this node has none, the server says mobilenet_v2 (identity abc…)" in failure.text


def test_a_servers_words_forge_no_line_of_a_nodes_log_and_fill_no_disk(tmp_path, caplog):
    node = node_of(tmp_path)
    extractor = {"name": "\x1b[2J\nheadstart: all is well", "identity": "\u2028" * 9}
    failure = answer(node, extractor=extractor)
    assert failure.code == "agreement"
    said = [line for line in map(caplog.handler.format, caplog.records) if "all is well" in line]
    assert said
    assert all(printable(line) == line for line in said)
    settings = NodeSettings(client="site", data="x", folder=str(private(node)))
    for at in range(node_half._NEWS + 20):
        before = [json.dumps({"at": k}) for k in range(at)]
        if at < node_half._NEWS - 3:  # as if they had been said
            (private(node) / "receipts.jsonl").write_text("".join(f"{one}\n" for one in before))
            continue
        node_half.hear(settings, {"at": at, "text": "x" * 10**5})
    kept = (private(node) / "receipts.jsonl").read_text().splitlines()
    assert len(kept) == node_half._NEWS
    assert max(map(len, kept)) < 2 * node_half._LONGEST
    assert all(json.loads(line) for line in kept)


# -- afterwards ------------------------------------------------------------------------------------

CHANGES = {
    "bound": {"step": {**STEP.params, "bound": 3.0}},
    "norm": {"norm": 1.5},
    "dimension": {"dimension": 7},
    "labels": {"labels": "text", "class_list": ("a",)},
    "class_list": {"class_list": (0, 1)},
    "new_classes": {"new_classes": 7},
    "extractor": {"extractor": TERMS["extractor"]},
}


@pytest.mark.parametrize("term", CHANGES)
def test_a_question_on_other_terms_is_refused_and_both_sides_are_named(tmp_path, term):
    node = node_of(tmp_path)
    assert answer(node).clients == ("site",)
    own, other = (getattr(Agreement.of(contract(**c)), term) for c in ({}, CHANGES[term]))
    assert own != other
    failure = answer(node, **CHANGES[term])
    assert failure.code == "agreement"
    assert failure.text.startswith(f"site: agreement: {term}: this node joined with ")
    if not isinstance(own, tuple | None):
        assert f"joined with {own}, got {other}" in failure.text
    assert held(private(node)) == Agreement.of(contract())
    (private(node) / FILE).unlink()  # as its owner does
    if term in ("bound", "norm", "class_list", "new_classes"):
        assert answer(node, **CHANGES[term]).clients == ("site",)


def asked():
    pytest.importorskip("torch")
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job, broadcast, update

    def training(classes, d):
        job = Job("fedavg", Spec(len(classes), d))
        params = {
            "head.weight": np.zeros((len(classes), d), np.float32),
            "head.bias": np.zeros(len(classes), np.float32),
        }
        return update(job, 0), broadcast(job, params, {}, np.array(classes))

    return {
        "bound": (
            steps.measure(FedNCM(), exact=True, bound=1e-6),
            {},
            "2.0, got measure with 1e-06",
        ),
        "head of another class": (steps.calibrate(), head_of(np.array([0, 10**6])), "1000000"),
        "head of text": (steps.calibrate(), head_of(np.array(["a", "b"])), "got the other kind"),
        "wide head": (steps.personal(), head_of(np.arange(2), 9), "6, got personal with 9"),
        "confusion": (steps.confusion([0, 5]), head_of(np.arange(2)), "list, got np.int64(5)"),
        "training of other classes": (*training([0, 9], D), "list, got np.int64(9)"),
        "wide training": (*training([0, 1], 9), "6, got update with 9"),
    }


def test_a_question_that_contradicts_what_was_agreed_is_refused(tmp_path):
    node = node_of(tmp_path)
    assert answer(node).clients == ("site",)
    for name, (step, broadcast, said) in asked().items():
        over = federation([node], contract=None)  # and the server does not say its terms again
        assert list(over.answers(step, broadcast)) == [], name
        (failure,) = over.failures
        assert failure.code == "agreement", (name, failure)
        assert said in failure.text
        assert "this node joined with" in failure.text
        assert failure.text.isprintable()
    spent = json.loads((private(node) / "budget.json").read_text())["asked"]
    assert {kind: len(marks) for kind, marks in spent.items()} == {"measure": 1}


def test_what_was_agreed_may_be_asked(tmp_path):
    node = node_of(tmp_path)
    over = federation([node], contract=contract())
    assert over.total(STEP).clients == ("site",)
    assert over.total(replace(STEP, silent=True)).clients == ("site",)
    head = head_of(np.arange(3))
    for step, broadcast in ((steps.counts(), {}), (steps.calibrate(), head)):
        assert over.total(step, broadcast).clients == ("site",)
    assert not over.failures
