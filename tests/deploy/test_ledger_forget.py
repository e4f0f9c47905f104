"""Forgetting: the total, the head and the files of a federation that the client never joined."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.deploy.door import Refused
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
    """R22, to the bit, exact or not, whatever the order in which the others came."""
    ledger, uploads = filled(tmp_path / "with", NAMES, head, exact)
    without, _ = filled(tmp_path / "without", [EMU, ANT, DOG, BEE], head, exact)
    with ledger, without:
        solved = head.name != "etf" and without.save_model().read_bytes()
        if solved:
            ledger.save_model()
        left = ledger.forget(CAT)
        assert left.members == 4
        assert left.total == ledger.total().digest() == without.total().digest()
        assert left.total == total_of({n: uploads[n] for n in NAMES if n != CAT}, head).digest()
        assert set(ledger.members().items()) == set(without.members().items())
        if solved:
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
    """R23: log, snapshot, model, refusals and exports; the name is there only until then."""
    path = tmp_path / "ledger"
    ledger, uploads = filled(path, NAMES)
    with ledger:
        ledger.save_model()
        ledger.export(tmp_path / "out")
        with pytest.raises(Refused):
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
                    with pytest.raises(Refused) as caught:
                        ledger.accept(CAT, ROUND, key, payload)
                    assert caught.value.code == "forgotten"
            assert ledger.forgotten(CAT)
            assert not ledger.forgotten(DOG)
            assert ledger.missing(NAMES) == ()
            assert ledger.total().digest() == total
        ledger = Ledger.open(path)
    ledger.close()


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
        assert not ledger.book.unfinished  # done, and known to be
    with pytest.raises(HeadstartError, match=r"expected one of this ledger .*, got 'cow'"):
        forget(path, "cow")


def test_the_last_client_leaves_an_empty_ledger(tmp_path):
    path = tmp_path / "ledger"
    ledger, _ = filled(path, [ANT])
    with ledger:
        ledger.save_model()
        left = ledger.forget(ANT)
        assert (left.members, left.model) == (0, None)
        assert left.renewed == ("model.safetensors",)
        assert not (path / "model.safetensors").exists()
        assert left.total == contract_of().empty.digest()
        ledger.accept(BEE, ROUND, "k", upload_of(1))
    with Ledger.open(path) as again:
        assert again.total().digest() == total_of({BEE: upload_of(1)}).digest()


def test_models_made_with_the_client_are_superseded(tmp_path):
    """R24, and the calibrated temperature, which knew the client, goes with it."""
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
