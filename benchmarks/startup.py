"""How long `headstart --help` takes, next to importing typer and rich, its libraries.

    python benchmarks/startup.py

CPU time of a process each (user and system), one after the other, 15 pairs; the ratio is the median
of the pairs'. Exit code 1: it is over the bar.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

PAIRS, BAR = 15, 2.0
OURS = ("-m", "headstart", "--help")
BASELINE = ("-c", "import typer, rich")


def seconds(words: tuple[str, ...]) -> float:
    began = _spent()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return _spent() - began


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    for words in (OURS, BASELINE):  # compiled, and in the system's memory
        seconds(words)
    pairs = [(seconds(OURS), seconds(BASELINE)) for _ in range(PAIRS)]
    ours, baseline = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    print(f"headstart --help {1000 * ours:.0f} ms, import typer, rich {1000 * baseline:.0f} ms")
    print(f"ratio {ratio:.2f}, bar {BAR:g}: {'yes' if ratio <= BAR else 'NO'}")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
