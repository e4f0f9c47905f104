"""Rates and other settings of phases, and how they stand in the result."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.pipeline import local, training
from headstart.pipeline.config import parsed
from headstart.pipeline.context import ModelState
from headstart.pipeline.local import planned

from .helpers import model_of, own, result_of, shared


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("none", 0.1),
        ("ETF", 0.1),
        ("OLL(none)", 0.01),
        ("OLL(ETF)", 0.01),
        ("Fed3R", 0.001),
        ("OLL(Fed3R)", 0.001),
    ],
)
def test_the_rate_of_the_papers_at_home(digits, text, rate):
    """A tenth after a closed form, a tenth by OLL whatever came before; the head alone has both."""
    context, stage = digits.context(), ModelState()
    for number, phase in enumerate(parsed(text).phases):
        stage = phase.run(context, stage, number)
    job, _ = planned(parsed("FP(head)").phases[-1], context, training.trainable(context, stage))
    assert job.training.rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("method", "setting", "usual"), [("pFedMe", "inner_rate", 0.1), ("Per-FedAvg", "alpha", 0.01)]
)
def test_rates_inside_a_method_follow_the_learning_rate_unless_they_are_given(
    digits, method, setting, usual
):
    """After a closed-form head the usual ones were a hundred times too long."""
    for init, scale in (("none", 1.0), ("ETF", 1.0), ("Fed3R", 0.01)):
        job = model_of(digits, f"{init} + {method}-1(lr=0.02)").job
        assert job.settings[setting] == pytest.approx(usual * scale)
        given = model_of(digits, f"{init} + {method}-1({setting}=0.3)").job
        assert given.settings[setting] == 0.3
        assert given.training.rate == pytest.approx(0.1 * scale)
    results = result_of(digits, f"Fed3R + {method}-20")
    assert results.accuracy > results.curve[0].accuracy - 0.02
    assert own(results) > shared(results) - 0.005


def test_the_settings_of_trainings_are_in_the_result_as_they_were_used(
    digits, pictures, monkeypatch
):
    used, begin, evaluate = [], training.begin, local.evaluate

    def begun(job, params):
        used.append(job.training.rate)
        return begin(job, params)

    def alone(context, state, job=None, home=None):
        used.extend([job.training.rate] if job else [])
        evaluate(context, state, job, home)

    monkeypatch.setattr(training, "begin", begun)
    monkeypatch.setattr(local, "evaluate", alone)
    cases = [
        (digits, "Fed3R + FedAvg-1(ψ) + FP-2(ψ)", {"lr": 0.001, "epochs": 1, "batch": 50}),
        (digits, "OLL(none + pFedMe-1) + FP-3", {"lr": 0.1, "inner_rate": 0.1}),
        (digits, "Fed3R + FedProx-1(lr=0.3, mu=2)", {"lr": 0.3, "mu": 2}),
        (pictures, "Fed3R-FT(FedAvg-1(f, lr=0.01)) + FP-1(ψ)", {"lr": 0.01, "momentum": None}),
    ]
    for experiment, text, expected in cases:
        used.clear()
        settings = result_of(experiment, text).settings
        phases = {key: said for key, said in settings.items() if key.startswith("phase ")}
        assert [said["lr"] for said in phases.values()] == used
        first = phases["phase 1"]
        assert {key: first.get(key) for key in expected} == expected
        assert list(phases)[1:] in ([], ["phase 3" if "OLL" in text else "phase 2"])


def test_rounds_at_which_the_rate_drops_can_be_said(digits):
    plain = model_of(digits, "Fed3R + FedAvg-3(head, lr=0.01)")
    slower = model_of(digits, 'Fed3R + FedAvg-3(head, lr=0.01, drops="1,2")')
    assert not np.array_equal(plain.params["head.weight"], slower.params["head.weight"])
