"""The ledger against a model in memory: uploads, duplicates, drops, crashes, restarts, and
forgetting, in any order.
"""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headstart.deploy import failpoints
from headstart.deploy.admission import UploadRejected
from headstart.deploy.failpoints import ACCEPT, FORGET
from headstart.deploy.ledger import Ledger
from headstart.deploy.verifying import verify

from .ledger_world import ROUND, contract_of, total_of, upload_of

CLIENTS = [f"client-{number}" for number in range(5)]
PAYLOADS = {exact: [upload_of(seed, exact=exact) for seed in range(8)] for exact in (True, False)}
clients, contents, keys = st.sampled_from(CLIENTS), st.integers(0, 7), st.sampled_from("xy")


class Crash(BaseException):
    """The process is gone; nothing after it happens."""


class LedgerMachine(RuleBasedStateMachine):
    """`sent`: the key and bytes of every member; `gone`, `gone_bytes`: who was forgotten, and what
    they had sent; `seen`: who was refused, and so can be forgotten.
    """

    @initialize(exact=st.booleans())
    def begin(self, exact):
        self.folder = Path(tempfile.mkdtemp())
        self.exact, self.path = exact, self.folder / "ledger"
        self.ledger = Ledger.create(self.path, contract_of(exact=exact))
        self.sent, self.receipts = {}, {}
        self.gone, self.gone_bytes, self.seen = set(), [], set()

    def teardown(self):
        failpoints.hook = None
        if hasattr(self, "ledger"):
            self.ledger.close()
            found = verify(self.path)
            assert found.uploads == len(self.sent)
            shutil.rmtree(self.folder)

    # -- what can happen -----------------------------------------------------------------------

    @rule(client=clients, content=contents, key=keys)
    def upload(self, client, content, key):
        payload = PAYLOADS[self.exact][content]
        expected = self._expected(client, key, payload)
        receipt = self._answer(client, ROUND, key, payload)
        if expected not in ("new", "again"):
            assert receipt == expected
            return
        assert receipt.repeated == (expected == "again")
        if expected == "again" and client in self.receipts:
            assert receipt == self.receipts[client]
        assert receipt.number not in {r.number for c, r in self.receipts.items() if c != client}
        self.sent[client], self.receipts[client] = (key, payload), receipt

    def _answer(self, *upload):
        """The receipt, or the code of the refusal."""
        try:
            return self.ledger.accept(*upload)
        except UploadRejected as refused:
            self.seen.add(upload[0])
            return refused.code

    def _expected(self, client, key, payload):
        if client in self.gone:
            return "forgotten"
        if client not in self.sent:
            return "forgotten" if payload in self.gone_bytes else "new"
        if self.sent[client][0] != key:
            return "member"
        return "again" if self.sent[client][1] == payload else "key"

    @rule(client=clients)
    def drop(self, client):
        """An upload that is lost on the way: the server never hears of it."""
        assert (client in self.ledger.members()) == (client in self.sent)

    @rule(client=clients, content=contents)
    def stale(self, client, content):
        assert self._answer(client, "winter", "x", PAYLOADS[self.exact][content]) == "round"

    @rule(client=clients, content=contents, key=keys, point=st.sampled_from(list(ACCEPT)))
    def crash_in_an_upload(self, client, content, key, point):
        payload = PAYLOADS[self.exact][content]
        expected = self._expected(client, key, payload)
        died = self._until(point, lambda: self.ledger.accept(client, ROUND, key, payload))
        if died:
            self._restart()
            if expected == "new" and client in self.ledger.members():
                self.sent[client] = (key, payload)  # durable, though nobody was told
        elif expected == "new":
            raise AssertionError(f"{point} was not reached")

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def forget(self, data):
        client = data.draw(st.sampled_from(sorted(self.sent)))
        left = self.ledger.forget(client)
        self._is_gone(client)
        assert left.members == len(self.sent)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), point=st.sampled_from(["appending", "written", *FORGET]))
    def crash_in_forgetting(self, data, point):
        client = data.draw(st.sampled_from(sorted(self.sent)))
        if self._until(point, lambda: self.ledger.forget(client)):
            self._restart()
            if self.ledger.forgotten(client):
                self._is_gone(client)
            else:
                assert point == "appending"
        else:
            self._is_gone(client)

    @precondition(lambda self: self.seen - set(self.sent))
    @rule(data=st.data())
    def forget_one_that_is_not_in(self, data):
        """It was refused: its name goes, and it stays out."""
        client = data.draw(st.sampled_from(sorted(self.seen - set(self.sent))))
        assert self.ledger.forget(client).members == len(self.sent)
        self.gone.add(client)

    def _is_gone(self, client):
        _, payload = self.sent.pop(client)
        self.receipts.pop(client, None)
        self.gone.add(client)
        self.gone_bytes.append(payload)

    @rule(clean=st.booleans())
    def restart(self, clean):
        if clean:
            self.ledger.close()
        self._restart()

    @rule(extra=st.binary(min_size=1, max_size=200))
    def crash_with_a_torn_end(self, extra):
        """A write that the disk saw only in part."""
        self._die()
        with open(sorted((self.path / "log").glob("*.log"))[-1], "ab") as file:
            file.write(extra)
        self.ledger = Ledger.open(self.path)
        assert self.ledger.torn == len(extra)

    @precondition(lambda self: self.sent)
    @rule()
    def save_model(self):
        self.ledger.save_model()

    def _until(self, point, work):
        """Do something that ends at a fail point; whether it did."""

        def die(reached):
            if reached == point:
                raise Crash

        failpoints.hook = die
        try:
            work()
        except Crash:
            return True
        except UploadRejected:
            return False
        finally:
            failpoints.hook = None
        return False

    def _die(self):
        self.ledger._log.close()
        self.ledger._unlock()

    def _restart(self):
        self._die()
        self.ledger = Ledger.open(self.path)

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def the_total_is_that_of_the_members(self):
        if not hasattr(self, "ledger"):
            return
        uploads = {client: payload for client, (_, payload) in self.sent.items()}
        assert set(self.ledger.members()) == set(uploads)
        expected = total_of(uploads) if uploads else contract_of(exact=self.exact).empty
        assert self.ledger.total().digest() == expected.digest()
        assert self.ledger.so_far().samples == expected.samples

    @invariant()
    def nothing_is_left_of_the_forgotten(self):
        if not hasattr(self, "ledger"):
            return
        held = b"".join(
            Path(root, name).read_bytes()
            for root, _, names in os.walk(self.path)
            for name in names
            if name != "lock"
        )
        current = [payload for _, payload in self.sent.values()]
        for payload in self.gone_bytes:
            assert payload in current or payload not in held
        assert all(client.encode() not in held for client in self.gone)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
