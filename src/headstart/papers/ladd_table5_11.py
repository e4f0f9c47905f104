"""LADD from GTA5 to CrossCity: the thesis's table 5.11."""

from __future__ import annotations

from headstart.papers.ladd_study import CITED, GTA5, Line, Target, conclusion, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

TARGET = Target(
    "crosscity",
    "CrossCity is given by its authors (Chen et al. 2017) on request. " + GTA5,
    cohort=4,
    rounds=1000,
    rate=1e-2,
    start=400,
    every=1,
    distillation=20 / 13,
)
LINES = (
    Line("MCD, in one place", 27.2, note=CITED),
    Line("MCD, federated", 24.8, note=CITED),
    Line("source only", 26.5, "source"),
    Line("FedAvg + self-training", 33.6, "self-training"),
    Line("LADD (cls)", 39.9, "cls"),
    Line("LADD (all)", 40.1, "all"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, TARGET, LINES)


REPRODUCTION = Reproduction(
    "ladd-table5.11",
    "A labelled source and clients without labels: GTA5 to CrossCity, mIoU",
    "Thesis, table 5.11 (DeepLabV3 on MobileNetV2)",
    TARGET.needs,
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=TARGET.elsewhere,
)
