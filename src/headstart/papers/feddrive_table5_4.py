"""FedDrive on IDDA, held-out rain: the thesis's table 5.4.

The seen figure of SiloBN, standard, is 54.4 here and 50.4 in table 5.8.
"""

from __future__ import annotations

from headstart.papers.feddrive_study import IDDA, conclusion, fedavg, silobn, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

MIXED, RARE = "heterogeneous", "class imbalance"
LINES = (
    fedavg("uniform", 27.6, 62.7),
    fedavg(MIXED, 26.8, 38.2),
    fedavg(MIXED, 31.1, 55.2, augment="cfsi"),
    fedavg(MIXED, 26.8, 58.9, augment="lab"),
    silobn(MIXED, 50.0, 54.4, 62.5),
    silobn(MIXED, 50.5, 64.9, 63.0, augment="cfsi"),
    silobn(MIXED, 54.0, 65.9, 65.9, augment="lab"),
    fedavg(RARE, 29.5, 58.8),
    fedavg(RARE, 25.7, 60.4, augment="cfsi"),
    fedavg(RARE, 29.1, 61.2, augment="lab"),
    silobn(RARE, 54.7, 66.4),
    silobn(RARE, 54.4, 67.1, augment="cfsi"),
    silobn(RARE, 52.9, 67.6, augment="lab"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, "idda-rainy", LINES)


REPRODUCTION = Reproduction(
    "feddrive-table5.4",
    "FedDrive on IDDA, held-out rain: SiloBN and style transfer, mIoU",
    "Thesis, table 5.4 (BiSeNetV2, 1,600 rounds, 5 clients per round)",
    ("idda-rainy",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=IDDA,
)
