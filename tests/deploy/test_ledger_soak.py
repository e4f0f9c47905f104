"""Ten thousand uploads with random duplicates and kills end in the exact total."""

import numpy as np
import pytest

from headstart.deploy.failpoints import ACCEPT
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
