"""What every method of the catalogue promises. A new file in methods/ is tested by being there."""

from dataclasses import replace

import numpy as np
import pytest

from headstart import HeadstartError, gradient
from headstart.gradient.loop import Plan
from headstart.gradient.models import Spec
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    SHORT,
    fresh,
    run,
    vectors,
)
from headstart.testing.methods import (
    CHECKS,
    CNN,
    GENTLE,
    PICTURES,
    Case,
    upload,
)

from .helpers import METHODS

VARIANTS = {
    "fedrep": [{"head_epochs": 2}],
    "fedsim": [{"personal": "head"}, {"personal": "extractor"}],
    "fedalt": [{"personal": "head"}, {"personal": "extractor"}],
}


CASES = {
    "-".join([name, *map(str, settings.values())]): Case(name, settings)
    for name in METHODS
    for settings in VARIANTS.get(name, [{}])
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_method_keeps_its_promises(case, check):
    check(case)


def test_a_cohort_without_samples_is_named():
    for name in ("fedavg", "mime"):
        job, _ = Case(name).problem()
        with pytest.raises(HeadstartError, match="round: expected clients with samples, got none"):
            run(job, vectors((0, 0)), Plan(rounds=1, clients=2))


@pytest.mark.parametrize("name", ["fedsim", "fedalt", "fedper", "fedrep"])
def test_what_a_client_sends_tells_only_what_its_personal_part_does(name):
    """A constant more in every bias changes no prediction: it may change nothing that is sent."""
    job = Job(name, CNN, replace(GENTLE, decay=0.0), "model")
    numbers = 3 * 128 + 3  # of the head
    biases = slice(numbers - 3, None)
    own = np.random.default_rng(0).normal(0, 0.1, numbers).astype(np.float32)
    answers = []
    for change in ({}, {"by": 4.0}, {"by": np.array([4.0, 0.0, 0.0])}):
        data, kept = fresh(PICTURES), own.copy()
        kept[biases] += np.float32(change.get("by", 0.0))
        data["c00"].memory["personal"] = kept
        answers.append(upload(job, data)[0].vectors)
        assert not np.array_equal(data["c00"].memory["personal"], kept)  # it trained
    plain, silent, loud = answers
    size = np.abs(plain).max()
    assert np.abs(silent - plain).max() < 1e-4 * size
    assert np.abs(loud - plain).max() > 1e-2 * size  # a part that predicts otherwise does show


def test_a_private_model_changes_no_byte_of_what_is_sent():
    job = Job("ditto", Spec(3, 3), SHORT)
    messages = set()
    for private in (None, 0.0, 7.0):
        data = vectors((9, 4))
        if private is not None:
            data["c00"].memory["copy"] = np.full(12, private, np.float32)
        messages.add(upload(job, data)[1])
    assert len(messages) == 1


def test_a_control_variate_does_change_what_is_sent():
    job, messages = Job("scaffold", Spec(3, 3), SHORT), set()
    for control in (0.0, 0.5):
        data = vectors((9, 4))
        data["c00"].memory["control"] = np.full(12, control, np.float32)
        messages.add(upload(job, data)[1])
    assert len(messages) == 2


def test_fedexp_asks_how_far_clients_moved():
    assert gradient.make("fedexp").send_norms
