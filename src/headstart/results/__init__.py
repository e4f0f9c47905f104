"""What a run found: frozen values that pages, tables, files and the command line all read.

`SeedResult` is one run with one seed, as `results.json` in its folder holds it. `RunResult` is one
pipeline over one or more seeds: its numbers are means with their deviations. Shares are from 0 to
1, bytes are those of the whole federation, FLOPs those of one client (the mean over all).
"""

from headstart.results.estimate import (
    Estimate,
    estimate,
)
from headstart.results.over_seeds import (
    Comparison,
    RunResult,
)
from headstart.results.parts import (
    Arrival,
    ClientSummary,
    Confusion,
    DataSummary,
    Epoch,
    Failure,
    HeadSummary,
    LastEvaluations,
    PersonalScores,
    PixelScores,
    Point,
    Pooled,
    RidgePath,
    SplitSummary,
)
from headstart.results.rows import (
    Row,
    client_rows,
    curve_rows,
    seed_rows,
)
from headstart.results.seed import (
    FORMAT,
    SeedResult,
    save_result,
)

__all__ = [
    "FORMAT",
    "Arrival",
    "ClientSummary",
    "Comparison",
    "Confusion",
    "DataSummary",
    "Epoch",
    "Estimate",
    "Failure",
    "HeadSummary",
    "LastEvaluations",
    "PersonalScores",
    "PixelScores",
    "Point",
    "Pooled",
    "RidgePath",
    "Row",
    "RunResult",
    "SeedResult",
    "SplitSummary",
    "client_rows",
    "curve_rows",
    "estimate",
    "save_result",
    "seed_rows",
]
