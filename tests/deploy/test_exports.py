"""Models of a ledger, and its export as plain files."""

import pytest

import headstart as hs
from headstart.deploy.ledger import Ledger
from headstart.errors import HeadstartError

from .ledger_world import fill


def test_models_are_current_older_or_superseded(tmp_path, ledger):
    fill(ledger, "ab")
    first = ledger.save_model()
    assert hs.LinearHead.load(first).provenance["total"] == ledger.total().digest()
    assert [m.state for m in ledger.models()] == ["current"]
    fill(ledger, "c")
    second = ledger.save_model(path=tmp_path / "second.safetensors")
    assert [m.state for m in ledger.models()] == ["older", "current"]
    assert ledger.models()[1].path == str(second)
    ledger.forget("c")  # the first was made without it, and is the total's again
    states = ["current", "superseded", "current"]  # the second was solved again where it was
    assert [m.state for m in ledger.models()] == states
    ledger.record_model("elsewhere", "0" * 64, "a total of who knows when")
    states.append("superseded")  # it may hold what was forgotten
    ledger.close()
    with Ledger.open(tmp_path / "ledger") as again:
        assert [m.state for m in again.models()] == states


def test_an_export_is_plain_files(tmp_path, ledger):
    uploads = fill(ledger, "abc")
    folder = ledger.export(tmp_path / "out")
    files = sorted((folder / "uploads").iterdir())
    assert {file.read_bytes() for file in files} == set(uploads.values())
    total = hs.Moments.from_bytes((folder / "total.safetensors").read_bytes())
    assert total.digest() == ledger.total().digest()
    assert ledger.id in (folder / "ledger.json").read_text()
    with pytest.raises(HeadstartError, match="there already"):
        ledger.export(folder)
