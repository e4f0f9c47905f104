"""What an honest answer to a step of training can be: its names, its sizes, and how far it moves.

A step of SGD on cross-entropy over a linear head moves by at most η·G, where

    G = √2/T·√(d·ρ² + 1)        ‖softmax − onehot‖ ≤ √2, ‖(x, 1)‖ ≤ √(d·ρ² + 1) for features ≤ ρ

or with ρ₂² for d·ρ², where the norm of a sample is at most ρ₂ (per sample, so per mean of samples
too), and with momentum m by at most 1/(1 − m) times that. What methods add (control variates,
momentum of the server, decay) is bounded by what the server sent. An update may be `SLACK` times
as long as the sum; one that is longer no samples have caused. Of a network, another objective, or
where no bound of features was agreed, no length is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headstart.federation import promises
from headstart.federation.promises import broken
from headstart.federation.protocol import Arrays, Check
from headstart.gradient.recipe import CROSS_ENTROPY
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

if TYPE_CHECKING:
    from headstart.gradient.steps import Job

SLACK = 10.0  # room for what methods remember of earlier rounds


def steepest(job: Job, broadcast: Arrays, limits: Limits) -> float:
    """The longest direction that a client may descend along; ∞ where it is not known."""
    spec, recipe = job.spec, job.recipe
    bounded = not (spec.network or recipe.inner_rates) and recipe.objective == CROSS_ENTROPY
    bound = math.inf if limits.bound is None else limits.bound
    norm = math.inf if limits.norm is None else limits.norm
    square = min(spec.dimension * bound**2, norm**2)
    if square == math.inf or not bounded:
        return math.inf
    gradient = math.sqrt(2 * (square + 1)) / spec.temperature
    added = [array for name, array in broadcast.items() if name.startswith("server/")]
    sent = sum(float(np.linalg.norm(array)) for array in added)
    model = float(np.linalg.norm(broadcast["shared"]))
    return gradient + sent + job.training.decay * model


def farthest(job: Job, broadcast: Arrays, limits: Limits) -> float:
    """How far a client with so many samples can have moved."""
    training = job.training
    batches = math.ceil(limits.samples / training.batch)
    passes = sum(each.epochs or training.epochs for each in job.recipe.passes)
    pace = training.rate / (1 - training.momentum)
    return pace * batches * passes * steepest(job, broadcast, limits)


def update_check(job: Job, broadcast: Arrays, rows: Sequence[str], names: Sequence[str]) -> Check:
    """Of a round's training: Σw·δ and extras, and the numbers that come with them."""
    size = sum(math.prod(job.model.shapes[name]) for name in job.names.shared)

    def check(answer: Vectors, limits: Limits, clients: int) -> None:
        promises.shape(answer, rows, names, size)
        weight, trained, squares, loss = (
            answer.number(name) for name in ("weight", "clients", "squares", "loss")
        )
        by_samples = job.recipe.weigh == "samples"
        promises.count(trained, clients, "clients")
        promises.count(weight, limits.samples * trained if by_samples else trained, "weight")
        if weight < trained or squares < 0 or (loss < 0 and job.recipe.objective == CROSS_ENTROPY):
            raise broken("expected weight, squares and loss of samples")
        if not trained and answer.vectors.any():
            raise broken("expected zeros of a client that has not trained")
        far = SLACK * farthest(job, broadcast, limits)
        promises.length(answer.vector("update"), far * weight, "update")
        steep = SLACK * trained * steepest(job, broadcast, limits)
        for name in rows[1:]:
            promises.length(answer.vector(name), max(far * trained, steep), name)
        if clients == 1 and trained:  # Σ‖δ‖² is that of the update itself
            square = float(np.linalg.norm(answer.vector("update").astype(np.float64) / weight)) ** 2
            if squares > 1.001 * square + 1e-6:
                raise broken(f"squares: expected at most those of the update, {square:.6g}")

    return check


def gradient_check(job: Job, broadcast: Arrays) -> Check:
    """Of the clients' mean gradients at the received model, and how many they are."""
    size = sum(math.prod(job.model.shapes[name]) for name in job.names.shared)

    def check(answer: Vectors, limits: Limits, clients: int) -> None:
        promises.shape(answer, ("gradient",), ("clients",), size)
        counted = answer.number("clients")
        promises.count(counted, clients, "clients")
        most = SLACK * counted * steepest(job, broadcast, limits)
        if counted or answer.vectors.any():
            promises.length(answer.vector("gradient"), most, "gradient")

    return check
