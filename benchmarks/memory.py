"""Peak memory of the server's work, each piece alone in a fresh process.

    python memory.py fold FILE          messages read one by one from FILE, added, Fed3R solved
    python memory.py fedcof ROWS        FedCOF solved from that many client means already in memory
    python memory.py random-features D  clients measured in D random features, sent, added, solved

Prints a JSON object with the bytes beyond what was there before the work began: the rise of the
resident set's high-water mark where /proc tells it, the peak of Python's own allocations elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import headstart as hs
import synthetic

_STATUS = Path("/proc/self/status")


def in_fresh_process(*task: object, script: str = __file__) -> int:
    """The peak of one task of a script, in bytes."""
    command = [sys.executable, script, *map(str, task)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(json.loads(result.stdout)["peak"])


def write_messages(path: Path, messages: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        for message in messages:
            file.write(len(message).to_bytes(8, "little") + message)


def read_messages(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(8):
            yield file.read(int.from_bytes(head, "little"))


def peak_of(work: Callable[[], object]) -> int:
    if not _STATUS.exists():
        tracemalloc.start()
        work()
        return tracemalloc.get_traced_memory()[1]
    before = _kilobytes("VmRSS")
    work()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(name: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def fold(path: str) -> int:
    def work() -> hs.LinearHead:
        return hs.Fed3R().solve(hs.total(map(hs.Moments.from_bytes, read_messages(Path(path)))))

    return peak_of(work)


def fedcof(rows: str) -> int:
    rng, n, d = np.random.default_rng(0), int(rows), synthetic.DIMENSION
    means = np.empty((n, d))
    for row in means:
        rng.standard_normal(out=row)
    labels = np.sort(rng.integers(0, synthetic.CLASSES, n))
    total = hs.ClientMeans(d, labels, np.ones(n), means)
    return peak_of(lambda: hs.FedCOF().solve(total))


def random_features(dimension: str) -> int:
    clients = synthetic.federation(np.full(154, 13))
    head = hs.Fed3RRandomFeatures(dimension=int(dimension))

    def uploads() -> Iterator[hs.Moments]:
        for k in range(len(clients)):
            yield hs.Moments.from_bytes(head.measure(*clients.client(k)).to_bytes())

    return peak_of(lambda: head.solve(hs.total(uploads())))


if __name__ == "__main__":
    task = {"fold": fold, "fedcof": fedcof, "random-features": random_features}[sys.argv[1]]
    with threadpool_limits(1):
        print(json.dumps({"peak": task(sys.argv[2])}))
