"""Pipelines whose extractor trains: which part is shared, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.gradient.models import build
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import run_config

from .helpers import model_of, painted, result_of, run, spent


def shared_hits(result):
    return result.personal.models["global"]


def own_hits(result):
    return result.personal.models[result.personal.final]


def test_the_extractor_trains_under_a_frozen_head(pictures):
    start = model_of(pictures, "Fed3R")
    end = model_of(pictures, "Fed3R + FedAvg-2(φ)")
    assert np.array_equal(start.params["head.weight"], end.params["head.weight"])
    moved = [
        name for name in start.params if not np.array_equal(start.params[name], end.params[name])
    ]
    assert moved
    assert all(name.startswith("extractor.") for name in moved)
    whole = result_of(pictures, "none + FedAvg-2(f) + FedAlt-1(personal=head) + FP-1(head)")
    assert whole.personal.clients


def test_clients_that_share_a_part_of_a_model_have_no_accuracy_together(pictures, tmp_path):
    config = make_config({**pictures.config.model_dump(), "pipeline": "Fed3R + FedPer-1(f)"})
    (results,) = run_config(config, tmp_path / "run").runs
    assert results.curve[0].accuracy is not None
    assert results.accuracy is None
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "clients share a part of a model" in page
    assert "Nothing was evaluated" not in page


@pytest.mark.parametrize("method", ["FedSim", "FedAlt", "pFedMe"])
@pytest.mark.parametrize(("personal", "shared"), [("ψ", "extractor"), ("φ", "head")])
def test_the_part_that_is_named_stays_with_the_client(pictures, method, personal, shared):
    """And the other alone is sent: 2b bytes a round and client, or 2dC."""
    start = model_of(pictures, "none")
    results, stage, _ = run(pictures, f"none + {method}-1({personal}, lr=0.1)")
    moved = {n.partition(".")[0] for n, a in start.params.items() if (a != stage.params[n]).any()}
    assert moved == {shared}
    first, last = results.curve
    b = sum(a.size for n, a in start.params.items() if n.startswith("extractor."))
    sent, kept = (b, 129 * 3) if shared == "extractor" else (128 * 3, b)  # a formula has no bias
    assert last.formula_up - first.formula_up == 2 * 4 * sent
    assert last.accuracy is None
    memories = [client.memory for client in pictures.clients.values()]
    assert [len(own["personal"]) for own in memories if own] == [kept, kept]


def test_fedgela_at_home_has_the_clients_own_frame_and_the_shared_model_the_plain_one(tmp_path):
    """An extractor that has not moved: what differs is the frame."""
    config = painted(tmp_path)
    for path in tmp_path.glob("c*/*/*.png"):
        most = int(path.parts[-3][1:]) % 3
        if path.parts[-2] != f"k{most}" and int(path.stem) % 2:
            path.unlink()
    prepared = prepare(make_config(config))
    start = result_of(prepared, "ETF")
    assert shared_hits(start) == own_hits(start)
    text = "ETF + FedGELA-1(lr=1e-9)"
    still, further = result_of(prepared, text), result_of(prepared, f"{text} + FP-1(lr=1e-9)")
    assert still.accuracy == start.accuracy
    for results in (still, further):
        assert shared_hits(results) == shared_hits(start)
        assert own_hits(results) != shared_hits(results)
    assert still.personal == further.personal
    other = result_of(prepared, f"{text} + FP-1(like=fedbabu, lr=1e-9)")
    assert other.personal == start.personal


def test_torchs_count_of_a_network_lacks_what_nobody_needs(pictures):
    """No gradient by the pixels: 3% of small_cnn's 3F; with the head frozen, by its weights."""
    first, head = 8 * 8 * 32 * 27, 128 * 3
    ends = {}
    for part in ("f", "φ", "ψ"):
        before, after = result_of(pictures, f"none + FedAvg-1({part}, clients=4)").curve
        done, counted = spent(before, after)
        held = [len(client.samples.labels) for client in pictures.clients.values()]
        model = build(model_of(pictures, "none").spec)
        names = {"f": "model", "φ": "extractor", "ψ": "head"}[part]
        sent = sum(np.prod(model.shapes[name]) for name in model.part(names))
        ends[part] = (counted * 4 - 4 * sent) / sum(held), done * 4 / sum(held)
    assert ends["f"][0] == pytest.approx(ends["f"][1] - first)
    assert ends["φ"][0] == pytest.approx(ends["φ"][1] - first - head)
    assert ends["ψ"][0] == pytest.approx(ends["ψ"][1] - head)
    assert 0.96 < ends["f"][0] / ends["f"][1] < 0.98


def test_random_features_and_refitted_heads_are_counted(pictures, digits):
    """dD a sample more through the extractor; of kept features once a visit; (φ, ψ) each round."""
    size = {"f": {}, "ψ": {}}
    for part, costs in size.items():
        for name in ("Fed3R", "Fed3R-RF(dimension=128, bandwidth=2)"):
            before, after = result_of(pictures, f"{name} + FedAvg-1({part}, clients=4)").curve
            costs[name] = spent(before, after)
    held = sum(len(client.samples.labels) for client in pictures.clients.values()) / 4
    for part, done, counted in (("f", 3, 2), ("ψ", 1, 1)):  # ω never moves: no gradient by it
        plain, mapped = size[part].values()
        assert mapped[0] - plain[0] == pytest.approx(done * 128 * 128 * held)
        assert mapped[1] - plain[1] == pytest.approx(counted * 128 * 128 * held)
    kept = {}
    for name in ("Fed3R", "Fed3R-RF(dimension=64, bandwidth=2)"):
        before, after = result_of(digits, f"{name} + FedAvg-1(head, epochs=3, clients=12)").curve
        kept[name] = spent(before, after, ("flops", "counted", "formula_flops"))
    held = sum(len(client.samples.labels) for client in digits.clients.values()) / 12
    gaps = np.subtract(*reversed(kept.values()))
    np.testing.assert_allclose(gaps, [64 * 64 * held, 64 * 64 * held, 3 * 64 * 64 * held])
    refitted, plain = (
        result_of(pictures, f"Fed3R + FedAvg-1(f, clients=4{more})").curve[-1]
        for more in (", refit=fed3r", "")
    )
    once = result_of(pictures, "Fed3R").curve[0]
    for key in ("flops", "counted", "formula_flops", "formula_up"):
        assert spent(plain, refitted, [key]) == pytest.approx([getattr(once, key)])
