"""The folder of a ledger: one writer, its lock, and where it can be."""

import os

import pytest

from headstart.deploy import ledger_dir
from headstart.deploy import log as logs
from headstart.deploy.ledger import Ledger, is_ledger
from headstart.deploy.verifying import verify
from headstart.errors import HeadstartError

from .ledger_world import ROUND, abandon, contract_of, fill, log_files, total_of, upload_of


def test_one_process_writes_and_anybody_looks(tmp_path, ledger):
    uploads = fill(ledger)
    path = tmp_path / "ledger"
    with pytest.raises(HeadstartError, match=f"in use by process {os.getpid()}"):
        Ledger.open(path)
    with Ledger.open(path, write=False) as other:
        assert other.total().digest() == total_of(uploads).digest()
        with pytest.raises(HeadstartError, match="open for writing"):
            other.accept("z", ROUND, "k", upload_of(1))
        with pytest.raises(HeadstartError, match="open for writing"):
            other.forget("a")
    ledger.accept("z", ROUND, "k", upload_of(1))
    ledger.close()
    ledger.close()
    with pytest.raises(HeadstartError, match="open for writing"):
        ledger.accept("y", ROUND, "k", upload_of(1))
    assert oct(path.stat().st_mode & 0o777) == "0o700"


def test_a_writer_whose_lock_was_deleted_writes_nothing_more(tmp_path, ledger):
    """Two writers would number their records alike, and cut each other's off as torn."""
    uploads, path = fill(ledger, "ab"), tmp_path / "ledger"
    (path / "lock").unlink()
    with Ledger.open(path) as second:
        with pytest.raises(HeadstartError, match=r"lock.* is not the file that this process holds"):
            ledger.accept("c", ROUND, "k", upload_of(3))
        with pytest.raises(HeadstartError):
            ledger.forget("a")
        second.accept("d", ROUND, "k", upload_of(4))
        uploads["d"] = upload_of(4)
        ledger.close()  # which would write that all is well
        second.accept("e", ROUND, "k", upload_of(5))
        uploads["e"] = upload_of(5)
    assert verify(path).total == total_of(uploads).digest()


def test_an_upload_during_which_the_lock_was_deleted_is_not_acknowledged(ledger, monkeypatch):
    flush = os.fdatasync

    def stolen(handle):
        flush(handle)
        (ledger.path / "lock").unlink()

    monkeypatch.setattr(logs.os, "fdatasync", stolen)
    with pytest.raises(HeadstartError, match="is not the file"):
        ledger.accept("a", ROUND, "k", upload_of(1))
    monkeypatch.undo()
    assert ledger.members() == {}
    assert is_ledger(ledger.path)


def test_where_a_ledger_can_be(tmp_path):
    assert not is_ledger(tmp_path)
    with pytest.raises(HeadstartError, match="is none"):
        Ledger.open(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(HeadstartError, match="expected a folder"):
        Ledger.create(tmp_path / "file", contract_of())
    with pytest.raises(HeadstartError, match="not empty"):
        Ledger.create(tmp_path, contract_of())
    path = tmp_path / "ledger"
    (path / "log").mkdir(parents=True)  # what a `create` cut short leaves
    Ledger.create(path, contract_of()).close()
    assert is_ledger(path)
    with pytest.raises(HeadstartError, match="not empty"):
        Ledger.create(path, contract_of())
    text = (path / "contract.json").read_text()
    (path / "contract.json").write_text(text.replace('"dimension": 6', '"dimension": 7'))
    with pytest.raises(HeadstartError, match=r"contract\.json"):
        Ledger.open(path)
    (path / "contract.json").write_text("[]")
    with pytest.raises(HeadstartError, match=r"contract\.json"):
        Ledger.open(path)


def test_a_new_ledger_has_its_log_before_it_is_one(tmp_path, monkeypatch):
    """A `create` that is cut short leaves no ledger, or one that can be opened."""
    made = []
    write = ledger_dir.write_text

    def cut_short(path, text, mode):
        made.append(log_files(tmp_path / "ledger"))
        write(path, text)
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger_dir, "write_text", cut_short)
    with pytest.raises(KeyboardInterrupt):
        Ledger.create(tmp_path / "ledger", contract_of())
    assert [file.name for file in made[0]] == ["00000001.log"]
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.members() == {}


def test_a_log_without_its_contract_is_not_written_over(tmp_path):
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, contract_of())
    fill(ledger, "a")
    abandon(ledger)
    (path / "contract.json").unlink()
    kept = log_files(path)[0].read_bytes()
    with pytest.raises(HeadstartError, match="not empty"):
        Ledger.create(path, contract_of())
    assert log_files(path)[0].read_bytes() == kept


def test_nobody_else_can_read_a_ledger_in_a_folder_that_was_there(tmp_path):
    path = tmp_path / "ledger"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    Ledger.create(path, contract_of()).close()
    assert oct(path.stat().st_mode & 0o777) == "0o700"
    path.chmod(0o755)
    Ledger.open(path, write=False).close()
    assert oct(path.stat().st_mode & 0o777) == "0o755"  # only looked at
    Ledger.open(path).close()
    assert oct(path.stat().st_mode & 0o777) == "0o700"
