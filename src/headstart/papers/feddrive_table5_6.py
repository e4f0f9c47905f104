"""FedDrive's server steps on Cityscapes: the thesis's table 5.6."""

from __future__ import annotations

from headstart.papers.feddrive_study import CITYSCAPES, SERVERS, Line, conclusion, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

NUMBERS = {
    "uniform": (45.6, 40.0, 45.9, 44.3),
    "heterogeneous": (43.3, 37.8, 45.1, 42.3),
    "class imbalance": (44.5, 36.1, 45.2, 39.8),
}


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    lines = [
        Line(distribution, {("unseen", "averaged"): number}, server=server)
        for distribution, numbers in NUMBERS.items()
        for server, number in zip(SERVERS, numbers, strict=True)
    ]
    return study(task, "cityscapes", lines)


REPRODUCTION = Reproduction(
    "feddrive-table5.6",
    "FedDrive on Cityscapes: server steps, mIoU",
    "Thesis, table 5.6 (BiSeNetV2, 1,600 rounds, 5 clients per round)",
    ("cityscapes",),
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=CITYSCAPES,
)
