"""The snapshot is only a shortcut: with or without it the total is the same."""

import pytest

from headstart.deploy import ledger as ledgers
from headstart.deploy import log as logs
from headstart.deploy.ledger import Ledger

from .ledger_world import MODES, abandon, contract_of, fill, total_of


@pytest.mark.parametrize(("head", "exact"), MODES)
@pytest.mark.parametrize("harm", ["none", "gone", "damaged", "older", "of others"])
def test_a_snapshot_never_changes_the_total(tmp_path, head, exact, harm):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(head, exact=exact)) as ledger:
        uploads = fill(ledger, "abc", head, exact)
        ledger.total()
    total, about = path / "total.safetensors", path / "total.json"
    assert total.exists()
    old = total.read_bytes(), about.read_bytes()
    if harm == "gone":
        total.unlink()
    elif harm == "damaged":
        total.write_bytes(old[0][:-1] + bytes([old[0][-1] ^ 1]))
    elif harm == "older":
        with Ledger.open(path) as ledger:
            uploads |= fill(ledger, "de", head, exact)
        total.write_bytes(old[0])
        about.write_bytes(old[1])
    elif harm == "of others":
        about.write_text(about.read_text().replace('"a"', '"z"'))
    with Ledger.open(path) as ledger:
        assert ledger.total().digest() == total_of(uploads, head).digest()


def test_a_snapshot_is_used_and_made_on_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(ledgers, "SNAPSHOT_EVERY", 4)
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    uploads = fill(ledger, "abcdef")
    abandon(ledger)
    assert (path / "total.json").exists()
    read = []
    payload = logs.Log.payload
    monkeypatch.setattr(logs.Log, "payload", lambda log, n: (read.append(n), payload(log, n))[1])
    with Ledger.open(path) as reopened:
        assert read == [5, 6]
        assert reopened.total().digest() == total_of(uploads).digest()
