"""What durable uploads cost, at the client sizes of iNaturalist-Users (d = 1280, 1,203 classes).

    python benchmarks/serve.py [--quick] [--json PATH] [--folder DIR]

Both sides of a row run in this process, one BLAS thread, on the same messages; exit code 1: a bar
is missed. Bars compare ratios, so they hold on any machine, but how long a disk takes to flush is
its own: rows by the clock on the wall show it and have no bar.

work, …          CPU time of an upload through admission (every check) and the ledger | of decoding
                 and adding it alone, `hs.total(map(hs.Moments.from_bytes, messages))`
uploads/s, …     by the clock: through admission and ledger, one client at a time (a flush for each)
                 and eight at a time (a flush for many) | decode and add alone, no disk
log, SQLite      by the clock, no checks: the same messages into the ledger's log, and as blobs into
                 SQLite (WAL, synchronous=FULL), a flush each | into a plain file, a flush each
restart          CPU time to open the ledger again (every checksum; the total from its snapshot)
                 | decode and add
memory           the rise of the peak of resident memory from the 1,000th upload to the 10,000th, in
                 a process of its own | 64 MB, as much as may wait to be folded
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import headstart as hs
import memory
import synthetic
from bench import MB, Row, decoded
from headstart.deploy.admission import Contract
from headstart.deploy.ledger import Ledger
from headstart.deploy.log import Log, begin
from headstart.federation import steps

console = Console(stderr=True)
ROUND, UPLOADS, QUICK, EARLY = "bench", 10_000, 2_000, 1_000
AT_ONCE = 8


def contract(exact: bool) -> Contract:
    step = steps.measure(hs.Fed3R(), exact=exact)
    return Contract(ROUND, step.params, synthetic.DIMENSION, attempts=None)


def messages_of(clients: synthetic.Federation, exact: bool) -> list[bytes]:
    """Every client's message: whole numbers, or float32."""
    everybody = range(len(clients))
    measured = (hs.Moments.measure(*clients.client(k), exact=exact) for k in everybody)
    return [one.to_bytes() for one in measured]


Times = tuple[float, float]  # CPU, wall


def timed(work: Callable[[], object]) -> Times:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def through_ledger(path: Path, messages: list[bytes], exact: bool, at_once: int) -> Times:
    """Accept all messages; not the closing, which saves a snapshot."""
    with Ledger.create(path, contract(exact)) as ledger:

        def send(k: int) -> None:
            ledger.accept(f"{k:06}", ROUND, "key", messages[k])

        def work() -> None:
            if at_once == 1:
                for k in range(len(messages)):
                    send(k)
                return
            with ThreadPoolExecutor(at_once) as pool:
                for _ in pool.map(send, range(len(messages))):
                    pass

        found = timed(work)
        if exact:
            assert ledger.total().digest() == hs.total(decoded(messages)).digest()
    return found


def flushed(path: Path, messages: list[bytes]) -> Times:
    def work() -> None:
        with open(path, "wb", buffering=0) as file:
            for message in messages:
                file.write(message)
                os.fdatasync(file.fileno())

    return timed(work)


def logged(path: Path, messages: list[bytes]) -> Times:
    begin(path)
    log = Log(path, b"key", lambda record: None)

    def work() -> None:
        for message in messages:
            log.append([({"sha256": hashlib.sha256(message).hexdigest()}, message)])

    try:
        return timed(work)
    finally:
        log.close()


def sqlite(path: Path, messages: list[bytes]) -> Times:
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=FULL")
    base.execute("CREATE TABLE uploads (client TEXT PRIMARY KEY, payload BLOB)")

    def work() -> None:
        for k, message in enumerate(messages):
            base.execute("INSERT INTO uploads VALUES (?, ?)", (f"{k:06}", message))

    try:
        return timed(work)
    finally:
        base.close()


