"""The tables of docs/fine-tune.md: starts × algorithms, and local fine-tuning.

    python benchmarks/fine_tune.py --out tables                            # digits
    python benchmarks/fine_tune.py --out tables --features cifar100.npz    # CIFAR-100 as well

Every table is one `headstart compare`; a table that was cut short goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headstart.console import bar
from headstart.pipeline.config import make_config
from headstart.pipeline.run import compare
from headstart.results import RunResult, SeedResult

ALGORITHMS = ("fedavg", "fedavgm", "fedadam", "scaffold")
HOME = ("OLL(fed3r)", "OLL(fed3r) + FP(head)", "fed3r + FP(head)", "fed3r + prior", "fed3r + ridge")
AFTER = (
    "OLL(fed3r + fedavg-50(head))",
    "OLL(fed3r + fedavg-50(head)) + FP(head)",
    "fed3r + fedavg-50(head) + prior",
    "fed3r + fedavg-50(head) + ridge",
    "OLL(none + fedavg-50(head)) + FP(head, lr=0.1)",
)
# A start, and what is said to the clients and to FedAdam's server after it.
PLAIN = dict.fromkeys(("none", "fedncm", "fedcof", "fed3r"), ("", ""))
SLOW = ", server_rate=0.001"
CIFAR = {
    "none": ("", ""),
    "fedncm": (", lr=0.01", SLOW),
    "fedcof(shrinkage=0.1)": ("", SLOW),
    "fed3r": ("", SLOW),
}


def crossed(starts: dict[str, tuple[str, str]]) -> list[str]:
    return [
        f"{start} + {name}-50(head{clients}{server if name == 'fedadam' else ''})"
        for start, (clients, server) in starts.items()
        for name in ALGORITHMS
    ]


def run(settings: dict[str, Any], pipelines: list[str], folder: Path) -> list[SeedResult]:
    print(f"\n{folder.name}")
    with bar() as show:
        results: tuple[RunResult, ...] = compare(pipelines, make_config(settings), folder, 1, show)
    return [result.runs[0] for result in results]


def show_starts(results: list[SeedResult]) -> None:
    """A row a start; then how far Fed3R is ahead of it at the least, wherever both were tested."""
    print(f"| init | before training | {' | '.join(ALGORITHMS)} |")
    print("|---" * (2 + len(ALGORITHMS)) + "|")
    rows = [results[at : at + len(ALGORITHMS)] for at in range(0, len(results), len(ALGORITHMS))]
    for row in rows:
        ends = " | ".join(percent(one.accuracy) for one in row)
        print(f"| {row[0].phases[0]} | {percent(row[0].curve[0].accuracy)} | {ends} |")
    curves = [[{p.round: p.accuracy or 0.0 for p in one.curve} for one in row] for row in rows]
    for row, others in zip(rows[:-1], curves[:-1], strict=True):
        gap, name, at = min(
            (mine[at] - other[at], name, at)
            for name, mine, other in zip(ALGORITHMS, curves[-1], others, strict=True)
            for at in mine.keys() & other.keys()
        )
        said = f"{100 * gap:+.1f} points at the least ({name}, round {at})"
        print(f"Fed3R against {row[0].phases[0]}: {said}")


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def show_personal(results: list[SeedResult]) -> None:
    print("| pipeline | global test | personal: before → after | plain mean after | gain / lose |")
    print("|---" * 5 + "|")
    for one in results:
        own = one.personal
        assert own is not None
        moved = f"{percent(own.weighted('global'))} → {percent(own.weighted())}"
        change = own.change()
        clients = f"{(change > 0).sum()} / {(change < 0).sum()}"
        print(f"| `{one.pipeline}` | {percent(one.accuracy)} | {moved} ", end="")
        print(f"| {percent(own.mean())} | {clients} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", type=Path, help="CIFAR-100's, of `headstart features`")
    args = parser.parse_args()
    split: dict[str, Any] = {"name": "dirichlet", "clients": 50, "alpha": 0.1}
    settings: dict[str, Any] = {"data": "digits", "held_out": 0.45, "partition": split}
    show_starts(run(settings, crossed(PLAIN), args.out / "digits, starts"))
    show_personal(run(settings, [*HOME, AFTER[1], AFTER[3]], args.out / "digits, personal"))
    if args.features is None:
        print("CIFAR-100: not run (give --features FILE)")
        return
    for alpha, pipelines in ((0.1, [*HOME, *AFTER]), (0.5, list(HOME))):
        split = {"name": "dirichlet", "clients": 100, "alpha": alpha}
        settings = {"data": str(args.features), "partition": split, "evaluate_every": 5}
        if alpha == 0.1:
            folder = args.out / "CIFAR-100, starts"
            show_starts(run({**settings, "held_out": 0.0}, crossed(CIFAR), folder))
        folder = args.out / f"CIFAR-100 at {alpha}, personal"
        show_personal(run({**settings, "held_out": 0.45}, pipelines, folder))


if __name__ == "__main__":
    main()
