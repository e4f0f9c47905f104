"""Models that were made with a forgotten client are made again, or named and deleted."""

import pytest

import headstart as hs
from headstart.deploy.forgetting import forget
from headstart.deploy.ledger import Ledger
from headstart.errors import HeadstartError

from .ledger_world import ANT, BEE, CAT, DOG, NAMES, ROUND, contract_of, filled, total_of, upload_of


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
