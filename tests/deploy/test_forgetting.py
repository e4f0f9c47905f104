"""Forgetting: the total, the head and the files of a federation that the client never joined."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.deploy import log as logs
from headstart.deploy import refusals
from headstart.deploy.admission import UploadRejected
from headstart.deploy.forgetting import forget
from headstart.deploy.ledger import Ledger
from headstart.deploy.verifying import verify
from headstart.errors import HeadstartError

from .ledger_world import (
    ANT,
    BEE,
    CAT,
    DOG,
    EMU,
    NAMES,
    ROUND,
    code_of,
    contract_of,
    filled,
    total_of,
    traces,
    upload_of,
)

HEADS = [hs.Fed3R(), hs.FedNCM(), hs.SharedVariances(), hs.FedCOF(), hs.LDA(), hs.ETF()]


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_as_if_it_had_never_joined(tmp_path, head, exact):
    """To the bit, exact or not, whatever the order in which the others came."""
    ledger, uploads = filled(tmp_path / "with", NAMES, head, exact)
    without, _ = filled(tmp_path / "without", [EMU, ANT, DOG, BEE], head, exact)
    with ledger, without:
        solved = without.save_model().read_bytes()
        ledger.save_model()
        left = ledger.forget(CAT)
        assert left.members == 4
        assert left.total == ledger.total().digest() == without.total().digest()
        assert left.total == total_of({n: uploads[n] for n in NAMES if n != CAT}, head).digest()
        assert set(ledger.members().items()) == set(without.members().items())
        own = tmp_path / "with" / "model.safetensors"
        assert own.read_bytes() == left.model.to_bytes() == solved  # the head, byte for byte
        assert left.renewed == ("model.safetensors",)
    with Ledger.open(tmp_path / "with") as again:
        assert again.total().digest() == left.total


def test_the_old_total_is_really_another_one(tmp_path):
    """Or the test above would pass without any forgetting."""
    ledger, _ = filled(tmp_path / "ledger", NAMES)
    with ledger:
        before = ledger.total().digest()
        assert ledger.forget(CAT).total != before


def test_no_file_remembers(tmp_path):
    """Log, snapshot, model, refusals and exports; the name is there only until then."""
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    with ledger:
        ledger.save_model()
        ledger.export(tmp_path / "out")
        with pytest.raises(UploadRejected):
            ledger.accept(CAT, ROUND, "another key", uploads[CAT])
    (path / ".total.safetensors.1234.part").write_bytes(uploads[CAT])  # a crash's half-written
    (tmp_path / "out" / "uploads" / ".1.part").write_bytes(uploads[CAT])
    assert len({file for file, _ in traces(tmp_path, CAT, uploads[CAT])}) >= 6
    left = forget(path, CAT)
    assert traces(tmp_path, CAT, uploads[CAT]) == []
    assert left.exports == (str(tmp_path / "out"),)
    for name in NAMES:
        if name != CAT:
            assert traces(tmp_path, name, uploads[name])
    listed = json.loads((tmp_path / "out" / "ledger.json").read_text())
    assert [line["clients"] for line in listed["uploads"]] == [[ANT], [BEE], [DOG], [EMU]]
    total = hs.Moments.from_bytes((tmp_path / "out" / "total.safetensors").read_bytes())
    assert total.digest() == left.total
    assert verify(path).clients == 4


@pytest.mark.parametrize("where", ["aside", "rotation", "done", "refusals"])
def test_a_full_disk_while_forgetting_is_one_line_and_the_ledger_opens(
    tmp_path, monkeypatch, where
):
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    code_of(ledger.accept, CAT, "winter", "k", uploads[CAT])
    full = OSError(28, "No space left on device")
    noted = Ledger.note

    def fail(*_, **__):
        raise full

    def full_note(one, meta):
        if meta["kind"] == "done":
            raise HeadstartError("ledger: cannot write: No space left on device")
        noted(one, meta)

    def hinder():
        if where == "aside":
            monkeypatch.setattr(logs, "_copy", fail)
        elif where == "rotation":
            monkeypatch.setattr(logs.Log, "_continue", fail)
        elif where == "done":
            monkeypatch.setattr(Ledger, "note", full_note)
        else:
            monkeypatch.setattr(refusals, "write_text", fail)

    hinder()
    with pytest.raises(HeadstartError, match=r"client is out.*No space left") as caught:
        ledger.forget(CAT)
    assert "\n" not in str(caught.value)
    ledger.close()
    left = total_of({name: uploads[name] for name in NAMES if name != CAT}).digest()
    if where != "rotation":  # without which no log can be opened for writing at all
        with Ledger.open(path) as again:
            assert "No space left" in again.unfinished
            assert again.forgotten(CAT)
            assert again.total().digest() == left
        assert not list((path / "log").glob("*.part"))
    monkeypatch.undo()
    with Ledger.open(path) as again:
        assert again.unfinished == ""
        assert not again.index.unfinished
    assert traces(path, CAT, uploads[CAT]) == []
    assert verify(path).total == left


def test_the_rest_of_a_group_is_not_asked_again_and_can_be_forgotten(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        ledger.accept((ANT, BEE, CAT), ROUND, "k", upload_of(1))
        ledger.accept(DOG, ROUND, "k", upload_of(2))
        ledger.forget(ANT)
        assert ledger.missing(NAMES) == (EMU,)
        assert code_of(ledger.accept, BEE, ROUND, "k", upload_of(3)) == "overlap"
        ledger.save_model()
        total = ledger.total().digest()
        left = ledger.forget(BEE)
        assert (left.total, left.members) == (total, 1)
        assert [model.state for model in ledger.models()] == ["current"]
        assert (left.superseded, left.renewed, left.removed) == ((), (), ())
        assert code_of(ledger.accept, BEE, ROUND, "k", upload_of(3)) == "forgotten"
    with Ledger.open(path) as again:
        assert again.forgotten(BEE)
        assert not again.forgotten(CAT)
        assert not again.index.unfinished
    assert traces(path, BEE, upload_of(3)) == []


def test_whoever_was_only_ever_refused_can_be_forgotten(tmp_path):
    path = tmp_path / "ledger"
    ledger, _ = filled(path, [ANT, BEE])
    with ledger:
        ledger.save_model()
        ledger.record_model("elsewhere", "0" * 64, "a total of who knows when")
        for who in (CAT, (CAT, DOG), DOG):
            assert code_of(ledger.accept, who, "winter", "k", upload_of(2)) == "round"
        before = ledger.total().digest()
        left = ledger.forget(CAT)
        assert (left.total, left.members, left.superseded) == (before, 2, ())
        assert [refusal.client for refusal in ledger.refusals()] == [DOG]
        assert code_of(ledger.accept, CAT, ROUND, "k", upload_of(2)) == "forgotten"
    with Ledger.open(path) as again:
        assert again.total().digest() == before
        assert code_of(again.accept, CAT, ROUND, "k", upload_of(2)) == "forgotten"
    assert traces(path, CAT, upload_of(2)) == []


def test_whoever_is_only_registered_can_be_forgotten(tmp_path):
    with Ledger.create(tmp_path / "ledger", contract_of(clients=[ANT, BEE])) as ledger:
        ledger.forget(ANT)
        assert code_of(ledger.accept, ANT, ROUND, "k", upload_of(1)) == "forgotten"
        for typing_error in ("at 1", "ant\ud800"):
            with pytest.raises(HeadstartError, match="expected one of this ledger"):
                ledger.forget(typing_error)


def test_names_of_nodes_go_too(tmp_path):
    """From the list of a deployed server in the ledger's folder; a mark of the key stays there."""
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    nodes = path / "nodes.json"
    keys = {CAT: "c" * 64, DOG: "d" * 64, "fox": "f" * 64}
    with ledger:
        nodes.write_text(json.dumps({"keys": keys, "gone": ["a mark"]}))
        ledger.forget(CAT)
        gone = sorted(["a mark", ledger.index.mark(keys[CAT])])
        left = {DOG: keys[DOG], "fox": keys["fox"]}
        assert json.loads(nodes.read_text()) == {"keys": left, "gone": gone}
        assert traces(path, CAT, uploads[CAT]) == []
        ledger.forget("fox")  # which was seen, but never sent anything
        assert json.loads(nodes.read_text())["keys"] == {DOG: keys[DOG]}
        assert ledger.forgotten("fox")
        for nonsense in ("{", "[]", '{"keys": ["dog 4"]}', '{"keys": {"dog 4": 7}}'):
            nodes.write_text(nonsense)
            assert ledger.forget(DOG).unreachable == ("nodes.json",)
            assert not ledger.index.unfinished


