"""FedDrive on Cityscapes: the thesis's table 5.2."""

from __future__ import annotations

from headstart.papers.feddrive_study import CITYSCAPES, conclusion, fedavg, silobn, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

MIXED, RARE = "heterogeneous", "class imbalance"
LINES = (
    fedavg("uniform", 45.6),
    fedavg(MIXED, 43.3),
    fedavg(MIXED, 40.6, augment="cfsi"),
    fedavg(MIXED, 42.7, augment="lab"),
    silobn(MIXED, 52.9),
    silobn(MIXED, 52.1, augment="cfsi"),
    silobn(MIXED, 53.4, augment="lab"),
    fedavg(RARE, 44.5),
    fedavg(RARE, 48.3, augment="cfsi"),
    fedavg(RARE, 44.3, augment="lab"),
    silobn(RARE, 51.8),
    silobn(RARE, 50.8, augment="cfsi"),
    silobn(RARE, 51.5, augment="lab"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, "cityscapes", LINES)


REPRODUCTION = Reproduction(
    "feddrive-table5.2",
    "FedDrive on Cityscapes: SiloBN and style transfer, mIoU",
    "Thesis, table 5.2 (BiSeNetV2, 1,600 rounds, 5 clients per round)",
    ("cityscapes",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=CITYSCAPES,
)
