"""What is descended on a batch: losses and terms, each a function of what a batch shows.

`objectives` knows them by name.

A loss pulls a model to its labels, a term holds it to another: the model that was received (θᵍ),
or a client's own last one. An objective is a weighted sum of both, `recipe.Term`s.

Everything is summed over clients trained together, which are independent: the gradient of the sum
is each client's own. A loss may give its slope ∂/∂logits, so that a head trains without autograd.

    cross-entropy   McMahan et al. 2017 and all who change nothing
    dot-regression  ½(cos(f, v_y) − 1)², Yang et al. 2022: pulls and never pushes
    sphere          mean over classes of (s·cos(f, v_c) − [c = y])², SphereFed, Dong et al. 2022
    balanced        cross-entropy of s·cos(f, v_c) + γ·log n_kc, FedETF, Li et al. 2023
    scaled          cross-entropy of C·n_kc/n_k·(f·v_c), FedGELA, Fan et al. 2023
    kd              τ²·KL(softmax(zᵍ/τ) ‖ softmax(z/τ)), Hinton et al. 2015
    ntd             the same without the true class, Lee et al. 2022
    ld              ‖z − zᵍ‖², Kim et al. 2021
    fd              ‖f − fᵍ‖²/d, FedDr+
    moon            −log softmax over {cos(f, fᵍ)/τ, cos(f, f_last)/τ} of the first, Li et al. 2021
    self-training   of pixels without labels: `pixel_losses.SelfTraining`, Shenaj et al. 2023
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.data.backbones.networks.dense import enlarged
from headstart.gradient.pixel_losses import SelfTraining, with_auxiliary
from headstart.gradient.recipe import Term

# that masks, or no labels, are enough for
OF_CELLS = ("cross-entropy", "kd", "ld", "fd", "moon", "self-training")
_LEAST = 1e-6  # a shorter vector has no direction

_FEW = 24  # classes


@dataclass(frozen=True)
class Cells:
    """Of a dense network: how many cells an image has, down and across, the scores of auxiliary
    heads (b×C×…), and the share of pixels that a loss is the mean of."""

    grid: tuple[int, int]
    auxiliary: tuple[Tensor, ...] = ()
    hardest: float | None = None


@dataclass(frozen=True)
class Outputs:
    """A batch through a model: features f k×b×d, scores z k×b×C (before a mask), head rows v k×C×d.

    An axis of 1 is all clients'. `counts`, k×C: how many samples of each class a client holds. Of a
    dense network (`cells`) b images are b·h·w features and scores, and labels are masks k×b×H×W.
    """

    features: Tensor
    scores: Tensor
    rows: Tensor
    labels: Tensor
    weights: Tensor
    counts: Tensor | None = None
    mask: Tensor | float = 0.0
    through_received: Outputs | None = None  # the same batch through the received model
    last: Outputs | None = None  # through the client's own last one
    cells: Cells | None = None
    beside: Mapping[str, Outputs] = field(default_factory=dict)  # through models the server sent

    @property
    def logits(self) -> Tensor:
        """Of the classes that can be predicted."""
        return self.scores + self.mask if isinstance(self.mask, Tensor) else self.scores

    @property
    def received(self) -> Outputs:
        if self.through_received is None:
            raise ValueError("a term needs the received model")
        return self.through_received

    @property
    def held(self) -> Tensor:
        if self.counts is None:
            raise ValueError("a loss needs the clients' class counts")
        return self.counts

    def cosines(self) -> Tensor:
        """cos(f, v_c), k×b×C; no bias takes part."""
        return unit(self.features) @ unit(self.rows).transpose(1, 2)

    def mean(self, each: Tensor) -> Tensor:
        """Of k×b values, weighted; summed over clients. Of cells, the mean of each image's."""
        if self.cells is not None:
            each = each.reshape(*self.weights.shape, -1).mean(dim=2)
        return (each * self.weights).sum()

    def maps(self) -> Tensor:
        """The logits of a client's cells as images have them, b×C×h×w."""
        if self.cells is None:
            raise ValueError("a loss of pixels needs a dense network")
        images = self.weights.shape[1]
        return self.logits[0].reshape(images, *self.cells.grid, -1).permute(0, 3, 1, 2)


def unit(vectors: Tensor) -> Tensor:
    """To length 1; what has no direction is 0, and no gradient comes from it."""
    size = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return torch.where(size > _LEAST, vectors / size.clamp_min(_LEAST), 0.0)


def of_label(values: Tensor, labels: Tensor) -> Tensor:
    """The value of the true class, k×b."""
    return values.gather(2, labels[..., None])[..., 0]


def _softmax_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return each @ weights.flatten()


def cross_entropy(seen: Outputs, term: Term) -> Tensor:
    """Return the weighted cross-entropy of the logits, of pixels where the network is dense."""
    if seen.cells is not None:
        cells = seen.cells
        each = with_auxiliary(seen.maps(), cells.auxiliary, seen.labels[0], cells.hardest)
        return (each * seen.weights[0]).sum()
    return _softmax_loss(seen.logits, seen.labels, seen.weights)


