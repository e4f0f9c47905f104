"""Thesis, table 3.6: rounds until a share of the clients was seen, κ drawn per round. No data.

The thesis simulates 1,000 times and rounds; ours is the exact expectation (batch coupon collector).
"""

from __future__ import annotations

from collections.abc import Sequence

from headstart.data.heterogeneity import rounds_to_see
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

SHARES = (0.25, 0.5, 0.75, 1.0)
PAPER = {
    (9275, 10): (267, 643, 1286, 9020),
    (9275, 20): (134, 322, 643, 4494),
    (9275, 50): (54, 129, 257, 1809),
    (1262, 10): (37, 88, 175, 970),
    (1262, 20): (19, 44, 87, 483),
    (1262, 50): (8, 18, 35, 191),
    (100, 10): (3, 7, 14, 50),
    (100, 20): (2, 4, 7, 24),
    (100, 50): (1, 1, 3, 8),
}
ODD = {
    (100, 50, 0.5): "one round shows exactly half: 1",
    (100, 50, 0.75): "2 rounds show 75 on average, so 75 are reached in round 2 or 3",
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, measured on the given data sets."""
    rows = []
    for done, ((clients, size), printed) in enumerate(PAPER.items(), 1):
        rounds = rounds_to_see(clients, size, SHARES)
        for share, paper, ours in zip(SHARES, printed, rounds, strict=True):
            note = ODD.get((clients, size, share), "")
            where = f"K = {clients}, κ = {size}"
            rows.append(Row(f"{share:.0%} seen", where, float(paper), (ours,), "rounds", note))
        task.progress("rounds", done, len(PAPER))
    return rows


def conclusion(rows: Sequence[Row]) -> str:
    """Return one sentence on what the rows show."""
    others = [
        row
        for row in rows
        if abs(row.difference or 0.0) > max(0.51, 0.01 * (row.paper or 0.0))  # rounding, 1% noise
    ]
    cells = "; ".join(f"{row.what}, {row.setting}: {row.mean:.2f}" for row in others)
    return (
        f"{len(rows) - len(others)} of {len(rows)} cells agree to rounding or within 1% (the "
        f"thesis's 1,000 simulations have a standard error of about 0.4%). The others: {cells}."
    )


REPRODUCTION = Reproduction(
    "thesis-table3.6",
    "Rounds to have seen the clients",
    "Thesis, table 3.6 (batch coupon collector; needs no data)",
    (),
    1,
    run,
    conclusion,
)
