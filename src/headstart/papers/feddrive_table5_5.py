"""FedDrive on IDDA, held-out view of a bus: the thesis's table 5.5."""

from __future__ import annotations

from headstart.papers.feddrive_study import IDDA, conclusion, fedavg, silobn, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

MIXED, RARE = "heterogeneous", "class imbalance"
LINES = (
    fedavg("uniform", 58.5, 64.9),
    fedavg(MIXED, 38.1, 45.7),
    fedavg(MIXED, 48.9, 56.9, augment="cfsi"),
    fedavg(MIXED, 50.5, 58.8, augment="lab"),
    silobn(MIXED, 47.4, 57.8, 61.6),
    silobn(MIXED, 55.8, 65.8, 64.0, augment="cfsi"),
    silobn(MIXED, 56.2, 67.0, 66.2, augment="lab"),
    fedavg(RARE, 53.3, 60.5),
    fedavg(RARE, 52.9, 61.2, augment="cfsi"),
    fedavg(RARE, 54.0, 62.1, augment="lab"),
    silobn(RARE, 57.6, 67.5),
    silobn(RARE, 57.7, 67.9, augment="cfsi"),
    silobn(RARE, 58.0, 67.8, augment="lab"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, "idda-bus", LINES)


REPRODUCTION = Reproduction(
    "feddrive-table5.5",
    "FedDrive on IDDA, held-out view of a bus: SiloBN and style transfer, mIoU",
    "Thesis, table 5.5 (BiSeNetV2, 1,600 rounds, 5 clients per round)",
    ("idda-bus",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=IDDA,
)
