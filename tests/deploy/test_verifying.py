"""`verify` finds what somebody has changed."""

import pytest

import headstart as hs
from headstart.deploy.ledger import Ledger
from headstart.deploy.snapshot import Snapshot
from headstart.deploy.verifying import verify
from headstart.errors import HeadstartError

from .ledger_world import contract_of, fill, total_of, upload_of


def test_verify_finds_a_model_that_somebody_changed(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "abc")
        file = ledger.save_model()
        assert verify(path).models == 1
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(HeadstartError, match=r"model\.safetensors is not a head"):
            verify(path)
        hs.Fed3R(ridge=7.0).solve(total_of({"a": upload_of(9)})).save(file)
        with pytest.raises(HeadstartError, match=r"model\.safetensors is not a head"):
            verify(path)
        file.write_bytes(whole)
        fill(ledger, "d")
        monkeypatch.setattr(ledger, "_record", lambda *_, **__: None)  # a crash before the record
        ledger.save_model()
        assert verify(path).models == 1
        file.unlink()
        assert verify(path).models == 0


def test_verify_finds_a_snapshot_that_is_not_the_sum(tmp_path):
    """Sound files, the right members, and another total: only folding again can tell."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        uploads = fill(ledger, "abc")
    assert verify(path).total == total_of(uploads).digest()
    wrong = total_of(uploads | {"c": upload_of(7)})
    Snapshot(path, ledger.contract).save(ledger.members(), wrong)
    with pytest.raises(HeadstartError, match="not the sum"):
        verify(path)
