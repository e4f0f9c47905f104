"""What it costs to be watched: events written by a run, the page's server, and the page itself.

    python benchmarks/watch.py [--quick]

Exit code 1: a bar is missed. Bars compare ratios of one run of this file.

run, watched     a run's time with a page that follows it | the same run that writes no events; the
                 median of five interleaved pairs, wall clock
written, …       CPU time per event to write it, of 10,000 | of 100
server, …        CPU time per event to read it and frame it for a page, of 10,000 | of 100; a look
                 at the files every 25 events
browser          time per event that Chromium spends on script, layout and painting, of 10,000 | of
                 100; 25 to a frame (where there is no Chromium, one line says so)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.live.helpers import CHROMIUM, DRIVER, chromium, page

from headstart.live.app import _frame
from headstart.live.sources import Feed
from headstart.pipeline.config import make_config
from headstart.pipeline.folder import RunFolder, event_line
from headstart.pipeline.run import run_config

console = Console(stderr=True)
PAIRS, FEW, MANY, AT_ONCE = 5, 100, 10_000, 25
RUN_BAR, EVENT_BAR = 1.02, 1.5


@dataclass(frozen=True)
class Row:
    """One figure next to another; their ratio may be at most `bar`."""

    what: str
    ours: float
    baseline: float
    bar: float

    @property
    def ratio(self) -> float:
        return self.ours / self.baseline

    @property
    def ok(self) -> bool:
        return self.ratio <= self.bar


# -- a run, watched and alone ------------------------------------------------------------------


@contextmanager
def followed(folder: Path) -> Iterator[None]:
    """With the page's server and one reader of its events, as a browser is one."""
    with page(folder, more=("--wait",)) as address:
        stream = urllib.request.urlopen(address + "events")
        reader = threading.Thread(target=_drain, args=(stream,), daemon=True)
        reader.start()
        yield
    reader.join()


def _drain(stream: Any) -> None:
    while stream.read1(65536):
        pass


def seconds_of(folder: Path, rounds: int) -> float:
    split = {"name": "dirichlet", "clients": 50, "alpha": 0.1}
    pipeline = f"Fed3R + FedAvg-{rounds}(head)"
    config = make_config({"data": "digits", "partition": split, "pipeline": pipeline})
    began = time.perf_counter()
    run_config(config, folder)
    return time.perf_counter() - began


def run_ratios(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds watched, and of the same run that writes no events, one after the other."""
    with_page, without = [], []
    seconds_of(folder / "first", 5)  # imports
    for pair in range(PAIRS):
        for watched in (pair % 2 == 0, pair % 2 == 1):
            place = folder / f"{pair}-{watched}"
            if watched:
                with followed(place):
                    with_page.append(seconds_of(place, rounds))
            else:
                with patch.object(RunFolder, "tell", lambda self, lines: None):
                    without.append(seconds_of(place, rounds))
                assert not (place / "events.jsonl").exists()
    return with_page, without


# -- CPU per event -----------------------------------------------------------------------------


def points(count: int) -> list[str]:
    rows = ({"phase": 1, "round": k, "accuracy": 0.5, "up": k, "down": k} for k in range(count))
    return [event_line("point", **row) for row in rows]


def uploads(count: int) -> list[str]:
    return [event_line("upload", client=f"client-{k}", bytes=1000) for k in range(count)]


def per_event(folder: Path, lines: list[str]) -> tuple[float, float, list[dict[str, Any]]]:
    """CPU seconds per event to write it, and to frame it for a page; and all messages."""
    written = read = 0.0
    folder.mkdir()
    run, feed = RunFolder(folder), Feed([folder])
    run.event("start", pipeline="Fed3R", clients=MANY)
    messages = feed.poll()
    for start in range(0, len(lines), AT_ONCE):
        began = time.process_time()
        for line in lines[start : start + AT_ONCE]:
            run.tell(line)
        middle = time.process_time()
        found = feed.poll()
        sent = b"".join(_frame(message) for message in found)
        read += time.process_time() - middle
        written += middle - began
        assert sent, "a page is told of every look that finds something"
        messages += found
    return written / len(lines), read / len(lines), messages


def in_browser(messages: list[dict[str, Any]], events: int, folder: Path) -> float:
    """Seconds per event of the page's main thread."""
    with page(folder) as address, chromium() as driver:
        driver.get(address)
        time.sleep(1)  # what is in the folder is drawn
        driver.execute_script("source.close(); views.clear(); byId('views').replaceChildren();")
        before = _busy(driver)
        driver.set_script_timeout(600)
        driver.execute_async_script(_FEED, messages)
        return (_busy(driver) - before) / events


_FEED = """
const [messages, done] = arguments;
let at = 0;
function next() {
  if (at === messages.length) return done();
  take(messages[at++]);
  requestAnimationFrame(next);
}
requestAnimationFrame(next);
"""


def _busy(driver: Any) -> float:
    driver.execute_cdp_cmd("Performance.enable", {})
    found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(entry["value"] for entry in found if entry["name"] == "TaskDuration")


def event_rows(folder: Path, browser: bool) -> Iterator[Row]:
    """Per event of many, next to per event of few; few are measured often."""
    for kind, make in (("points", points), ("uploads", uploads)):
        few = [per_event(folder / f"{kind}-few-{k}", make(FEW)) for k in range(20)]
        many = [per_event(folder / f"{kind}-many-{k}", make(MANY)) for k in range(3)]
        for at, what in enumerate(("written", "server")):
            ours, base = (min(found[at] for found in side) for side in (many, few))
            yield Row(f"{what}, {kind}", ours, base, EVENT_BAR)
        if browser:
            ours = in_browser(many[0][2], MANY, folder / f"{kind}-many-0")
            base = min(in_browser(few[0][2], FEW, folder / f"{kind}-few-0") for _ in range(3))
            yield Row(f"browser, {kind}", ours, base, EVENT_BAR)


# -- all of it ---------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description="What it costs to be watched.")
    parser.add_argument("--quick", action="store_true", help="a run of 40 rounds, not 300")
    options = parser.parse_args()
    table = Table("what", "ours", "baseline", "ratio", "bar", "ok", title="The page on and off")
    rows: list[Row] = []
    with threadpool_limits(1), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        watched, alone = run_ratios(folder, 40 if options.quick else 300)
        ratios = [ours / base for ours, base in zip(watched, alone, strict=True)]
        console.print("pairs: " + ", ".join(f"{ratio:.3f}" for ratio in ratios))
        middle = statistics.median(ratios)
        base = statistics.median(alone)
        rows.append(Row("run, watched", middle * base, base, RUN_BAR))
        browser = bool(CHROMIUM and DRIVER)
        if not browser:
            console.print("no chromium and chromedriver found: the browser is not measured")
        rows += event_rows(folder, browser)
    for row in rows:
        mark = "[green]yes[/]" if row.ok else "[red]NO[/]"
        sides = (_amount(row.ours), _amount(row.baseline))
        table.add_row(row.what, *sides, f"{row.ratio:.3f}", f"≤ {row.bar:g}", mark)
    Console().print(table)
    return 0 if all(row.ok for row in rows) else 1


def _amount(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds > 0.1 else f"{1e6 * seconds:,.1f} µs"


if __name__ == "__main__":
    sys.exit(main())