def _softmax(logits: Tensor) -> Tensor:
    """Torch's own goes row by row, which for a few classes takes thrice the time of its parts."""
    if logits.shape[-1] > _FEW:
        return torch.softmax(logits, dim=-1)
    powers = (logits - logits.amax(dim=-1, keepdim=True)).exp_()
    return powers.div_(powers.sum(dim=-1, keepdim=True))


def cross_entropy_slope(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """w·(softmax − one-hot)."""
    slope = _softmax(logits)
    slope.scatter_(2, labels.unsqueeze(2), -1.0, reduce="add")
    return slope.mul_(weights.unsqueeze(2))


def dot_regression(seen: Outputs, term: Term) -> Tensor:
    """Return ½(cos(z, w_y) − 1)² for features z and the head's row w_y of their class."""
    rows = unit(seen.rows).expand(len(seen.labels), -1, -1)
    class_rows = rows.gather(1, seen.labels[..., None].expand(-1, -1, rows.shape[2]))
    cosine = (unit(seen.features) * class_rows).sum(dim=-1)
    return seen.mean((cosine - 1).square() / 2)


def sphere(seen: Outputs, term: Term) -> Tensor:
    """Return the squared error of scaled cosine logits against one-hot labels."""
    wanted = F.one_hot(seen.labels, seen.rows.shape[1])
    return seen.mean((term.scale * seen.cosines() - wanted).square().mean(dim=-1))


def balanced(seen: Outputs, term: Term) -> Tensor:
    """Return the cross-entropy of scaled cosines plus γ·log of the client's class frequencies."""
    prior = torch.log(seen.held**term.gamma)[:, None]  # −∞: a class that the client lacks (γ > 0)
    return _softmax_loss(term.scale * seen.cosines() + prior, seen.labels, seen.weights)


def frequencies(counts: Tensor) -> Tensor:
    """C·n_kc/n_k, k×C: by what FedGELA's client scales each class vector; 1 for equal counts."""
    return counts.shape[1] * (counts / counts.sum(dim=1, keepdim=True))


def scaled(seen: Outputs, term: Term) -> Tensor:
    """Return the cross-entropy of scores scaled by the client's relative class frequencies."""
    logits = seen.scores * frequencies(seen.held)[:, None]
    return _softmax_loss(logits + seen.mask, seen.labels, seen.weights)


def _divergence(seen: Outputs, term: Term, scores: Tensor, received: Tensor) -> Tensor:
    """τ²·KL(received ‖ ours) of softened softmaxes; a score of −∞ is a class left out."""
    ours, theirs = (F.log_softmax(part / term.tau, dim=-1) for part in (scores, received))
    gaps = (theirs - ours).masked_fill(theirs.isinf(), 0.0)
    return seen.mean((theirs.exp() * gaps).sum(dim=-1)) * term.tau**2


def kd(seen: Outputs, term: Term) -> Tensor:
    """Return the distillation loss τ²·KL(received ‖ local) over all classes."""
    return _divergence(seen, term, seen.scores, seen.received.scores)


def ntd(seen: Outputs, term: Term) -> Tensor:
    """Return the distillation loss over the classes that are not the true one."""
    true = F.one_hot(seen.labels, seen.scores.shape[2]).bool()
    both = (part.masked_fill(true, -torch.inf) for part in (seen.scores, seen.received.scores))
    return _divergence(seen, term, *both)


def ld(seen: Outputs, term: Term) -> Tensor:
    """Return the squared distance between the received and the local model's scores."""
    return seen.mean((seen.scores - seen.received.scores).square().sum(dim=-1))


def fd(seen: Outputs, term: Term) -> Tensor:
    """Return the mean squared distance between the received and the local model's features."""
    return seen.mean((seen.features - seen.received.features).square().mean(dim=-1))


def moon(seen: Outputs, term: Term) -> Tensor:
    """Return MOON's contrastive loss: near the received model's features, far from the last's."""
    ours, last = unit(seen.features), seen.last or seen.received
    near, far = (
        (ours * unit(other.features)).sum(dim=-1) / term.tau for other in (seen.received, last)
    )
    return seen.mean(F.softplus(far - near))  # −log e^a/(e^a + e^b)


def self_training(seen: Outputs, term: Term) -> Tensor:
    """Return LADD's loss of pixels: pseudo-labels of a teacher, distillation from the source.

    Scores of cells are enlarged first; of the masks only their size is looked at.
    """
    size = (int(seen.labels.shape[-2]), int(seen.labels.shape[-1]))
    others = {name: enlarged(other.maps(), size) for name, other in seen.beside.items()}
    how = SelfTraining(**dict(term.settings))
    each = how(enlarged(seen.maps(), size), others["teacher"], others.get("source"))
    return (each * seen.weights[0]).sum()
