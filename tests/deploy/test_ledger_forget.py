"""Forgetting: the total, the head and the files of a federation that the client never joined."""

import json
import os
from pathlib import Path

import numpy as np
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

from .ledger_world import ROUND, contract_of, total_of, upload_of

ANT, BEE, CAT, DOG, EMU = NAMES = ["ant 1", "bee 2", "cat 3", "dog 4", "emu 5"]
HEADS = [hs.Fed3R(), hs.FedNCM(), hs.SharedVariances(), hs.FedCOF(), hs.LDA(), hs.ETF()]


def filled(path, names, head=None, exact=True):
    """A ledger with the uploads of these clients, in this order."""
    ledger = Ledger.create(path, contract_of(head, exact=exact))
    uploads = {name: upload_of(NAMES.index(name), head, exact=exact) for name in names}
    for name in names:
        ledger.accept(name, ROUND, f"key of {name}", uploads[name])
    return ledger, uploads


def traces(folder, name, payload):
    """Files under a folder that still hold a client's name, key, or a part of its message."""
    pieces = [name.encode(), payload[-64:], payload[len(payload) // 2 :][:64]]
    return [
        (file, piece[:16])
        for file in folder.rglob("*")
        if file.is_file()
        for piece in pieces
        if piece in file.read_bytes()
    ]


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


def test_an_older_export_keeps_its_own_total(tmp_path):
    ledger, uploads = filled(tmp_path / "ledger", NAMES[:3])
    with ledger:
        ledger.export(tmp_path / "out")
        ledger.accept(DOG, ROUND, "k", upload_of(3))
        ledger.forget(BEE)
    total = hs.Moments.from_bytes((tmp_path / "out" / "total.safetensors").read_bytes())
    assert total.digest() == total_of({n: uploads[n] for n in (ANT, CAT)}).digest()


def test_exports_that_cannot_be_reached_are_named(tmp_path):
    ledger, _ = filled(tmp_path / "ledger", NAMES)
    with ledger:
        for name in ("moved", "other", "fine"):
            ledger.export(tmp_path / name)
        (tmp_path / "moved").rename(tmp_path / "away")
        (tmp_path / "other" / "ledger.json").write_text('{"ledger": "another"}')
        left = ledger.forget(ANT)
    assert left.exports == (str(tmp_path / "fine"),)
    assert left.unreachable == (str(tmp_path / "moved"), str(tmp_path / "other"))


def test_a_tombstone_blocks_every_replay(tmp_path):
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    total = ledger.forget(CAT).total
    for _ in range(2):
        with ledger:
            for key in (f"key of {CAT}", "another"):
                for payload in (uploads[CAT], upload_of(9)):
                    with pytest.raises(UploadRejected) as caught:
                        ledger.accept(CAT, ROUND, key, payload)
                    assert caught.value.code == "forgotten"
            assert ledger.forgotten(CAT)
            assert not ledger.forgotten(DOG)
            assert ledger.missing(NAMES) == ()
            assert ledger.total().digest() == total
        ledger = Ledger.open(path)
    ledger.close()


def code_of(call, *args):
    with pytest.raises(UploadRejected) as caught:
        call(*args)
    return caught.value.code


def test_forgotten_bytes_do_not_come_back_under_another_name(tmp_path):
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    ledger.accept("twin", ROUND, "k", uploads[CAT])  # had the same bytes before, and keeps them
    group = ("one", "two")
    ledger.accept(group, ROUND, "k", upload_of(8))
    ledger.forget(CAT)
    total = ledger.forget("one").total
    for _ in range(2):
        with ledger:
            for name in ("fox 6", ("fox 6", "gnu 7")):
                assert code_of(ledger.accept, name, ROUND, "k", uploads[CAT]) == "forgotten"
                assert code_of(ledger.accept, name, ROUND, "k", upload_of(8)) == "forgotten"
            assert ledger.accept("twin", ROUND, "k", uploads[CAT]).repeated
            assert ledger.total().digest() == total
        ledger = Ledger.open(path)
    with ledger:
        ledger.accept("fox 6", ROUND, "k", upload_of(9))  # other bytes: a new client


def measured(head, seed, *, exact, secret, precision=None):
    rng = np.random.default_rng(seed)
    z, y = np.clip(rng.normal(size=(5, 6)), -7, 7), np.array([0, 0, 1, 1, 1])
    return head.measure(z, y, exact=exact, bound=8.0, secret=secret).to_bytes(precision)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float"])
@pytest.mark.parametrize("head", [hs.Fed3R(), hs.SharedVariances(), hs.FedCOF()], ids=str)
def test_what_was_forgotten_is_known_in_other_bytes(tmp_path, head, exact):
    """Another rotation, another encoding: the same statistic. Other samples are another one."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(head, exact=exact)) as ledger:
        ledger.accept(ANT, ROUND, "k", measured(head, 1, exact=exact, secret=b"one"))
        ledger.accept(BEE, ROUND, "k", measured(head, 2, exact=exact, secret=b"one"))
        ledger.forget(ANT)
    again = {measured(head, 1, exact=exact, secret=bytes([k])) for k in range(10)}
    if not exact:
        again |= {measured(head, 1, exact=False, secret=b"x", precision="float64")}
    with Ledger.open(path) as ledger:
        for payload in again:
            assert code_of(ledger.accept, CAT, ROUND, "k", payload) == "forgotten"
        for seed in range(3, 20):
            ledger.accept(f"{seed}", ROUND, "k", measured(head, seed, exact=exact, secret=b"two"))
        assert len(ledger.members()) == 18


def test_a_packed_encoding_of_a_forgotten_factor_is_known(tmp_path):
    small = hs.Moments.from_bytes(measured(hs.Fed3R(), 1, exact=True, secret=b"one"))
    packed = hs.total([small]).to_bytes()
    with Ledger.create(tmp_path / "ledger", contract_of()) as ledger:
        ledger.accept(ANT, ROUND, "k", small.to_bytes())
        ledger.forget(ANT)
        assert packed != small.to_bytes()
        assert code_of(ledger.accept, BEE, ROUND, "k", packed) == "forgotten"


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


@pytest.mark.parametrize("head", [hs.ETF(), hs.Fed3R()], ids=lambda head: head.name)
def test_bytes_that_others_honestly_have_are_not_kept_out(tmp_path, head):
    """No samples, or class counts alone: the same from many clients, and easily guessed."""
    labels = [0, 0, 1] if head.name == "etf" else []
    upload = upload_of(1, head, labels=labels)
    with Ledger.create(tmp_path / "ledger", contract_of(head)) as ledger:
        ledger.accept(ANT, ROUND, "k", upload)
        ledger.forget(ANT)
        ledger.accept(BEE, ROUND, "k", upload)
        assert code_of(ledger.accept, ANT, ROUND, "k", upload) == "forgotten"


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


def test_a_replay_does_not_write_the_name_down_again(tmp_path):
    """Whatever it is refused for, with whomever it comes, by whichever way."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(attempts=2)) as ledger:
        ledger.accept(CAT, ROUND, "k", upload_of(2))
        ledger.forget(CAT)
        codes = [code_of(ledger.accept, CAT, ROUND, "k", upload_of(2)) for _ in range(2)]
        codes.append(code_of(ledger.accept, CAT, CAT, "k", upload_of(2)))
        codes.append(code_of(ledger.accept, (DOG, CAT), ROUND, "k", upload_of(2)))
        with pytest.raises(UploadRejected) as caught, ledger.admit(CAT, ROUND, 2**50):
            pytest.fail("it was let in")
        codes.append(caught.value.code)
        assert codes == ["forgotten", "rate", "round", "forgotten", "size"]
        assert [refusal.code for refusal in ledger.refusals()] == codes
        assert DOG in ledger.refusals()[3].client
    assert traces(path, CAT, upload_of(2)) == []


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


def test_models_made_with_the_client_are_superseded(tmp_path):
    """And the calibrated temperature, which knew the client, goes with them."""
    import dataclasses

    path = tmp_path / "ledger"
    ledger, _ = filled(path, [ANT, BEE])
    with ledger:
        early = ledger.save_model(path=tmp_path / "early.safetensors")
        ledger.accept(CAT, ROUND, "k", upload_of(2))
        model = dataclasses.replace(ledger.solve(), temperature=2.0)
        about = {**model.provenance, "extractor": {"name": "mobilenet_v2"}}
        ledger.save_model(dataclasses.replace(model, provenance=about))
        late = ledger.save_model(path=tmp_path / "late.safetensors")
        ledger.record_model(path / "copy", "0" * 64, ledger.total().digest())  # by somebody else
        ledger.accept(DOG, ROUND, "k", upload_of(3))
        left = ledger.forget(CAT)
    assert {model.path for model in left.superseded} == {"model.safetensors", str(late), "copy"}
    assert left.renewed == ("model.safetensors", str(late))
    states = {model.path: model.state for model in _models(path)}  # the last at each path
    assert states == {
        str(early): "older",
        str(late): "current",
        "model.safetensors": "current",
        "copy": "superseded",
    }
    own = hs.LinearHead.load(path / "model.safetensors")
    assert own.temperature is None
    assert own.provenance["extractor"] == {"name": "mobilenet_v2"}
    assert own.provenance["total"] == hs.LinearHead.load(late).provenance["total"] == left.total
    assert hs.LinearHead.load(early).provenance["total"] != left.total


def test_a_head_that_somebody_changed_is_named_and_left_alone(tmp_path):
    ledger, _ = filled(tmp_path / "ledger", NAMES)
    with ledger:
        first, second = (ledger.save_model(path=tmp_path / name) for name in ("first", "second"))
        other = hs.Fed3R(ridge=5.0).solve(total_of({ANT: upload_of(9)}))
        other.save(first)
        second.unlink()
        left = ledger.forget(CAT)
    assert left.unreachable == (str(first),)
    assert left.renewed == ()
    assert first.read_bytes() == other.to_bytes()
    assert not second.exists()


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
def test_a_head_that_cannot_be_solved_any_more_is_deleted(tmp_path, exact):
    """Or the old one, which knows the client, would stay, and every start would end in an error."""
    path, head = tmp_path / "ledger", hs.ETF()
    with Ledger.create(path, contract_of(head, exact=exact)) as ledger:
        for name, label in ((ANT, 0), (BEE, 1)):
            upload = upload_of(label, head, exact=exact, labels=[label] * 5)
            ledger.accept(name, ROUND, "k", upload)
        own, other = ledger.save_model(), ledger.save_model(path=tmp_path / "other")
        left = ledger.forget(BEE)  # one class is left, and ETF needs two
        assert (left.renewed, left.model, left.unreachable) == ((), None, ())
        assert left.removed == ("model.safetensors", str(other))
        assert not own.exists()
        assert not other.exists()
        assert {model.state for model in left.superseded} == {"superseded"}
    with Ledger.open(path) as again:
        assert not again.index.unfinished
        assert list(again.members()) == [ANT]
        again.accept(CAT, ROUND, "k", upload_of(2, head, exact=exact, labels=[0, 1, 2]))
        again.save_model()


def test_a_head_that_cannot_be_written_is_named_until_it_can(tmp_path, monkeypatch):
    from headstart.deploy import ledger as ledgers

    path, write = tmp_path / "ledger", ledgers.write_bytes
    ledger, _ = filled(path, NAMES)

    def full(target, data):
        if target == stuck:
            raise HeadstartError(f"output: cannot write {target}: No space left on device")
        write(target, data)

    with ledger:
        stuck, fine = (ledger.save_model(path=tmp_path / name) for name in ("stuck", "fine"))
        monkeypatch.setattr(ledgers, "write_bytes", full)
        left = ledger.forget(CAT)
        assert (left.renewed, left.unreachable) == ((str(fine),), (str(stuck),))
    with Ledger.open(path) as again:
        assert not again.index.unfinished
    assert forget(path, CAT).unreachable == (str(stuck),)
    monkeypatch.undo()
    assert forget(path, CAT).renewed == (str(stuck),)
    assert stuck.read_bytes() == fine.read_bytes()


def _models(path):
    with Ledger.open(path) as ledger:
        return ledger.models()


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