def test_every_change_of_a_folder_is_on_the_disk_before_it_is_done(tmp_path, monkeypatch):
    """A renamed or deleted file is durable once its folder was flushed."""
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    (path / "nodes.json").write_text(json.dumps({"keys": {CAT: "0" * 64}}))
    code_of(ledger.accept, CAT, ROUND, "another", uploads[CAT])
    (tmp_path / "heads").mkdir()
    ledger.save_model(path=tmp_path / "heads" / "one")
    ledger.export(tmp_path / "out")
    changed, waiting, left = set(), set(), []

    def watched(change, target):
        def call(*args, **told):
            change(*args, **told)
            changed.add(Path(args[target]).parent)
            waiting.add(Path(args[target]).parent)

        return call

    def sync(handle, real=os.fsync):
        real(handle)
        waiting.discard(Path(os.readlink(f"/proc/self/fd/{handle}")))

    def note(meta, real=ledger.note):
        if meta["kind"] == "done":
            left.append(set(waiting))
        real(meta)

    monkeypatch.setattr(os, "replace", watched(os.replace, 1))
    monkeypatch.setattr(os, "unlink", watched(os.unlink, 0))
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(ledger, "note", note)
    ledger.forget(CAT)
    monkeypatch.undo()
    ledger.close()
    folders = (path, path / "log", tmp_path / "out", tmp_path / "out/uploads", tmp_path / "heads")
    assert changed == set(folders)
    assert left == [set()]


