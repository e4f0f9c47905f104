"""What Headstart costs at the client sizes of iNaturalist-Users (d = 1280, 1,203 classes).

    python benchmarks/bench.py [--quick] [--json PATH]

Both sides of every row run in this process, in turns, with one BLAS thread. A time is CPU time,
which other programs on the machine hardly move, and the best of its rounds. Bars compare ratios
alone, so they hold on any machine. Exit code 1: a bar is missed.

fold, decoded     `hs.total` of uploads decoded from float32 bytes | one raw dsyrk of the same rows,
                  stacked in float64 beforehand
fold, from bytes  `Moments.from_bytes`, with every check, and `total`, as a stream | the same dsyrk
dense, arrays     adding dense A_k (d×d, float32 as received) and B_k, already in memory, one client
                  after the other | `fold, decoded`. A sample of clients, times them all.
                  No bar: it is bound by memory alone, and one dsyrk is half of it
dense, formed     the same, when A_k = Z_kᵀZ_k and B_k (all classes) are formed as they are added
dense, checked    the same, when (A_k, B_k) come as messages through the same wire and checks;
                  | `fold, from bytes`
bytes, …          messages of every client | Σ_k (d(d+1)/2 + d·C_k) numbers of 4 bytes, A_k and B_k
int8 and FedCOF   Moments at int8 | FedCOF's client means at float32
federation        every client measured, sent, decoded, added, and the head solved | scikit-learn's
                  RidgeClassifier(solver="cholesky") on the pooled float64 data. CPU time is that of
                  user and system; much of scikit-learn's is the system's (its dense one-hot matrix)
memory, …         the server's peak beyond its inputs, in a process of its own | the allowance
two threads       `fold, decoded` | dsyrk, both with two BLAS threads, a quarter of the clients, by
                  the clock on the wall: only an idle machine shows what two cores can do

After the table: how the fold grows with clients and dimension, and the accuracy each precision
keeps on real features (CUB-200, MobileNetV2, clients of 13 samples), when the data are there.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.linalg.blas import dsyrk
from sklearn.linear_model import RidgeClassifier
from threadpoolctl import threadpool_limits

import headstart as hs
import memory
import synthetic
from synthetic import CLASSES, DIMENSION, Federation

console = Console(stderr=True)
PRECISIONS = ("float64", "float32", "float16", "int8", "exact")
BYTES_BARS = {"float32": 45, "exact": 22, "float16": 90, "int8": 170}
MB = 2**20


@dataclass(frozen=True)
class Row:
    """One comparison. `bar` bounds the ratio from above, or from below for a gain."""

    what: str
    ours: float
    baseline: float
    unit: str
    bar: float | None = None
    gain: bool = False

    @property
    def ratio(self) -> float:
        return self.baseline / self.ours if self.gain else self.ours / self.baseline

    @property
    def ok(self) -> bool:
        return self.bar is None or (self.ratio >= self.bar if self.gain else self.ratio <= self.bar)


# -- timing ------------------------------------------------------------------------------------


def race(
    rounds: int, *sides: Callable[[], object], clock: Callable[[], float] = time.process_time
) -> list[float]:
    """The best time of each side; they take turns, so that a busy moment hits all of them."""

    def seconds(side: Callable[[], object]) -> float:
        gc.collect()
        start = clock()
        side()
        return clock() - start

    times = [[seconds(side) for side in sides] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


# -- the server --------------------------------------------------------------------------------


def stacked(uploads: list[hs.Moments]) -> NDArray[np.float64]:
    """The rows of all factors, in float64: what the best possible server would start from."""
    factors = [part for upload in uploads for part in upload._parts]
    rows = np.empty((sum(map(len, factors)), uploads[0].dimension))
    at = 0
    for factor in factors:
        factor.unpack(rows[at : at + len(factor)])
        at += len(factor)
    return rows


def decoded(messages: Iterable[bytes]) -> Iterator[hs.Moments]:
    return map(hs.Moments.from_bytes, messages)


def fold_rows(messages: list[bytes], rounds: int) -> list[Row]:
    uploads = list(decoded(messages))
    rows = stacked(uploads)
    raw, fold, stream = race(
        rounds,
        lambda: dsyrk(1.0, rows.T, lower=1),
        lambda: hs.total(uploads),
        lambda: hs.total(decoded(messages)),
    )
    return [
        Row("fold, decoded", fold, raw, "s", 1.5),
        Row("fold, from bytes", stream, raw, "s", 2.0),
    ]


def threads_row(messages: list[bytes]) -> Row:
    uploads = list(decoded(messages[::4]))
    rows = stacked(uploads)
    with threadpool_limits(2):
        raw, fold = race(
            3,
            lambda: dsyrk(1.0, rows.T, lower=0),
            lambda: hs.total(uploads),
            clock=time.perf_counter,
        )
    return Row("two threads", fold, raw, "s")


Dense = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def dense_rows(clients: Federation, fold: float, stream: float) -> list[Row]:
    """What a server of dense A_k and B_k would do, on a sample of clients."""
    some = np.random.default_rng(1).choice(len(clients), min(len(clients), 96), replace=False)
    sample = [clients.client(k) for k in some]
    a, b = np.zeros((DIMENSION, DIMENSION)), np.zeros((CLASSES, DIMENSION))

    def arrays(received: list[Dense]) -> None:
        for dense_a, sums, shown in received:
            np.add(a, dense_a, out=a)
            b[shown] += sums

    def formed() -> None:
        for z, y in sample:
            rows, hot = z.astype(np.float64), np.eye(CLASSES)[y]
            np.add(a, rows.T @ rows, out=a)
            np.add(b, hot.T @ rows, out=b)

    received = [dense(*client) for client in sample[:32]]
    each = race(3, lambda: arrays(received))[0] / len(received)
    each_formed = race(2, formed)[0] / len(sample)
    messages = [gram_message(*client) for client in sample[:12]]
    each_checked = race(2, lambda: hs.total(decoded(messages)))[0] / len(messages)
    k = len(clients)
    return [
        Row("dense, arrays", fold, each * k, "s", gain=True),
        Row("dense, formed", fold, each_formed * k, "s", 10.0, gain=True),
        Row("dense, checked", stream, each_checked * k, "s", gain=True),
    ]


def dense(z: NDArray[Any], y: NDArray[Any]) -> Dense:
    one = hs.Moments.measure(z, y)
    return one.gram().astype(np.float32), one.class_sums().astype(np.float32), one.classes


def gram_message(z: NDArray[Any], y: NDArray[Any]) -> bytes:
    """One client's dense statistics as a message: a total is always sent as its Gram matrix."""
    return bytes(hs.total([hs.Moments.measure(z, y)]).to_bytes("float64"))


