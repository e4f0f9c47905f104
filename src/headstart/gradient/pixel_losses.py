"""Losses of pixels: what FedDrive and LADD descend, as functions of scores and masks.

Scores are n×C×h×w, masks n×H×W with VOID where nothing is known; scores of cells are enlarged
bilinearly to the mask. Each function gives a number per image, so that images can be weighted.

    pixel_cross_entropy   of all labelled pixels, or of the hardest share of all pixels of an image
                          (void ones count in the share, with loss 0): FedDrive's hardest 25%
    with_auxiliary        the same of the main output and of auxiliary ones, at weight 1 each
    pseudo_labels         the classes that a teacher is sure of, LADD
    distillation          −Σ_c softmax(z⁰/τ)_c·log softmax(z)_c, where the source's own labels
                          are kept
    entropy               −Σ_c p_c·log p_c
    divergence            KL(teacher ‖ model), or as LADD prints it KL(model ‖ teacher), which seeks
                          one mode of the teacher instead of covering all
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.data.backbones.networks.dense import enlarged
from headstart.errors import HeadstartError
from headstart.gradient.checks import share as check_share
from headstart.heads.base import flag, number

VOID = -1  # of a mask: no class


def pixel_cross_entropy(scores: Tensor, masks: Tensor, share: float | None = None) -> Tensor:
    """Of each image: the mean over its labelled pixels (0 where it has none), or over the hardest
    `share` of all its pixels."""
    masks = masks.long()
    at_mask = _at(scores, masks)
    each = F.cross_entropy(at_mask, masks, ignore_index=VOID, reduction="none").flatten(1)
    if share is not None:
        return hardest(each, share)
    return each.sum(dim=1) / (masks != VOID).flatten(1).sum(dim=1).clamp_min(1)


def hardest(each: Tensor, share: float) -> Tensor:
    """The mean of the largest `share` of each row, of at least one number."""
    check_share("share", share)
    count = max(1, int(share * each.shape[1]))
    return each.topk(count, dim=1).values.mean(dim=1)


def with_auxiliary(
    scores: Tensor, auxiliary: Sequence[Tensor], masks: Tensor, share: float | None = None
) -> Tensor:
    """The loss of the main output plus that of every auxiliary one."""
    losses = [pixel_cross_entropy(one, masks, share) for one in (scores, *auxiliary)]
    return torch.stack(losses).sum(dim=0)


# --- LADD


@dataclass(frozen=True)
class SelfTraining:
    """LADD's objective on images without masks: what its authors ran, and what they printed.

    Their program: cross-entropy on the teacher's pseudo-labels and `source`·distillation. The
    printed equation also has an entropy and a divergence from the teacher, weights 0 here. Their λ
    is over a mean of C classes: λ = 20 with 19 classes is `source` = 1.05, per pixel.
    """

    source: float = 1.0
    entropy: float = 0.0
    teacher: float = 0.0
    sure: float = 0.9
    top: float = 0.66
    tau: float = 2.0
    printed: bool = False  # the direction of the divergence

    def __post_init__(self) -> None:
        for name in ("source", "entropy", "teacher"):
            number(name, getattr(self, name))
        number("tau", self.tau, strict=True)
        check_share("sure", self.sure)
        check_share("top", self.top)
        flag("printed", self.printed)

    def __call__(self, scores: Tensor, teacher: Tensor, source: Tensor | None = None) -> Tensor:
        """Of each image; `teacher` and `source` are other models' scores of it, without slopes.

        The source is only needed where its weight is not 0.
        """
        labels = pseudo_labels(teacher, self.sure, self.top)
        found = pixel_cross_entropy(scores, labels)
        if self.source:
            if source is None:
                raise HeadstartError("source: expected the scores of the source model, got none")
            kept = pseudo_labels(source, self.sure, self.top) != VOID
            found = found + self.source * distillation(scores, source, kept, self.tau)
        if self.entropy:
            found = found + self.entropy * entropy(scores)
        if self.teacher:
            found = found + self.teacher * divergence(scores, teacher, self.printed)
        return found


def pseudo_labels(scores: Tensor, sure: float = 0.9, top: float = 0.66) -> Tensor:
    """The likeliest class of each pixel, or VOID.

    A pixel is kept if its probability exceeds `sure`, or if it is among the `top` of those that the
    same image has of its class, rounded up; of equal probabilities all are kept.
    """
    chances, labels = torch.softmax(scores.detach(), dim=1).max(dim=1)
    kept = chances > sure
    for image, (chance, label) in enumerate(zip(chances, labels, strict=True)):
        for class_ in label.unique():
            own = label == class_
            values = chance[own]
            least = values.topk(max(1, math.ceil(top * len(values)))).values[-1]
            kept[image] |= own & (chance >= least)
    return torch.where(kept, labels, VOID)


def distillation(scores: Tensor, source: Tensor, kept: Tensor, tau: float = 2.0) -> Tensor:
    """Of each image: the mean over all its pixels, of which those that are not `kept` count 0.

    The temperature softens the source alone.
    """
    wanted = torch.softmax(source.detach() / tau, dim=1)
    each = -(wanted * torch.log_softmax(scores, dim=1)).sum(dim=1)
    return (each * kept).flatten(1).mean(dim=1)


def entropy(scores: Tensor) -> Tensor:
    """Of each image: the mean over its pixels."""
    logs = torch.log_softmax(scores, dim=1)
    return -(logs.exp() * logs).sum(dim=1).flatten(1).mean(dim=1)


def divergence(scores: Tensor, teacher: Tensor, printed: bool = False) -> Tensor:
    """Of each image: the mean over its pixels of KL(teacher ‖ model), or of the reverse."""
    ours, theirs = torch.log_softmax(scores, dim=1), torch.log_softmax(teacher.detach(), dim=1)
    first, second = (ours, theirs) if printed else (theirs, ours)
    return (first.exp() * (first - second)).sum(dim=1).flatten(1).mean(dim=1)


def _at(scores: Tensor, masks: Tensor) -> Tensor:
    """Scores at the size of the masks."""
    size = (masks.shape[1], masks.shape[2])
    return scores if scores.shape[2:] == size else enlarged(scores, size)
