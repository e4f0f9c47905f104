"""Losses of pixels, each once more in NumPy, pixel by pixel; and finite differences."""

import math

import numpy as np
import pytest
import torch

from headstart.errors import HeadstartError
from headstart.gradient.pixel_losses import (
    VOID,
    SelfTraining,
    distillation,
    divergence,
    entropy,
    hardest,
    pixel_cross_entropy,
    pseudo_labels,
    with_auxiliary,
)

N, C, H, W = 2, 4, 5, 6


def problem(seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    scores, other, third = spread * rng.normal(size=(3, N, C, H, W))
    masks = rng.integers(VOID, C, size=(N, H, W))
    return scores, other, third, masks


def softmax(scores):
    """Of one image, C×h×w."""
    powers = np.exp(scores - scores.max(axis=0))
    return powers / powers.sum(axis=0)


def pixel_by_pixel(scores, masks):
    """The loss of each pixel of one image, void ones 0."""
    chances = softmax(scores)
    found = np.zeros(masks.shape)
    for place in np.ndindex(masks.shape):
        if masks[place] != VOID:
            found[place] = -math.log(chances[(masks[place], *place)])
    return found


def labels_by_hand(scores, sure, top):
    """One image: sort the pixels of each class, keep the first ones."""
    chances = softmax(scores)
    labels, best = chances.argmax(axis=0), chances.max(axis=0)
    found = np.full(labels.shape, VOID)
    for class_ in range(len(scores)):
        places = sorted(zip(*np.nonzero(labels == class_), strict=True), key=lambda p: -best[p])
        for rank, place in enumerate(places):
            if rank < math.ceil(top * len(places)) or best[place] > sure:
                found[place] = class_
    return found


def tensors(*arrays):
    return [torch.tensor(array) for array in arrays]


# -- the equations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [None, 0.25, 0.1, 1.0])
def test_cross_entropy_of_labelled_or_of_the_hardest_pixels(share):
    scores, _, _, masks = problem()
    found = pixel_cross_entropy(*tensors(scores, masks), share)
    for image in range(N):
        each = pixel_by_pixel(scores[image], masks[image]).ravel()
        if share is None:
            expected = each.sum() / (masks[image] != VOID).sum()
        else:  # of all pixels, void or not
            expected = np.sort(each)[::-1][: int(share * H * W)].mean()
        assert float(found[image]) == pytest.approx(expected)


def test_void_pixels_count_in_the_share_and_weigh_nothing():
    scores, _, _, masks = problem()
    masks[0] = VOID
    masks[0, 0, 0] = 1
    lone = pixel_by_pixel(scores[0], masks[0])[0, 0]
    found = pixel_cross_entropy(*tensors(scores, masks), 0.25)
    assert float(found[0]) == pytest.approx(lone / int(0.25 * H * W))
    assert float(pixel_cross_entropy(*tensors(scores, masks))[0]) == pytest.approx(lone)
    masks[0] = VOID
    for share in (None, 0.25):
        leaf = torch.tensor(scores, requires_grad=True)
        nothing = pixel_cross_entropy(leaf, torch.tensor(masks), share)
        (slope,) = torch.autograd.grad(nothing.sum(), leaf)
        assert float(nothing[0].detach()) == 0
        assert (slope[0] == 0).all()
        assert (slope[1] != 0).any()


def test_a_share_of_few_numbers_is_at_least_one():
    assert hardest(torch.tensor([[1.0, 3.0, 2.0]]), 0.01).tolist() == [3.0]
    with pytest.raises(HeadstartError, match="share: expected a number from 0 to 1"):
        hardest(torch.ones(1, 3), 1.5)


def test_auxiliary_outputs_are_enlarged_and_added():
    scores, _, _, masks = problem()
    coarse = np.random.default_rng(1).normal(size=(N, C, 2, 3))
    found = with_auxiliary(*tensors(scores), tensors(coarse, scores), *tensors(masks), 0.25)
    large = torch.nn.functional.interpolate(
        torch.tensor(coarse), (H, W), mode="bilinear", align_corners=False
    )
    parts = [
        pixel_cross_entropy(one, torch.tensor(masks), 0.25)
        for one in (torch.tensor(scores), large, torch.tensor(scores))
    ]
    torch.testing.assert_close(found, sum(parts))


@pytest.mark.parametrize(("sure", "top"), [(0.9, 0.66), (0.5, 0.3), (0.4, 0.05), (1.0, 1.0)])
def test_pseudo_labels_are_those_of_the_equation(sure, top):
    for seed in range(5):
        scores = problem(seed, spread=2.0)[0]
        found = pseudo_labels(torch.tensor(scores), sure, top)
        expected = [labels_by_hand(image, sure, top) for image in scores]
        assert np.array_equal(found.numpy(), expected)


def test_a_class_keeps_its_share_however_unsure_and_equals_stay_together():
    flat = torch.zeros(1, 3, 4, 4)
    flat[:, 1] = 0.1  # everywhere a little more of the one class
    assert (pseudo_labels(flat) == 1).all()
    flat[0, 1, 0] = 0.05  # a quarter is less sure: ⌈0.66·16⌉ = 11 of the 12 others, all equal
    found = pseudo_labels(flat)
    assert (found[0, 1:] == 1).all()
    assert (found[0, 0] == VOID).all()


def test_distillation_entropy_and_divergences():
    scores, other, _, masks = problem()
    kept = masks != VOID
    soft = distillation(*tensors(scores, other, kept), tau=2.0)
    mess = entropy(torch.tensor(scores))
    usual, printed = (divergence(*tensors(scores, other), p) for p in (False, True))
    for image in range(N):
        p, q = softmax(scores[image]), softmax(other[image])
        half = softmax(other[image] / 2)
        each = -(half * np.log(p)).sum(axis=0) * kept[image]
        assert float(soft[image]) == pytest.approx(each.sum() / (H * W))
        assert float(mess[image]) == pytest.approx(-(p * np.log(p)).sum() / (H * W))
        assert float(usual[image]) == pytest.approx((q * np.log(q / p)).sum() / (H * W))
        assert float(printed[image]) == pytest.approx((p * np.log(p / q)).sum() / (H * W))
    assert divergence(*tensors(scores, scores)).abs().max() < 1e-12


# -- LADD's objective ------------------------------------------------------------------------------


def test_self_training_is_the_sum_of_its_parts():
    scores, teacher, source, _ = map(torch.tensor, problem(spread=2.0))
    full = SelfTraining(source=0.7, entropy=0.3, teacher=0.2, printed=True)
    kept = pseudo_labels(source) != VOID
    expected = (
        pixel_cross_entropy(scores, pseudo_labels(teacher))
        + 0.7 * distillation(scores, source, kept)
        + 0.3 * entropy(scores)
        + 0.2 * divergence(scores, teacher, printed=True)
    )
    torch.testing.assert_close(full(scores, teacher, source), expected)
    alone = SelfTraining(source=0.0)(scores, teacher)
    torch.testing.assert_close(alone, pixel_cross_entropy(scores, pseudo_labels(teacher)))
    published = SelfTraining(source=20 / C)(scores, teacher, source)
    by_classes = -(torch.softmax(source / 2, 1) * torch.log_softmax(scores, 1)).mean(dim=1) * kept
    torch.testing.assert_close(published, alone + 20 * by_classes.flatten(1).mean(dim=1))


def test_no_slope_reaches_the_teacher_or_the_source():
    scores, teacher, source, _ = (torch.tensor(part) for part in problem())
    leaves = [part.requires_grad_() for part in (scores, teacher, source)]
    value = SelfTraining(entropy=0.1, teacher=0.5)(*leaves).sum()
    slopes = torch.autograd.grad(value, leaves, materialize_grads=True)
    assert [bool((slope != 0).any()) for slope in slopes] == [True, False, False]


LOSSES = {
    "cross-entropy": lambda z, o, t, m: pixel_cross_entropy(z, m),
    "hardest": lambda z, o, t, m: pixel_cross_entropy(z, m, 0.25),
    "auxiliary": lambda z, o, t, m: with_auxiliary(z, [z[:, :, ::2, ::2]], m, 0.5),
    "distillation": lambda z, o, t, m: distillation(z, o, m >= 0),
    "entropy": lambda z, o, t, m: entropy(z),
    "usual": lambda z, o, t, m: divergence(z, o),
    "printed": lambda z, o, t, m: divergence(z, o, printed=True),
    "self-training": lambda z, o, t, m: SelfTraining(entropy=0.2, teacher=0.3)(z, o, t),
}


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_are_finite_differences(name):
    scores, *others = problem(seed=1)
    others = tensors(*others)
    leaf = torch.tensor(scores, requires_grad=True)
    (slope,) = torch.autograd.grad(LOSSES[name](leaf, *others).sum(), leaf)
    way, step = np.random.default_rng(2).normal(size=scores.shape), 1e-6
    ends = [
        float(LOSSES[name](torch.tensor(scores + sign * step * way), *others).sum())
        for sign in (1, -1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step)
    assert float((slope * torch.tensor(way)).sum()) == pytest.approx(expected, abs=1e-6)
    assert float(slope.abs().max()) > 1e-4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source": -1}, "source: expected"),
        ({"tau": 0}, "tau: expected"),
        ({"top": 1.5}, "top: expected a number from 0 to 1"),
        ({"printed": "yes"}, "printed: expected"),
    ],
)
def test_mistakes_are_named(settings, said):
    with pytest.raises(HeadstartError, match=said):
        SelfTraining(**settings)


def test_distillation_needs_the_source():
    scores, teacher, *_ = map(torch.tensor, problem())
    with pytest.raises(HeadstartError, match="source: expected the scores of the source model"):
        SelfTraining()(scores, teacher)
