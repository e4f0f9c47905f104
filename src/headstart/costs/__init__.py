"""What a federation costs: bytes and FLOPs by the papers' formulas, next to what is measured."""

from headstart.costs.messages import (
    BYTES_PER_NUMBER,
    formula_bytes,
    measure_flops,
    sync_bytes,
)
from headstart.costs.training import (
    Traffic,
    formula_flops,
    local_flops,
    round_bytes,
    sample_flops,
    visits,
)

__all__ = [
    "BYTES_PER_NUMBER",
    "Traffic",
    "formula_bytes",
    "formula_flops",
    "local_flops",
    "measure_flops",
    "round_bytes",
    "sample_flops",
    "sync_bytes",
    "visits",
]
