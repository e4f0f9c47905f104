"""The settings at which a method is FedAvg (`NEUTRAL`), or why there are none (`NO_NEUTRAL`).

The table wants an entry for every method of the catalogue, and says so.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from headstart.gradient.loop import Plan
from headstart.gradient.models import Spec
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    SHORT,
    assert_close,
    assert_same,
    run,
    vectors,
)
from headstart.testing.methods import (
    Case,
)

from .helpers import METHODS

every_method = pytest.mark.parametrize("name", METHODS)


FEATURES = Spec(3, 3)


@dataclass(frozen=True)
class Neutral:
    """Settings at which a method is FedAvg, in which federation, and for how many rounds.

    Eight samples a client: a mean over clients and one over samples then have the same bits.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (8,) * 6
    rounds: int = 3
    spec: Spec = FEATURES
    train: str = "head"
    tolerance: float = 0.0
    batch: int = 3


ONE_EACH = (
    1,
) * 6  # the passes of FedAlt and FedRep shuffle anew: with one sample there is one way


EXTRACTED = {"spec": Spec(2, 1, network="testing-scale"), "train": "extractor"}  # no head moves


NEUTRAL = {
    "fedavg": Neutral(),
    "silobn": Neutral(),  # features have no batch norm
    "fedavgm": Neutral({"momentum": 0.0}),
    "fedprox": Neutral({"mu": 0.0}),
    "fedexp": Neutral({"epsilon": 1e30}),  # the step is 1
    # δ is nothing beside τ, and √v + τ is 2τ (τ where v is δ²): powers of two lose no bit
    "fedadagrad": Neutral({"tau": 2.0**60, "server_rate": 2.0**61}),
    "fedyogi": Neutral({"tau": 2.0**60, "server_rate": 2.0**61, "momentum": 0.0}),
    "fedadam": Neutral({"tau": 2.0**60, "server_rate": 2.0**60, "momentum": 0.0, "second": 0.0}),
    "scaffold": Neutral(rounds=1),  # control variates begin at 0
    "mime": Neutral({"beta": 0.0, "lite": True}),
    "ditto": Neutral({"strength": 3.0}),  # the private model never touches the shared one
    "fedsim": Neutral({"personal": None}),
    "fedalt": Neutral({"personal": "extractor"}, ONE_EACH),  # features have no extractor
    "fedper": Neutral(**EXTRACTED),
    "fedrep": Neutral(sizes=ONE_EACH, **EXTRACTED),
    "per-fedavg": Neutral({"alpha": 0.0}, batch=1),  # a batch of one has no halves
    "fedbabu": Neutral(**EXTRACTED),
    "fedntd": Neutral({"beta": 0.0}),
    "moon": Neutral({"mu": 0.0}),
    "fedsol": Neutral({"rho": 0.0}),
    # one inner step of λ·rate = 1 is a gradient step, but for the rounding of w − (w − g)
    "pfedme": Neutral({"strength": 1.0, "inner_steps": 1, "inner_rate": 1.0}, tolerance=1e-6),
}


NO_NEUTRAL = {
    "feddyn": "the server adds its drift, a mean of all steps so far that no α scales: h/α",
    "local-only": "nothing is shared",
    "dot-regression": "another loss",
    "feddr-plus": "another loss",
    "spherefed": "another loss",
    "fedetf": "another loss",
    "fedgela": "the head is that of FedAvg only for a client with equal class counts",
}


@every_method
def test_neutral_settings_are_fedavg(name):
    if name in NO_NEUTRAL:
        assert name not in NEUTRAL
        return
    if name not in NEUTRAL:
        pytest.fail(
            f"{name}: say in NEUTRAL at which settings it is FedAvg, or in NO_NEUTRAL why not"
        )
    case = NEUTRAL[name]
    training = replace(SHORT, batch=case.batch)
    data = vectors(case.sizes, 3, case.spec.classes)
    plan = Plan(rounds=case.rounds, clients=4)
    mine, _ = run(Job(name, case.spec, training, case.train, case.settings), data, plan)
    theirs, _ = run(Job("fedavg", case.spec, training, case.train), data, plan)
    assert mine.round == case.rounds
    if case.tolerance:
        assert_close(mine.params, theirs.params, case.tolerance)
    else:
        assert_same(mine.params, theirs.params)


@every_method
def test_a_method_is_not_fedavg_otherwise(name):
    """The comparison above would see a method that never does what it is for."""
    # by definition: Ditto's own model is looked at elsewhere, FedBABU is FedAvg of the extractor,
    # SiloBN differs in statistics of batch norm alone
    same = ("fedavg", "ditto", "fedbabu", "silobn")
    settings = {"epsilon": 1e-6} if name == "fedexp" else {}
    job, data = Case(name, settings).problem(sizes=(8,) * 6)
    training = replace(SHORT, batch=4)
    plan = Plan(rounds=3, clients=4)
    job = replace(job, training=training)
    mine, memories = run(job, data, plan)
    theirs, _ = run(replace(job, algorithm="fedavg", settings=None), data, plan)
    alike = all(np.array_equal(a, theirs.params[n]) for n, a in mine.params.items())
    assert alike == (name in same)
    if name == "ditto":
        assert any("copy" in own for own in memories.values())
