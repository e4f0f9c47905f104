"""What a client sends: bytes on our wire next to the papers' formulas (4 bytes per number).

Formulas: Fanì et al. 2025 (table 22), thesis table 3.2, FedCOF table 1. d dimension, D random
features, C classes, C̄ classes per client.
"""

from __future__ import annotations

from headstart.heads.base import Head
from headstart.statistics.moments import Moments

BYTES_PER_NUMBER = 4


def formula_bytes(head: Head, dimension: int, held: float, every: int) -> float:
    """The papers' bytes up for one client that holds `own` of `every` classes."""
    return BYTES_PER_NUMBER * float(head.paper_upload_size(dimension, held, every))


def sync_bytes(dimension: int, classes: int) -> int:
    """A client's masked message (Fed3R-Sync): packed int64 sums with every class and its count.

    A mask hides all of them, so neither sparsity nor the small factor can be used here.
    """
    return 8 * (dimension * (dimension + 1) // 2 + dimension * classes + classes)


def measure_flops(head: Head, dimension: int, held: float, extractor_flops: float = 0.0) -> float:
    """The papers' FLOPs of one sample (table 23): F_φ, and d(d+1)/2 + dC̄ for second moments.

    Of random features it is D for d (their table prints dC̄ in the last term), and dD to map them.
    """
    mapped = getattr(head, "feature_map", None)
    size = mapped.dimension if mapped else dimension
    flops = extractor_flops + (dimension * size if mapped else 0)
    return flops + (size * (size + 1) / 2 + size * held if head.statistic is Moments else 0)