# -- bytes -------------------------------------------------------------------------------------


def bytes_rows(clients: Federation, measured: list[hs.Moments], sent: int) -> list[Row]:
    d, shown = DIMENSION, clients.classes()
    formula = 4.0 * float(np.sum(d * (d + 1) // 2 + d * shown))
    sizes = {"float32": sent}
    for precision in ("float16", "int8"):
        sizes[precision] = sum(len(one.to_bytes(precision)) for one in measured)
    everybody = range(len(clients))
    sizes["exact"] = sum(
        len(hs.Moments.measure(*clients.client(k), exact=True).to_bytes()) for k in everybody
    )
    means = sum(len(hs.ClientMeans.measure(*clients.client(k)).to_bytes()) for k in everybody)
    rows = [
        Row(f"bytes, {precision}", sizes[precision], formula, "B", bar, gain=True)
        for precision, bar in BYTES_BARS.items()
    ]
    return [*rows, Row("int8 and FedCOF", sizes["int8"], means, "B", 1.0)]


# -- the whole federation ----------------------------------------------------------------------


def measure(clients: Federation) -> list[hs.Moments]:
    return [hs.Moments.measure(*clients.client(k)) for k in range(len(clients))]


def whole(clients: Federation) -> hs.LinearHead:
    def uploads() -> Iterator[bytes]:
        for k in range(len(clients)):
            yield hs.Moments.measure(*clients.client(k)).to_bytes()

    return hs.Fed3R(ridge=0.01).solve(hs.total(decoded(uploads())))


def federation_row(clients: Federation, rounds: int) -> Row:
    pooled = clients.features.astype(np.float64)
    ridge = RidgeClassifier(alpha=0.01, solver="cholesky")
    ours, theirs = race(rounds, lambda: whole(clients), lambda: ridge.fit(pooled, clients.labels))
    return Row("federation", ours, theirs, "s", 1.5)


# -- memory ------------------------------------------------------------------------------------


def memory_rows(messages: list[bytes], means: int, dimension: int = 5000) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "messages"
        memory.write_messages(path, messages)
        server = memory.in_fresh_process("fold", path)
    fedcof = memory.in_fresh_process("fedcof", means)
    features = memory.in_fresh_process("random-features", dimension)
    return [
        Row("memory, Fed3R server", server, 32 * DIMENSION**2 + 256 * MB, "B", 1.0),
        Row(f"memory, FedCOF of {means:,} means", fedcof, 2.0**30, "B", 1.0),
        Row(
            f"memory, {dimension:,} random features",
            features,
            32 * dimension**2 + 256 * MB,
            "B",
            1.0,
        ),
    ]


# -- growth and accuracy -----------------------------------------------------------------------


def growth_table(messages: list[bytes], clients: Federation, whole: Row) -> list[dict[str, float]]:
    """Fold time by the number of clients, and by dimension (a quarter of the clients)."""
    found = [_growth(messages[::4], DIMENSION), _growth(messages[::2], DIMENSION)]
    found.append(_grown(len(messages), DIMENSION, whole.baseline, whole.ours))
    for d in (320, 640):
        some = (clients.client(k) for k in range(0, len(clients), 4))
        found.append(_growth([hs.Moments.measure(z[:, :d], y).to_bytes() for z, y in some], d))
    return found


def _growth(messages: list[bytes], d: int) -> dict[str, float]:
    uploads = list(decoded(messages))
    rows = stacked(uploads)
    times = race(2, lambda: dsyrk(1.0, rows.T, lower=1), lambda: hs.total(uploads))
    return _grown(len(messages), d, *times)


def _grown(clients: int, d: int, raw: float, fold: float) -> dict[str, float]:
    return {"clients": clients, "d": d, "fold": fold, "dsyrk": raw, "ratio": fold / raw}


def accuracy_table(seeds: int) -> list[dict[str, Any]]:
    """Test accuracy (%) of Fed3R by precision: λ = 0.01 and λ by GCV, the mean over splits."""
    path = synthetic.DATA / "cub200_features" / "cub200_mobilenet_v2.npz"
    if not path.exists():
        return []
    with np.load(path) as data:
        z, y, train = data["features"].astype(np.float32), data["label"], data["is_train"] > 0
    found = []
    for precision in PRECISIONS:
        row: dict[str, Any] = {"precision": precision}
        totals = [_total(z[train], y[train], precision, seed) for seed in range(seeds)]
        for ridge in (0.01, "gcv"):
            heads = [hs.Fed3R(ridge=ridge).solve(total) for total in totals]
            hits = [100 * np.mean(head.predict(z[~train]) == y[~train]) for head in heads]
            row[f"ridge {ridge}"] = float(np.mean(hits))
        found.append(row)
    return found


def _total(z: NDArray[Any], y: NDArray[Any], precision: str, seed: int) -> hs.Moments:
    order = np.random.default_rng(seed).permutation(len(y))
    exact, sent = precision == "exact", None if precision == "exact" else precision
    bound = float(np.ceil(np.abs(z).max()))

    def uploads() -> Iterator[bytes]:
        for part in np.array_split(order, len(y) // 13):
            one = hs.Moments.measure(z[part], y[part], exact=exact, bound=bound)
            yield one.to_bytes(sent)

    return hs.total(decoded(uploads()))


# -- all of it ---------------------------------------------------------------------------------


def run(quick: bool) -> dict[str, Any]:
    sizes, source = synthetic.client_sizes()
    sizes = sizes[::10] if quick else sizes
    console.print(source + (", every tenth client" if quick else ""))
    steps = iter(range(1, 100))

    def step(what: str) -> None:
        console.print(f"[dim]{time.perf_counter() - began:6.0f} s[/]  {next(steps)}/8 {what}")

    began = time.perf_counter()
    step("synthetic clients")
    clients = synthetic.federation(sizes)
    step("the whole federation and scikit-learn")
    federation = federation_row(clients, 2)
    step("messages")
    measured = measure(clients)
    messages = [one.to_bytes() for one in measured]
    step("bytes at every precision")
    sent = bytes_rows(clients, measured, sum(map(len, messages)))
    del measured
    step("folds and dsyrk")
    fold, stream = fold_rows(messages, 2)
    two = threads_row(messages)
    step("dense statistics")
    dense = dense_rows(clients, fold.ours, stream.ours)
    step("growth")
    growth = growth_table(messages, clients, fold)
    step("memory and accuracy")
    peaks = memory_rows(messages, int(clients.classes().sum()))
    accuracy = accuracy_table(2)
    rows = [fold, stream, *dense, *sent, federation, *peaks, two]
    return {
        "rows": [asdict(row) | {"ratio": row.ratio, "ok": row.ok} for row in rows],
        "growth": growth,
        "accuracy": accuracy,
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any], out: Console) -> None:
    table = Table("what", "ours", "baseline", "ratio", "bar", "ok", title="One BLAS thread")
    for row in result["rows"]:
        bar = "" if row["bar"] is None else f"{'≥' if row['gain'] else '≤'} {row['bar']:g}"
        mark = "" if row["bar"] is None else "[green]yes[/]" if row["ok"] else "[red]NO[/]"
        amounts = [amount(row[side], row["unit"]) for side in ("ours", "baseline")]
        table.add_row(row["what"], *amounts, f"{row['ratio']:.2f}", bar, mark)
    out.print(table)
    for title, name in (("Growth of the fold (s)", "growth"), ("CUB-200, % correct", "accuracy")):
        if result[name]:
            table = Table(*result[name][0], title=title)
            for entry in result[name]:
                table.add_row(*(_cell(value) for value in entry.values()))
            out.print(table)
    out.print(f"{result['seconds']:.0f} s in all")


def amount(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.2f} s"
    return f"{value / MB:,.0f} MB" if value < 10 * 2**30 else f"{value / 2**30:,.1f} GB"


def _cell(value: Any) -> str:
    return (
        f"{value:.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else value
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Headstart's costs against their baselines.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the clients")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    options = parser.parse_args()
    with threadpool_limits(1):
        result = run(options.quick)
    show(result, Console())
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["ok"] for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
