"""FedDrive on IDDA, held-out country: the thesis's table 5.3.

The seen figure of FedAvg with class imbalance is 58.1 here and 48.1 in table 5.7.
"""

from __future__ import annotations

from headstart.papers.feddrive_study import IDDA, conclusion, fedavg, silobn, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

MIXED, RARE = "heterogeneous", "class imbalance"
LINES = (
    fedavg("uniform", 49.7, 63.6),
    fedavg(MIXED, 40.0, 42.4),
    fedavg(MIXED, 45.7, 54.7, augment="cfsi"),
    fedavg(MIXED, 45.7, 56.6, augment="lab"),
    silobn(MIXED, 45.3, 54.5, 58.8),
    silobn(MIXED, 49.2, 63.4, 61.2, augment="cfsi"),
    silobn(MIXED, 50.2, 64.6, 64.3, augment="lab"),
    fedavg(RARE, 47.6, 58.1),
    fedavg(RARE, 48.7, 59.7, augment="cfsi"),
    fedavg(RARE, 48.9, 60.1, augment="lab"),
    silobn(RARE, 51.2, 66.5),
    silobn(RARE, 51.7, 67.2, augment="cfsi"),
    silobn(RARE, 53.1, 67.3, augment="lab"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, "idda-country", LINES)


REPRODUCTION = Reproduction(
    "feddrive-table5.3",
    "FedDrive on IDDA, held-out country: SiloBN and style transfer, mIoU",
    "Thesis, table 5.3 (BiSeNetV2, 1,600 rounds, 5 clients per round)",
    ("idda-country",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=IDDA,
)
