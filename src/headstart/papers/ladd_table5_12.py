"""LADD from GTA5 to Mapillary: the thesis's table 5.12."""

from __future__ import annotations

from headstart.papers.ladd_study import CENTRAL, CITED, GTA5, Line, Target, conclusion, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

TARGET = Target(
    "mapillary",
    "Mapillary Vistas is at mapillary.com/dataset/vistas, for who agrees to its terms. " + GTA5,
    cohort=6,
    rounds=100,
    rate=1e-2,
    start=50,
    every=5,
    distillation=10 / 19,
)
LINES = (
    Line("MCD, in one place", 31.9, note=CITED),
    Line("MCD, federated", 19.2, note=CITED),
    Line("source only", 32.4, "source"),
    Line("FedAvg + self-training", 39.0, "self-training"),
    Line("LADD (cls)", 40.2, "cls"),
    Line("LADD (all)", 38.8, "all"),
    Line("oracle, in one place", 61.5, note=CENTRAL),
    Line("oracle, federated", 49.9, "oracle"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, TARGET, LINES)


REPRODUCTION = Reproduction(
    "ladd-table5.12",
    "A labelled source and clients without labels: GTA5 to Mapillary, mIoU",
    "Thesis, table 5.12 (DeepLabV3 on MobileNetV2)",
    TARGET.needs,
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=TARGET.elsewhere,
)
