"""`headstart ledger`: what it lists, and what it says of forgetting."""

import hashlib
import shutil

from typer.testing import CliRunner

from headstart.cli.ledger import app, forget_client
from headstart.deploy.ledger import Ledger
from headstart.errors import HeadstartError

from ..deploy.ledger_world import (
    abandon,
    code_of,
    contract_of,
    fill,
    log_files,
)


def test_forgetting_says_what_it_changed(tmp_path, capsys):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "abc")
        old = hashlib.sha256(ledger.save_model().read_bytes()).hexdigest()
        ledger.export(tmp_path / "here")
        ledger.export(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    forget_client(path, "b")
    said = capsys.readouterr().out
    with Ledger.open(path) as ledger:
        total = ledger.total().digest()
    for line in (
        f"b is out: 2 clients, total {total[:16]}…",
        "solved again: model.safetensors",
        f"superseded: model.safetensors, sha256 {old}",
        f"purged: {tmp_path / 'here'}",
        f"not reached, look yourself: {tmp_path / 'gone'}",
    ):
        assert line in said


def test_the_command_line(tmp_path):
    run, path = CliRunner(), str(tmp_path / "ledger")
    with Ledger.create(path, contract_of()) as ledger:
        assert run.invoke(app, ["list", path]).exit_code == 0  # empty, and in use
        fill(ledger, "abc")
        ledger.save_model()
        code_of(ledger.accept, "a", "winter", "k", b"")
        ledger.forget("b")
        total = ledger.total().digest()
    shown = run.invoke(app, ["list", path]).output
    for text in ("round spring", "forgotten: 1", "superseded", "refused: round 1", total):
        assert text in shown
    assert "sound: 2 clients, 2 uploads" in run.invoke(app, ["verify", path]).output
    out = str(tmp_path / "out")
    assert "2 uploads" in run.invoke(app, ["export", path, out]).output
    abandon(Ledger.open(path))
    (file, *_) = log_files(path)
    with open(log_files(path)[-1], "ab") as tail:
        tail.write(b"half a rec")
    assert "10 bytes at the end" in run.invoke(app, ["verify", path]).output
    whole = file.read_bytes()
    file.write_bytes(whole[:60] + b"x" + whole[61:])
    failed = run.invoke(app, ["verify", path])
    assert isinstance(failed.exception, HeadstartError)
