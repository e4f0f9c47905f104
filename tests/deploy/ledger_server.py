"""A server in a process of its own, to be killed: uploads come through a pipe, receipts go back.

`die_at` names a fail point (or "acknowledged", after a receipt has been sent) and the time at which
the process ends itself there with SIGKILL. `broken` makes it one of three bad servers, which the
same tests must find out.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from headstart.deploy import failpoints
from headstart.deploy.admission import UploadRejected
from headstart.deploy.ledger import Ledger, Receipt

from .ledger_world import ROUND

BROKEN = ("acknowledges first", "does not flush", "counts again")
_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["__main__", "headstart.deploy.ledger", "scipy.linalg"])


class _Executioner:
    """Ends the process when a point is reached for the nth time."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self.left, self.lock = point, times, threading.Lock()

    def __call__(self, point: str) -> None:
        if point != self.point:
            return
        with self.lock:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _journal(path: Path, flushing: bool) -> None:
    """From now on `path` tells how much of each file has been flushed to the disk."""
    flush = os.fdatasync

    def told(handle: int) -> None:
        if not flushing:
            return
        flush(handle)
        line = {"file": os.readlink(f"/proc/self/fd/{handle}"), "size": os.fstat(handle).st_size}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    os.fdatasync = told


def lose_power(folder: Path, journal: Path) -> None:
    """What the kernel had not flushed is gone; what it has is there."""
    flushed: dict[str, int] = {}
    for line in journal.read_text().splitlines() if journal.exists() else []:
        one = json.loads(line)
        flushed[one["file"]] = one["size"]
    for file in (folder / "log").glob("*.log"):
        os.truncate(file, min(flushed.get(str(file), 0), file.stat().st_size))


def serve(path, pipe, die_at, broken, journal, threads) -> None:
    if die_at:
        failpoints.hook = _Executioner(*die_at)
    if journal:
        _journal(Path(journal), flushing=broken != "does not flush")
    ledger = Ledger.open(path)
    if broken == "counts again":
        ledger.index.known = lambda *_: None
    sending = threading.Lock()

    def answer(client, receipt) -> None:
        with sending:
            pipe.send((client, receipt))
        failpoints.reached("acknowledged")

    def handle(client, key, payload) -> None:
        if broken == "acknowledges first":
            answer(client, Receipt(client, ROUND, "", 0))
        try:
            receipt = ledger.accept(client, ROUND, key, payload)
        except UploadRejected as refused:
            receipt = refused.code
        if broken != "acknowledges first":
            answer(client, receipt)

    with ThreadPoolExecutor(threads) as pool:
        while True:
            what, *args = pipe.recv()
            if what == "upload":
                pool.submit(handle, *args).add_done_callback(_end_on_error)
            elif what == "forget":
                pipe.send(ledger.forget(*args).total)
            else:
                break
    ledger.close()
    pipe.send("closed")


def _end_on_error(future) -> None:
    if future.exception() is not None:
        os._exit(3)


class Server:
    """The parent's side. A call that finds the server dead says None."""

    def __init__(self, path, *, die_at=None, broken="", journal=None, threads=1) -> None:
        self.pipe, theirs = _fork.Pipe()
        args = (str(path), theirs, die_at, broken, journal and str(journal), threads)
        self.process = _fork.Process(target=serve, args=args)
        self.process.start()
        theirs.close()

    def upload(self, client, key, payload) -> bool:
        with suppress(OSError):
            self.pipe.send(("upload", client, key, payload))
            return True
        return False

    def receive(self):
        with suppress(EOFError, OSError):
            return self.pipe.recv()
        return None

    def ask(self, *what):
        with suppress(OSError):
            self.pipe.send(what)
        return self.receive()

    def kill(self) -> None:
        self.process.kill()

    def ended(self) -> int:
        """How the process ended (−9: killed); its pipe is closed."""
        self.process.join(120)
        code = self.process.exitcode
        self.pipe.close()
        self.process.close()
        return code
