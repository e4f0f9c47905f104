"""FedDrive's server steps on IDDA without SiloBN: the thesis's table 5.7.

The seen figure of SGD with class imbalance, country, is 48.1 here and 58.1 in table 5.3.
"""

from __future__ import annotations

from headstart.papers.feddrive_study import IDDA, KINDS, SERVERS, Line, conclusion, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

NUMBERS = {  # unseen, then seen, of SGD, FedAvgM, Adam and AdaGrad
    ("uniform", "idda-country"): ((49.7, 55.5, 50.2, 46.1), (63.6, 71.3, 63.3, 59.4)),
    ("uniform", "idda-rainy"): ((27.6, 29.8, 31.7, 27.8), (62.7, 71.0, 65.4, 59.5)),
    ("uniform", "idda-bus"): ((58.5, 62.3, 58.6, 54.0), (64.9, 71.8, 64.8, 61.2)),
    ("heterogeneous", "idda-country"): ((40.0, 42.4, 38.2, 38.0), (42.4, 44.4, 39.9, 40.9)),
    ("heterogeneous", "idda-rainy"): ((26.8, 31.9, 28.5, 27.1), (38.2, 41.2, 38.0, 39.0)),
    ("heterogeneous", "idda-bus"): ((38.1, 40.4, 38.9, 37.2), (45.7, 48.9, 45.2, 44.5)),
    ("class imbalance", "idda-country"): ((47.6, 50.2, 47.4, 44.6), (48.1, 63.0, 59.0, 55.5)),
    ("class imbalance", "idda-rainy"): ((29.5, 32.3, 35.8, 29.3), (58.8, 64.0, 57.5, 55.9)),
    ("class imbalance", "idda-bus"): ((53.3, 54.7, 53.1, 49.0), (60.5, 64.5, 61.0, 57.6)),
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction, on the kinds of domains that are given."""
    rows = []
    for kind in KINDS:
        lines = [
            Line(
                distribution,
                {("unseen", "averaged"): unseen, ("seen", "averaged"): seen},
                server=server,
            )
            for (distribution, of), numbers in NUMBERS.items()
            if of == kind
            for server, unseen, seen in zip(SERVERS, *numbers, strict=True)
        ]
        rows += study(task, kind, lines)
    return rows


REPRODUCTION = Reproduction(
    "feddrive-table5.7",
    "FedDrive on IDDA: server steps, mIoU",
    "Thesis, table 5.7 (BiSeNetV2, 1,600 rounds, 5 clients per round)",
    tuple(KINDS),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=IDDA,
)
