"""Ten thousand uploads with random duplicates and kills end in the exact total; so do three hundred
kills while clients come and are forgotten.
"""

import numpy as np
import pytest

from headstart.deploy.failpoints import ACCEPT, FORGET
from headstart.deploy.ledger import Ledger
from headstart.deploy.verifying import verify

from .ledger_server import Server, lose_power
from .ledger_world import contract_of, total_of, upload_of

CLIENTS, WINDOW, DUPLICATES = 10_000, 24, 0.2
STEPS = [*ACCEPT, "acknowledged"]


class Soak:
    """A client for all: sends what has no receipt yet, and a fifth of the rest once more."""

    def __init__(self, path, uploads, rng):
        self.path, self.uploads, self.rng = path, uploads, rng
        self.receipts, self.repeated = {}, 0
        self.waiting = [str(name) for name in rng.permutation(list(uploads))]

    def round(self, server, most):
        """Until the server is dead, everybody has a receipt, or `most` answers have come."""
        open_ones, at, answers = 0, 0, 0
        while answers < most:
            while open_ones < WINDOW and at < len(self.waiting):
                again = self.receipts and self.rng.random() < DUPLICATES
                if again:
                    client = str(self.rng.choice(list(self.receipts)[-500:]))
                else:
                    client, at = self.waiting[at], at + 1
                if not server.upload(client, "key", self.uploads[client]):
                    break
                open_ones += 1
            answer = server.receive() if open_ones else None
            if answer is None:
                break
            open_ones, answers = open_ones - 1, answers + 1
            self._note(*answer)
        self.waiting = [name for name in self.waiting if name not in self.receipts]
        return open_ones

    def _note(self, client, receipt):
        assert receipt.client == client
        assert self.receipts.setdefault(client, receipt) == receipt, "another answer than before"
        self.repeated += receipt.repeated


@pytest.mark.long
def test_ten_thousand_uploads_with_duplicates_and_kills(tmp_path):
    rng = np.random.default_rng(6)
    path, journal = tmp_path / "ledger", tmp_path / "journal"
    uploads = {f"client {seed:05}": upload_of(seed) for seed in range(CLIENTS)}
    Ledger.create(path, contract_of()).close()
    soak, kills = Soak(path, uploads, rng), 0
    while soak.waiting:
        how = rng.choice(["point", "outside", "power"])
        point = (str(rng.choice(STEPS)), int(rng.integers(1, 300)))
        die_at = None if how == "outside" else point
        server = Server(path, die_at=die_at, journal=journal, threads=6)
        soak.round(server, int(rng.integers(1, 300)) if how == "outside" else CLIENTS)
        server.kill()
        kills += server.ended() == -9
        if how == "power":
            lose_power(path, journal)
        with Ledger.open(path, write=False) as found:
            assert set(soak.receipts) <= set(found.members())
    server = Server(path, threads=6)
    soak.waiting = list(uploads)[::7]  # a seventh once more
    assert soak.round(server, CLIENTS) == 0
    assert server.ask("close") == "closed"
    assert server.ended() == 0
    found = verify(path)
    assert (found.uploads, found.total) == (CLIENTS, total_of(uploads).digest())
    assert len({receipt.number for receipt in soak.receipts.values()}) == CLIENTS
    assert kills > 30
    assert soak.repeated > 1000


KILLS, POOL = 300, 120


class Model:
    """What must be so, whoever dies: uploads that were acknowledged, and who was forgotten."""

    def __init__(self):
        self.payloads = {f"client {seed:04}": upload_of(seed) for seed in range(POOL)}
        self.receipts, self.gone, self.back = {}, {}, 0

    def fresh(self, rng):
        """A client that is not in yet; a new one, if there is none."""
        waiting = [c for c in self.payloads if c not in self.receipts and c not in self.gone]
        if not waiting:
            name = f"client {len(self.payloads):04}"
            self.payloads[name] = upload_of(len(self.payloads))
            return name
        return str(rng.choice(waiting))

    def heard(self, what, client, answer):
        if what == "forget":
            self.gone[client] = self.receipts.pop(client)
        elif what == "replay":
            assert answer == "forgotten", f"{client} is back"
            self.back += 1
        else:
            assert self.receipts.setdefault(client, answer) == answer, "another answer than before"

    def check(self, ledger, doubtful):
        """`doubtful`: what was asked when the server died may have happened, or not."""
        members = set(ledger.members())
        what, client = doubtful
        if what == "upload" and client in members and client not in self.receipts:
            receipt = ledger.index.receipt(
                ledger.index.uploads[ledger.index.of[client]], repeated=False
            )
            self.receipts[client] = receipt
        if what == "forget" and ledger.forgotten(client) and client in self.receipts:
            self.gone[client] = self.receipts.pop(client)
        assert members == set(self.receipts), "lost, doubled or back"
        assert not any(ledger.forgotten(client) for client in members)
        held = {client: self.payloads[client] for client in members}
        expected = total_of(held) if held else contract_of().empty
        assert ledger.total().digest() == expected.digest()


def ask_until_dead(server, model, rng, most):
    """Uploads, duplicates, forgettings and replays, one at a time; what was asked last."""
    asked = ("", "")
    for _ in range(most):
        inside, gone = list(model.receipts), list(model.gone)
        what = str(rng.choice(["upload", "again", "forget", "replay"], p=[0.55, 0.15, 0.2, 0.1]))
        if what == "forget" and inside:
            asked = ("forget", str(rng.choice(inside)))
            answer = server.ask(*asked)
        else:
            known = {"again": inside, "replay": gone}.get(what)
            client = str(rng.choice(known)) if known else model.fresh(rng)
            asked = ("replay" if client in model.gone else "upload", client)
            server.upload(client, "key", model.payloads[client])
            answer = server.receive()
            answer = answer and answer[1]
        if answer is None:
            return asked
        model.heard(*asked, answer)
    return ("", "")


@pytest.mark.long
def test_three_hundred_kills_while_clients_come_and_are_forgotten(tmp_path):
    rng, path, model, kills = np.random.default_rng(8), tmp_path / "ledger", Model(), 0
    Ledger.create(path, contract_of()).close()
    while kills < KILLS:
        outside = rng.random() < 0.25
        point = (str(rng.choice([*STEPS, *FORGET])), int(rng.integers(1, 12)))
        server = Server(path, die_at=None if outside else point)
        doubtful = ask_until_dead(server, model, rng, int(rng.integers(1, 40)))
        server.kill()
        kills += server.ended() == -9
        with Ledger.open(path, write=False) as found:
            model.check(found, doubtful)
    with Ledger.open(path) as found:
        model.check(found, ("", ""))
        assert not found.index.unfinished
    assert verify(path).uploads == len(model.receipts)
    assert len(model.gone) > 100
    assert model.back > 50
    print(
        f"{kills} kills: {len(model.receipts)} in, {len(model.gone)} forgotten, "
        f"{model.back} replays refused; 0 lost, 0 doubled, 0 back"
    )
