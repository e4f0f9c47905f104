"""Looking at a ledger while its server forgets."""

import pytest

from headstart.deploy.ledger import Ledger
from headstart.deploy.verifying import verify
from headstart.errors import HeadstartError

from .ledger_world import contract_of, fill, log_files, total_of


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
def test_a_reader_finds_uploads_where_they_are_now(tmp_path, exact):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        uploads = fill(ledger, "abcd", exact=exact)
        with Ledger.open(path, write=False) as reader:
            entries = {entry.who: entry for entry in reader.entries()}
            ledger.forget("b")
            for name in "acd":
                assert reader.payload(entries[name]) == uploads[name]
            with pytest.raises(HeadstartError, match="changed while it was read") as caught:
                reader.payload(entries["b"])
            assert "backup" not in str(caught.value)


def test_a_reader_still_says_what_is_damaged(tmp_path):
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of()) as ledger:
        fill(ledger, "ab")
    with Ledger.open(path, write=False) as reader:
        (file,), place = log_files(path), reader._log._places[1]
        whole = file.read_bytes()
        file.write_bytes(whole[: place.at] + b"x" + whole[place.at + 1 :])
        with pytest.raises(HeadstartError, match="is damaged at byte 0"):
            reader.payload(reader.entries()[0])


def members_and_total(path):
    with Ledger.open(path, write=False) as reader:
        return len(reader.members()), reader.total().digest()


def verified(path):
    found = verify(path)
    return found.clients, found.total


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
@pytest.mark.parametrize(
    ("look", "step"),
    [(members_and_total, "_refold"), (verified, "_refold"), (verified, "payload")],
)
def test_a_forgetting_in_the_middle_of_a_look_is_no_damage(
    tmp_path, monkeypatch, exact, look, step
):
    """While a reader opens the ledger, and while it reads the uploads again."""
    path = tmp_path / "ledger"
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        uploads = fill(ledger, "abcd", exact=exact)
        real, begun = getattr(Ledger, step), []

        def forget_first(one, *args):
            if one is not ledger and not begun:
                begun.append(step)
                ledger.forget("a")
            return real(one, *args)

        monkeypatch.setattr(Ledger, step, forget_first)
        found = look(path)
    assert begun == [step]
    assert found == (3, total_of({c: uploads[c] for c in "bcd"}).digest())
