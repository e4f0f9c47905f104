"""What a statistic says, whatever bytes say it: by this a forgotten one is known again.

A factor has another rotation with every secret, and one statistic has several encodings; their
SHA-256 differ. Exact statistics have one digest in all of them. Where sums are not exact, rotations
and precisions move the last digits: a secret form of the whole statistic is compared instead, to
five digits. That knows float64 and float32 messages again; at float16 and int8, or with noise added
on purpose, a statistic is new.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.statistics.base import fingerprint
from headstart.statistics.moments import Moments
from headstart.statistics.rotation import gaussian
from headstart.statistics.wire import pack_labels

_CELL = 1e-5  # of the logarithm: float32 moves it by 1e-7


def counted(statistic: Any) -> str:
    """A digest of the class counts: cheap, and equal where contents are."""
    labels = getattr(statistic, "labels", statistic.classes)  # rows have a label each
    return fingerprint("counted", (pack_labels(labels), np.asarray(statistic.counts)))


def contents(statistic: Any, key: bytes) -> tuple[str, ...]:
    """Texts of which two statistics share one if, and hardly unless, they say the same."""
    if statistic.lattice is not None:
        return (statistic.digest(),)
    size = np.log(_form(statistic, key) + np.finfo(float).tiny) / _CELL
    # Of two numbers half a cell apart, one of two shifted grids has both in one cell.
    return tuple(f"{shift} {np.floor(size + shift):.0f}" for shift in (0.0, 0.5))


def _form(statistic: Any, key: bytes) -> float:
    """uᵀ[A Bᵀ; B diag g]u for a secret u; of tables, a sum of squares of secret forms."""
    if isinstance(statistic, Moments):
        v, w = _draw(key, statistic.dimension), _draw(key + b"w", len(statistic.classes))
        labels = 2 * w @ (statistic.class_sums() @ v) + (w * statistic.counts) @ w
        return float(v @ statistic.gram() @ v + labels)
    tables = getattr(statistic, "tables", None) or {"means": statistic.means}
    return float(sum(np.sum(_projected(name, table, key) ** 2) for name, table in tables.items()))


def _projected(name: str, table: NDArray[Any], key: bytes) -> NDArray[np.float64]:
    rows = _draw(key + b"rows", len(table))
    return np.asarray(
        rows * (table.astype(np.float64) @ _draw(key + name.encode(), table.shape[1]))
    )


def _draw(key: bytes, size: int) -> NDArray[np.float64]:
    return gaussian(b"headstart contents 1" + key, (size,))