def test_forgetting_twice_is_forgetting_once(tmp_path):
    path = tmp_path / "ledger"
    ledger, _ = filled(path, NAMES)
    with ledger:
        ledger.save_model()
    first, second = forget(path, CAT), forget(path, CAT)
    assert (first.total, first.members, first.superseded) == (
        second.total,
        second.members,
        second.superseded,
    )
    assert (first.renewed, second.renewed) == (("model.safetensors",), ())
    with Ledger.open(path) as ledger:
        assert not ledger.index.unfinished  # done, and known to be
    with pytest.raises(HeadstartError, match=r"expected one of this ledger .*, got 'cow'"):
        forget(path, "cow")


def test_the_last_client_leaves_an_empty_ledger(tmp_path):
    path = tmp_path / "ledger"
    ledger, _ = filled(path, [ANT])
    with ledger:
        ledger.save_model()
        left = ledger.forget(ANT)
        assert (left.members, left.model) == (0, None)
        assert (left.renewed, left.removed) == ((), ("model.safetensors",))
        assert not (path / "model.safetensors").exists()
        assert left.total == contract_of().empty.digest()
        ledger.accept(BEE, ROUND, "k", upload_of(1))
    with Ledger.open(path) as again:
        assert again.total().digest() == total_of({BEE: upload_of(1)}).digest()


@given(st.lists(st.sampled_from(NAMES), unique=True, min_size=1), st.permutations(NAMES), st.data())
@settings(max_examples=25, deadline=None)
def test_any_clients_in_any_order(tmp_path_factory, gone, order, data):
    """Any that leave, between any that come: only those who stay count."""
    path = tmp_path_factory.mktemp("any") / "ledger"
    exact = data.draw(st.booleans())
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        uploads = {name: upload_of(NAMES.index(name), exact=exact) for name in NAMES}
        waiting = list(gone)
        for name in order:
            ledger.accept(name, ROUND, "k", uploads[name])
            ready = [n for n in waiting if n in ledger.members()]
            if ready and data.draw(st.booleans()):
                ledger.forget(ready[0])
                waiting.remove(ready[0])
        for name in waiting:
            ledger.forget(name)
        left = {n: p for n, p in uploads.items() if n not in gone}
        expected = total_of(left).digest() if left else contract_of(exact=exact).empty.digest()
        assert ledger.total().digest() == expected
