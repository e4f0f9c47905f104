"""What local training does to features (FedDr+, figures 2 to 6), on samples from outside.

    alignment   cos(f(x; θ_k), v_y) of a client's model after it has trained
    gap         that less the received model's
    distance    ‖f(x; θ_k) − f(x; θᵗ)‖, and the angle between the two in degrees

apart for the classes that a client observes and those it does not; the mean of a client's samples,
then over the clients of a round. Only sums leave a client, and only where they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headstart.federation.protocol import Arrays
from headstart.gradient.engine import Broadcast, Group, Params, Trained
from headstart.gradient.losses import of_label, unit

KINDS = ("observed", "unobserved")
MEASURES = ("alignment", "gap", "distance", "angle")
NAMES = tuple(f"{kind}_{measure}" for kind in KINDS for measure in MEASURES)
SUMS = tuple(f"{kind}_{what}" for kind in KINDS for what in ("clients", *MEASURES))
_BLOCK = 256  # samples through the network at a time


def diagnosed(
    model: Any,
    group: Group,
    message: Broadcast,
    trained: Trained,
    arrays: Arrays,
    at: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Σ over a group's clients of [1, the mean of every measure], for each kind of class.

    `at`: where the labels of the outside samples stand among the model's classes.
    """
    labels = torch.from_numpy(at)
    samples = arrays["outside/features"]
    before = _through(model, message.params, samples)
    sums = np.zeros((len(KINDS), 1 + len(MEASURES)))
    for place, client in enumerate(group.clients):
        params = {n: a[place : place + 1] if len(a) > 1 else a for n, a in trained.params.items()}
        values = _measures(before, _through(model, params, samples), labels)
        observed = torch.isin(labels, torch.from_numpy(np.unique(client.y)))
        for row, those in zip(sums, (observed, ~observed), strict=True):
            if those.any():
                row += [1.0, *(float(value[those].mean()) for value in values)]
    return sums.ravel()


def means(number: Callable[[str], float]) -> dict[str, float]:
    """The means over clients, by name, of the sums that `number` gives by theirs.

    A kind of class that no client had is left out.
    """
    return {
        f"{kind}_{measure}": number(f"{kind}_{measure}") / number(f"{kind}_clients")
        for kind in KINDS
        if number(f"{kind}_clients")
        for measure in MEASURES
    }


def _through(model: Any, params: Params, samples: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Features of all samples, n×d, and the directions of the head's rows."""
    features = [
        model.features(params, model.inputs(samples[at : at + _BLOCK])[None])[0]
        for at in range(0, len(samples), _BLOCK)
    ]
    return torch.cat(features), unit(params["head.weight"][0])


def _measures(
    before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], labels: Tensor
) -> tuple[Tensor, ...]:
    aligned = [of_label((unit(f) @ rows.T)[None], labels[None])[0] for f, rows in (before, after)]
    u, v = unit(before[0]), unit(after[0])
    norms = (torch.linalg.vector_norm(way, dim=1) for way in (u - v, u + v, after[0] - before[0]))
    apart, along, distance = norms
    angle = 2 * torch.atan2(apart, along)  # of small angles too; 0 where neither has a direction
    return aligned[1], aligned[1] - aligned[0], distance, angle * (180 / math.pi)
