"""LADD from GTA5 to Cityscapes: the thesis's table 5.10."""

from __future__ import annotations

from headstart.papers.ladd_study import CENTRAL, CITED, GTA5, Line, Target, conclusion, study
from headstart.papers.reproduction import Reproduction, Task
from headstart.papers.table import Row

TARGET = Target(
    "cityscapes",
    "Cityscapes is at cityscapes-dataset.com, for who has an account: train and val in folders of "
    "their own. " + GTA5,
    cohort=5,
    rounds=300,
    rate=5e-5,
    start=200,
    every=5,
    distillation=20 / 19,
)
LINES = (
    Line("MCD, in one place", 20.6, note=CITED),
    Line("MCD, federated", 10.9, note=CITED),
    Line("DAFormer", 42.3, note=CITED),
    Line("source only", 24.1, "source"),
    Line("FedAvg + self-training", 35.1, "self-training"),
    Line("LADD (cls)", 36.5, "cls"),
    Line("LADD (all)", 36.5, "all"),
    Line("oracle, in one place", 66.6, note=CENTRAL),
    Line("oracle, federated", 58.2, "oracle"),
    Line("FTDA, in one place", 65.7, note=CENTRAL),
    Line("FTDA, federated", 59.4, "ftda"),
)


def run(task: Task) -> list[Row]:
    """Return the rows of this reproduction."""
    return study(task, TARGET, LINES)


REPRODUCTION = Reproduction(
    "ladd-table5.10",
    "A labelled source and clients without labels: GTA5 to Cityscapes, mIoU",
    "Thesis, table 5.10 (DeepLabV3 on MobileNetV2)",
    TARGET.needs,
    1,
    run,
    conclusion,
    trains=True,
    resumes=True,
    elsewhere=TARGET.elsewhere,
)
