"""Refusals are listed with their reasons."""

import pytest
from typer.testing import CliRunner

from headstart.cli.ledger import app, forget_client
from headstart.deploy import refusals as refusal_files
from headstart.deploy.ledger import Ledger

from .ledger_world import ROUND, code_of, contract_of, fill, upload_of


def test_refusals_are_listed_with_their_reasons(tmp_path, ledger, monkeypatch):
    code_of(ledger.accept, "a", "winter", "k", upload_of(1))
    code_of(ledger.accept, ("b", "c"), ROUND, "k", b"nonsense")
    first, second = ledger.refusals()
    assert (first.client, first.code) == ("a", "round")
    assert "spring" in first.text
    assert (second.client, second.code) == ("b, c", "malformed")
    assert first.time <= second.time
    monkeypatch.setattr(refusal_files, "_FILE_BYTES", 500)
    for _ in range(100):
        code_of(ledger.accept, "a", "winter", "k", upload_of(1))
    kept = sum(path.stat().st_size for path in (tmp_path / "ledger").glob("refusals*"))
    assert kept < 2000
    with open(tmp_path / "ledger" / "refusals.jsonl", "a") as file:
        file.write('{"time": "cut short')
    assert ledger.refusals()[-1].code == "round"


@pytest.mark.parametrize(
    "line", ['{"clients": [1], %s}', '{"clients": "a", %s}', '{"clients": null, %s}', "7", "[]"]
)
def test_a_line_of_refusals_that_makes_no_sense_is_said_and_in_nobodys_way(tmp_path, line):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "ab")
        code_of(ledger.accept, "c", "winter", "k", upload_of(1))
    with open(path / "refusals.jsonl", "a") as file:
        file.write(line.replace("%s", '"code": "round", "text": "t", "time": "now"') + "\n")
    shown = CliRunner().invoke(app, ["list", str(path)])
    assert shown.exit_code == 0
    assert "refused: round 1\n" in shown.output
    assert "refusals: 1 line cannot be read" in shown.output
    forget_client(path, "a")
    assert [refusal.client for refusal in ledger.refusals()] == ["c"]