def speed_rows(folder: Path, messages: list[bytes], exact: bool, name: str) -> list[Row]:
    """One after the other; the ledgers are deleted as soon as they are measured."""
    alone = timed(lambda: hs.total(decoded(messages)))
    paths = {at_once: folder / f"{name}-{at_once}" for at_once in (1, AT_ONCE)}
    ours = {n: through_ledger(path, messages, exact, n) for n, path in paths.items()}
    again = timed(lambda: Ledger.open(paths[1], write=False).close())
    for path in paths.values():
        shutil.rmtree(path)
    flush, log = flushed(folder / "flush", messages), logged(folder / "log", messages)
    lite = sqlite(folder / "lite", messages)
    shutil.rmtree(folder / "log")
    for path in folder.iterdir():
        path.unlink()
    many = len(messages)
    return [
        Row(f"work, {name}", ours[1][0] / many, alone[0] / many, "s", BARS[name]),
        Row(f"uploads/s, {name}, 1 at once", many / ours[1][1], many / alone[1], "/s"),
        Row(
            f"uploads/s, {name}, {AT_ONCE} at once", many / ours[AT_ONCE][1], many / alone[1], "/s"
        ),
        Row(f"log, {name}", many / log[1], many / flush[1], "/s"),
        Row(f"SQLite, {name}", many / lite[1], many / flush[1], "/s"),
        Row(f"restart, {name}", again[0], alone[0], "s"),
    ]


# -- memory ------------------------------------------------------------------------------------


def memory_row(folder: Path, messages: list[bytes], uploads: int) -> Row:
    path = folder / "messages"
    memory.write_messages(path, messages)
    command = [sys.executable, __file__, "--memory", str(path), "--uploads", str(uploads)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    grown = float(json.loads(result.stdout)["grown"])
    return Row(f"memory, {uploads:,} uploads", max(grown, 1.0), 64.0 * MB, "B", 1.0)


def peak() -> int:
    return 1024 * memory._kilobytes("VmHWM")


def grown(path: Path, uploads: int) -> int:
    """Bytes by which the peak of resident memory rose from the 1,000th upload to the last."""

    def stream() -> Iterator[bytes]:
        while True:
            yield from memory.read_messages(path)

    with (
        tempfile.TemporaryDirectory(dir=path.parent) as folder,
        Ledger.create(Path(folder) / "ledger", contract(True)) as ledger,
    ):
        before = 0
        for k, message in enumerate(stream()):
            if k == uploads:
                break
            ledger.accept(f"{k:06}", ROUND, "key", message)
            before = peak() if k == EARLY else before
        return peak() - before


# -- all of it ---------------------------------------------------------------------------------

BARS = {"exact": 2.5, "float32": 2.5}


def run(quick: bool, folder: Path) -> dict[str, Any]:
    sizes, source = synthetic.client_sizes()
    console.print(source + (", every tenth client" if quick else "") + f"; files in {folder}")
    began = time.perf_counter()
    clients = synthetic.federation(sizes[::10] if quick else sizes)
    rows: list[Row] = []
    for name, exact in (("float32", False), ("exact", True)):
        console.print(f"[dim]{time.perf_counter() - began:6.0f} s[/]  {name}")
        messages = messages_of(clients, exact)
        rows += speed_rows(folder, messages, exact, name)
    del clients
    console.print(f"[dim]{time.perf_counter() - began:6.0f} s[/]  memory")
    rows.append(memory_row(folder, messages, QUICK if quick else UPLOADS))
    return {
        "rows": [asdict(row) | {"ratio": row.ratio, "ok": row.ok} for row in rows],
        "seconds": time.perf_counter() - began,
    }


def show(result: dict[str, Any], out: Console) -> None:
    table = Table("what", "ours", "baseline", "ratio", "bar", "ok", title="One BLAS thread")
    for row in result["rows"]:
        bar = "" if row["bar"] is None else f"≤ {row['bar']:g}"
        mark = "" if row["bar"] is None else "[green]yes[/]" if row["ok"] else "[red]NO[/]"
        amounts = [_amount(row[side], row["unit"]) for side in ("ours", "baseline")]
        table.add_row(row["what"], *amounts, f"{row['ratio']:.2f}", bar, mark)
    out.print(table)
    out.print(f"{result['seconds']:.0f} s in all")


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / MB:,.1f} MB"
    return f"{value:,.0f}/s" if unit == "/s" else f"{1000 * value:,.2f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description="What durable uploads cost.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the clients")
    parser.add_argument("--json", type=Path, help="write the numbers here, too")
    parser.add_argument("--folder", type=Path, help="on the disk to measure (default: a temporary)")
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--uploads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.memory:
            print(json.dumps({"grown": grown(options.memory, options.uploads)}))
            return 0
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            result = run(options.quick, Path(folder))
    show(result, Console())
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["ok"] for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
