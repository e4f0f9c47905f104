"""`kill -9` at every step from receipt to acknowledgement, and of forgetting: nothing acknowledged
is lost, nothing is counted twice. Bad servers fail the same test.
"""

import json
import signal

import pytest

import headstart as hs
from headstart.deploy import failpoints
from headstart.deploy.failpoints import ACCEPT, FORGET, POINTS
from headstart.deploy.ledger import Ledger
from headstart.deploy.verifying import verify

from .ledger_server import Server, lose_power
from .ledger_world import contract_of, total_of, upload_of

STEPS = [*ACCEPT, "acknowledged"]
APPEND = ["appending", "half written", "written", "durable"]
UPLOADS = {f"client {seed}": upload_of(seed) for seed in range(6)}


def send_all(server, uploads, together):
    """Receipts of those who got one, until the server is gone."""
    found = {}
    for client, payload in uploads.items():
        if not server.upload(client, "key", payload):
            break
        if not together:
            answer = server.receive()
            if answer is None:
                return found
            found[client] = answer[1]
    while together and len(found) < len(uploads) and (answer := server.receive()):
        found[answer[0]] = answer[1]
    return found


def survive(folder, point, *, power_loss=False, threads=1, broken="", times=3):
    """Kill a server at a point, start it again, ask everybody twice: the total is exact."""
    path, journal = folder / "ledger", folder / "journal"
    Ledger.create(path, contract_of()).close()
    server = Server(path, die_at=(point, times), broken=broken, journal=journal, threads=threads)
    acknowledged = send_all(server, UPLOADS, threads > 1)
    assert server.ended() == -signal.SIGKILL, f"{point} was never reached"
    if power_loss:
        lose_power(path, journal)

    with Ledger.open(path, write=False) as found:
        members = found.members()
        assert set(acknowledged) <= set(members), "an acknowledged upload is lost"
        assert (
            found.total().digest() == total_of({c: UPLOADS[c] for c in members} or NOBODY).digest()
        )

    server = Server(path, broken=broken, threads=threads)
    for _ in range(2):
        receipts = send_all(server, UPLOADS, threads > 1)
        assert set(receipts) == set(UPLOADS)
        for client, receipt in acknowledged.items():
            assert receipts[client] == receipt, "a retry has another answer"
        acknowledged |= receipts
    assert server.ask("close") == "closed"
    assert server.ended() == 0
    assert len({receipt.number for receipt in acknowledged.values()}) == len(UPLOADS)
    found = verify(path)
    assert (found.uploads, found.total) == (len(UPLOADS), total_of(UPLOADS).digest())


NOBODY = {"": upload_of(0, n=0)}


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "power loss"])
@pytest.mark.parametrize("point", STEPS)
def test_nothing_acknowledged_is_lost_and_nothing_counted_twice(tmp_path, point, power_loss):
    survive(tmp_path, point, power_loss=power_loss)


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "power loss"])
@pytest.mark.parametrize("point", STEPS)
def test_the_same_with_uploads_that_share_a_flush(tmp_path, point, power_loss):
    survive(tmp_path, point, power_loss=power_loss, threads=4, times=2)


@pytest.mark.parametrize("point", ["received", "checked", "appending", "half written"])
def test_a_server_that_acknowledges_first_is_found_out(tmp_path, point):
    with pytest.raises(AssertionError, match="an acknowledged upload is lost"):
        survive(tmp_path, point, broken="acknowledges first")


@pytest.mark.parametrize("point", ["durable", "counted", "acknowledged"])
def test_a_server_that_does_not_flush_is_found_out_by_a_loss_of_power(tmp_path, point):
    with pytest.raises(AssertionError, match="an acknowledged upload is lost"):
        survive(tmp_path, point, broken="does not flush", power_loss=True)


def test_a_server_that_counts_again_is_found_out(tmp_path):
    with pytest.raises(AssertionError, match="a retry has another answer"):
        survive(tmp_path, "acknowledged", broken="counts again")


@pytest.mark.parametrize("point", [*APPEND, *FORGET])
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "float32"])
def test_forgetting_that_is_cut_short_is_finished_or_never_began(tmp_path, point, exact):
    """Once the tombstone is on the disk the client is out of everything, whenever the end comes."""
    path, out = tmp_path / "ledger", tmp_path / "out"
    uploads = {f"client {seed}": upload_of(seed, exact=exact) for seed in range(5)}
    with Ledger.create(path, contract_of(exact=exact)) as ledger:
        for client, payload in uploads.items():
            ledger.accept(client, "spring", "key", payload)
        ledger.save_model()
        ledger.export(out)
    nodes = path / "nodes.json"
    nodes.write_text(json.dumps({"keys": dict.fromkeys(uploads, "0" * 64)}))
    before = total_of(uploads).digest()
    server = Server(path, die_at=(point, 1))
    assert server.ask("forget", "client 2") is None
    assert server.ended() == -signal.SIGKILL

    with Ledger.open(path) as ledger:
        assert ledger.forgotten("client 2") == (point != "appending")  # a tombstone is all head
        if not ledger.forgotten("client 2"):
            assert ledger.total().digest() == before
        assert ledger.forget("client 2").total == ledger.total().digest()  # the same call goes on
        left = {c: p for c, p in uploads.items() if c != "client 2"}
        assert ledger.total().digest() == total_of(left).digest()
        own = hs.LinearHead.load(path / "model.safetensors")
        assert own.provenance["total"] == ledger.total().digest()
    assert set(json.loads(nodes.read_text())["keys"]) == set(left)
    sent = uploads["client 2"]
    for file in [f for f in tmp_path.rglob("*") if f.is_file()]:
        data = file.read_bytes()
        assert b"client 2" not in data, file
        assert sent[-200:] not in data, file
    assert verify(path).total == total_of(left).digest()
    total = hs.Moments.from_bytes((out / "total.safetensors").read_bytes())
    assert total.digest() == total_of(left).digest()


def test_a_snapshot_that_is_cut_short_is_not_used(tmp_path):
    path = tmp_path / "ledger"
    Ledger.create(path, contract_of()).close()
    server = Server(path, die_at=("total saved", 1))
    assert len(send_all(server, UPLOADS, False)) == len(UPLOADS)
    assert server.ask("close") is None
    assert server.ended() == -signal.SIGKILL
    assert verify(path).total == total_of(UPLOADS).digest()


def test_every_point_that_is_reached_has_a_name_and_a_test(tmp_path, monkeypatch):
    """A point that no test dies at would be a promise that nobody keeps."""
    hit = set()
    monkeypatch.setattr(failpoints, "hook", hit.add)
    with Ledger.create(tmp_path / "ledger", contract_of()) as ledger:
        for client, payload in UPLOADS.items():
            ledger.accept(client, "spring", "key", payload)
        ledger.forget("client 2")
    assert hit == set(POINTS)
    assert hit - {"total saved"} == tried() - {"acknowledged"}


def tried():
    """The points at which the tests of this file end a server, and see that they did."""
    tests = (
        test_nothing_acknowledged_is_lost_and_nothing_counted_twice,
        test_forgetting_that_is_cut_short_is_finished_or_never_began,
    )
    marks = [mark.args for test in tests for mark in test.pytestmark]
    return {point for name, points in marks if name == "point" for point in points}
