"""What secure sums cost at the size of iNaturalist-Users (d = 1280, 1,203 classes).

    python benchmarks/secure.py [--quick] [--json PATH]

One full round a group size, in this process, with one BLAS thread; times are CPU times, the best of
the members. Ratios are what counts.

mask      a client's answer at the mask stage: flatten, n masks, encode | n raw ChaCha20 key streams
          of the same length, one after the other, without adding them
keys      its other stages: key pairs, shares, sealing, opening
noise     what drawing a share of discrete Gaussian noise under the masks adds to a client's work
plain     the same client's plain message: to measure and encode it, and its bytes
up        bytes a client sends in all stages; `sum` is the vector alone (`costs.sync_bytes`)
small     the mean message of the same clients without secure sums, exact and at float32
server    to take one masked vector in, and to take all masks away (a member)
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import headstart as hs
import synthetic
from headstart.privacy.client import Client
from headstart.privacy.layout import Layout
from headstart.privacy.plan import SHARES
from headstart.privacy.sensitivity import Noise
from headstart.privacy.server import Server
from headstart.privacy.terms import Policy, Terms

GROUPS = (4, 10, 30)


@dataclass(frozen=True)
class Cost:
    """One group size: seconds and bytes per client (of the server: per member)."""

    group: int
    dimension: int
    classes: int
    mask: float
    stream: float
    keys: float
    noise: float
    plain: float
    receive: float
    unmask: float
    up: int
    down: int
    vector: int
    message: int

    @property
    def ratio(self) -> float:
        return self.mask / self.stream


class Clock:
    """CPU seconds by what they were spent on: all of them, and the best of each kind."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}

    def __call__(self, what: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        found = work()
        self.spent.setdefault(what, []).append(time.process_time() - start)
        return found

    def best(self, what: str) -> float:
        return min(self.spent[what])


def mask_cost(
    group: int, dimension: int = synthetic.DIMENSION, classes: int = synthetic.CLASSES
) -> Cost:
    """A whole round of `group` members; its sum is checked against the plain one."""
    statistics = _statistics(group, dimension, classes)
    terms = Terms.plan(statistics, Layout.of(statistics["c0"], range(classes)))
    policy, clock = Policy(), Clock()
    clients = {n: Client(n, terms, s, policy=policy) for n, s in statistics.items()}
    server = Server(terms)
    up, down = Counter[str](), Counter[str]()
    asked = dict.fromkeys(clients, b"")
    while (stage := server.stage) != "done":
        for name, question in asked.items():
            client = clients[name]
            work = (lambda c=client, q=question: c.answer(q)) if question else client.start
            answer = clock(stage, work)
            up[name] += len(answer)
            clock(f"take {stage}", lambda n=name, a=answer: server.receive(n, a))
        asked = clock(f"close {stage}", server.close)
        down.update({name: len(message) for name, message in asked.items()})
    if server.total.digest() != hs.total(statistics.values()).digest():
        raise SystemExit("the unmasked sum is not the plain one")
    size = terms.layout.size
    for _ in range(3):
        clock("stream", lambda: [key_stream(8 * size) for _ in range(group)])
    message = plain_message(clock, dimension, classes)
    noise = Noise.plan(1.0, SHARES["gram"], colluding=0)
    numbers, unit = np.zeros(size, np.int64), replace(terms.layout, bound=1.0)
    for _ in range(2):
        clock("noise", lambda: noise.added(unit, numbers, shares=terms.threshold))
    keys = sum(clock.best(stage) for stage in ("advertise", "share", "unmask"))
    unmask = clock.best("close unmask") / group
    return Cost(
        group,
        dimension,
        classes,
        clock.best("mask"),
        clock.best("stream"),
        keys,
        clock.best("noise"),
        clock.best("measure"),
        clock.best("take mask"),
        unmask,
        up["c0"],
        down["c0"],
        8 * size,
        message,
    )


def plain_message(clock: Clock, dimension: int, classes: int) -> int:
    """Bytes of the exact upload that goes without masks, of as many samples as members have."""
    rng = np.random.default_rng(1)
    z, y = np.maximum(rng.standard_normal((13, dimension)), 0), rng.integers(0, classes, 13)
    head = hs.Fed3R()
    for _ in range(3):
        found = clock("measure", lambda: head.measure(z, y, exact=True, secret=b"s").to_bytes())
    return len(found)


def key_stream(size: int, chunk: int = 2**18) -> None:
    """The raw limit: so many bytes of ChaCha20, into a buffer that stays in the cache."""
    stream = Cipher(algorithms.ChaCha20(secrets.token_bytes(32), bytes(16)), mode=None).encryptor()
    zeros, out = bytes(chunk), bytearray(chunk)
    for start in range(0, size, chunk):
        stream.update_into(zeros[: size - start], out)


def _statistics(group: int, dimension: int, classes: int) -> dict[str, hs.Moments]:
    rng = np.random.default_rng(0)
    head, found = hs.Fed3R(), {}
    for k in range(group):
        z = np.maximum(rng.standard_normal((13, dimension)), 0)
        found[f"c{k}"] = head.measure(z, rng.integers(0, classes, 13), exact=True, secret=b"s")
    return found


def small_messages(clients: int | None = None) -> dict[str, float]:
    """The mean bytes of plain messages at the client sizes of iNaturalist-Users (or of some)."""
    federation = synthetic.federation(synthetic.client_sizes()[0][:clients])
    exact, coarse = [], []
    for k in range(len(federation)):
        z, y = federation.client(k)
        exact.append(len(hs.Moments.measure(z, y, exact=True).to_bytes()))
        coarse.append(len(hs.Moments.measure(z, y).to_bytes("float32")))
    return {"exact": float(np.mean(exact)), "float32": float(np.mean(coarse))}


def run(quick: bool = False) -> dict[str, Any]:
    groups = GROUPS[:2] if quick else GROUPS
    sizes = [(1280, 1203), (1280, 100)] if not quick else [(256, 100)]
    with threadpool_limits(1):
        small = small_messages(50 if quick else None)
        costs = [mask_cost(n, d, c) for d, c in sizes for n in groups]
    rows = [asdict(cost) | {"ratio": cost.ratio} for cost in costs]
    return {"small": small, "rounds": rows}


def show(result: dict[str, Any], out: Console) -> None:
    small = result["small"]
    out.print(
        f"small message (iNaturalist-Users, mean): {small['exact']:,.0f} bytes exact, "
        f"{small['float32']:,.0f} at float32"
    )
    rows = result["rounds"]
    table = Table(title="a client's cost of a secure sum")
    table.add_column("d, C, members", no_wrap=True)
    for row in rows:
        heading = f"{row['dimension']}\n{row['classes']}\n{row['group']}"
        table.add_column(heading, justify="right", no_wrap=True)
    for name in ("mask", "stream", "keys", "noise", "plain", "receive", "unmask"):
        table.add_row(f"{name}, ms", *(f"{1e3 * row[name]:,.1f}" for row in rows))
    for name in ("up", "vector", "message"):
        table.add_row(f"{name}, bytes", *(f"{row[name]:,}" for row in rows))
    pairs = [("mask", "stream"), ("mask", "plain"), ("noise", "plain"), ("up", "message")]
    for one, other in pairs:
        table.add_row(f"{one} / {other}", *(f"{row[one] / row[other]:,.1f}" for row in rows))
    for name, size in small.items():
        table.add_row(f"up / small, {name}", *(f"{row['up'] / size:,.0f}" for row in rows))
    out.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    args = parser.parse_args()
    result = run(args.quick)
    show(result, Console())
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
