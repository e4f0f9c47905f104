"""Where a head comes from: its method, its settings, and the total it was solved from."""

from __future__ import annotations

import dataclasses
from typing import Any

from headstart.heads import name_of
from headstart.statistics.base import Statistic
from headstart.statistics.noisy import NoisySums


def provenance(head: Any, total: Statistic, **solved: float) -> dict[str, Any]:
    """Plain values that travel with a saved head; of a private one with what is promised."""
    promised = {"private": dict(total.statement)} if isinstance(total, NoisySums) else {}
    return {
        "method": name_of(head),
        "settings": dataclasses.asdict(head),
        "solved": solved,
        "total": total.digest(),
        "exact": total.lattice is not None,
        "samples": total.samples,
        "extractor": None,
        **promised,
    }
