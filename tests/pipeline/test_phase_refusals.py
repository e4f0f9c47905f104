"""What a pipeline cannot do is refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from headstart import HeadstartError
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import check_pipeline

from .helpers import DIGITS, own, result_of, run, shared


@pytest.mark.parametrize("how", ["prior", "ridge"])
def test_a_head_that_has_seen_no_features_is_not_personalized_in_closed_form(digits, how):
    with pytest.raises(HeadstartError, match=f"^{how}: expected a head that has seen features"):
        check_pipeline(digits.context(), parsed(f"ETF + {how}"))
    check_pipeline(digits.context(), parsed(f"ETF + FedAvg-1(ψ) + {how}"))


@pytest.mark.parametrize("frame", ["ETF", "Orthonormal"])
@pytest.mark.parametrize("how", ["prior", "ridge"])
def test_a_frame_that_was_trained_is_personalized_like_any_head(digits, frame, how):
    results = result_of(digits, f"{frame} + FedAvg-6(head, lr=0.5) + {how}")
    assert own(results) > shared(results)


def test_test_classes_that_nobody_trains_on_cannot_be_diagnosed(tmp_path):
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 20)
    split = np.where(label == 2, "test", "train")
    np.savez(tmp_path / "x.npz", features=rng.normal(size=(60, 4)), label=label, split=split)
    told_of = {"data": str(tmp_path / "x.npz"), "diagnostics": True}
    prepared = prepare(make_config({**told_of, "partition": {"name": "iid", "clients": 4}}))
    results = result_of(prepared, "none + FedAvg-2(head)")
    assert results.accuracy == 0
    assert results.curve[-1].diagnosis is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Fed3R + FedAvg-2(head, speed=3)", "speed"),
        ("Fed3R + FP-2(head, speed=3)", "speed"),
        ("Fed3R + FedAvg-2(φ)", "extractor"),
        ("Fed3R + FedAvg-2(head, refit=fed3r)", "refit: expected an extractor that trains"),
        ("Fed3R + FedAvg-2(head, batch=0)", "batch"),
        ("Fed3R + FedAvg-2(head, lr=1e300)", "rate"),
        ("Fed3R + FedAvg-2(head, drops=soon)", "drops"),
        ("Fed3R(name=x)", "name"),
        ("none(x=1)", "none"),
        ("Fed3R + prior(foo=1)", "prior"),
        ("Fed3R + FedAlt-2(φ)", "extractor"),
        ("Fed3R + FedSim-2(ψ)", "network .* whose head is personal and the other part shared"),
        ("Fed3R + pFedMe-2(ψ)", "network .* whose head is personal and the other part shared"),
        ("Fed3R + pFedMe-2(f)", "personal: expected one of extractor, head, got 'model'"),
        ("Fed3R + ridge + FP(head)", "ridge"),
        ("Fed3R + ridge + prior", "both"),
        ("Fed3R + FedAvg-2(head, lr=0.1, rate=0.01)", "one of lr and rate"),
        ("Fed3R + FP-2(head, rate=0.1, lr=0.01)", "one of rate and lr"),
    ],
)
def test_what_cannot_be_done_is_said(digits, text, said):
    with pytest.raises(HeadstartError, match=said):
        run(digits, text)


def test_nothing_is_carried_out_before_all_of_it_is_known_to_be_possible(digits):
    points = []
    with pytest.raises(HeadstartError, match="speed"):
        run(digits, "Fed3R + FedAvg-2(head) + FP-2(head, speed=3)", watch=points.append)
    assert points == []


def test_personal_phases_need_parts_to_test_on():
    bare = prepare(make_config({**DIGITS, "held_out": 0.0}))
    assert result_of(bare, "Fed3R + FedAvg-1(head)").personal is None
    for text in ("OLL(Fed3R)", "Fed3R + prior", "Fed3R + FP(head)"):
        with pytest.raises(HeadstartError, match="held_out"):
            run(bare, text)
