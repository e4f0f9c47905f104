"""LADD (Shenaj et al. 2023): clients without labels learn from a teacher and stay near the source.

The objective is `pixel_losses.SelfTraining`: cross-entropy on the teacher's pseudo-labels and
`kd`·distillation from the model of the labelled source. Alone this is FedAvg whose teacher is
the received model; `gradient.clustered` sends each cluster its own model and averaged teacher.

With `kd` = 0 and one cluster it is FedAvg with self-training, the papers' baseline.
"""

from __future__ import annotations

from headstart.gradient.checks import share
from headstart.gradient.recipe import Recipe, Term
from headstart.heads.base import flag, number


def ladd(
    kd: float = 1.0,
    entropy: float = 0.0,
    teacher: float = 0.0,
    sure: float = 0.9,
    top: float = 0.66,
    tau: float = 2.0,
    printed: bool = False,
) -> Recipe:
    for name, weight in (("kd", kd), ("entropy", entropy), ("teacher", teacher)):
        number(name, weight)
    number("tau", tau, strict=True)
    share("sure", sure)
    share("top", top)
    flag("printed", printed)
    settings = {
        "source": kd,
        "entropy": entropy,
        "teacher": teacher,
        "sure": sure,
        "top": top,
        "tau": tau,
        "printed": printed,
    }
    objective = (Term("self-training", settings=tuple(settings.items())),)
    return Recipe(objective=objective, rate=0.005, dense=True)
