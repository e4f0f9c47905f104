"""FLOPs, counted by torch where the papers have formulas; as theirs, a multiply-add counts once.

torch counts products of matrices and convolutions, each multiply-add as two: half of it is the
papers' unit. Element-wise work is counted by neither. Where the two differ: a head on features
takes 2F_ψ a gradient and not 3F_ψ, for nobody needs the gradient by the features; a network lacks
that by the pixels, its first layer's share; where the head is frozen, that by its weights.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.samples import ArraySamples
from headstart.federation.protocol import ClientData, perform
from headstart.gradient import steps
from headstart.gradient.models import Spec, initial
from headstart.gradient.networks import module_of
from headstart.gradient.objectives import beside_of
from headstart.gradient.steps import Job

IMAGE = (3, 224, 224)
_MANY = 4  # samples of a visit that is counted: the work grows with them in proportion


@functools.lru_cache(maxsize=16)
def extractor_flops(network: str, shape: tuple[int, ...] = IMAGE) -> float:
    """F_φ: the forward pass of one sample, followed without computing it."""
    with torch.no_grad(), torch.device("meta"):
        module = module_of(network).eval()
        return counted(lambda: module(torch.empty((1, *shape))))


def head_flops(spec: Spec, shape: tuple[int, ...] = IMAGE) -> float:
    """F_ψ = dC; of random features D for d; of a dense network at every cell of an image."""
    stride = NETWORKS[spec.network].stride if spec.network else None
    cells = 1 if stride is None else math.prod(side // stride for side in shape[1:])
    return float(spec.dimension * spec.classes * cells)


def counted_flops(job: Job, samples: NDArray[Any], labels: NDArray[Any]) -> float:
    """A sample of one real visit to a client that holds these samples; labels count from 0.

    All passes of the algorithm with all their gradients, and the full one where it is asked for.
    """
    client = ClientData(ArraySamples(samples, labels), secret=b"")
    classes = torch.arange(job.spec.classes).numpy()
    params = initial(job.model, None, 0)
    server: dict[str, Any] = job.recipe.server.start({n: params[n] for n in job.names.steered})
    server["gradient"] = {name: 0 * params[name] for name in job.names.steered}
    state = {name: server[name] for name in job.recipe.broadcast_state}
    models = dict.fromkeys(beside_of(job.recipe.objective), params)
    arrays = steps.broadcast(job, params, state, classes, models)
    before = [steps.full_gradient(job, 0)] if job.recipe.needs_full_gradient else []
    return sum(
        counted(functools.partial(perform, step, client, arrays))
        for step in (*before, steps.update(job, 0))
    ) / len(labels)


def visit_flops(job: Job, shape: tuple[int, ...]) -> tuple[float, float]:
    """(a, m): torch counts a·n + m of one visit to a client with n samples of this shape.

    m is what is done once per visit: weighting what is sent.
    """
    slow = replace(job.training, rate=1e-6, batch=_MANY)  # the count does not depend on them
    return _visit(json.dumps(replace(job, training=slow).plain, sort_keys=True), shape)


@functools.lru_cache(maxsize=32)
def _visit(plain: str, shape: tuple[int, ...]) -> tuple[float, float]:
    job = Job.of(json.loads(plain))
    samples = np.random.default_rng(0).normal(size=(_MANY, *shape)).astype(np.float32)
    labels = np.arange(_MANY) % job.spec.classes
    if job.model.stride is not None:
        labels = np.zeros((_MANY, *shape[1:]), np.int64)
    half = _MANY // 2
    few, many = (n * counted_flops(job, samples[:n], labels[:n]) for n in (half, _MANY))
    each = (many - few) / half
    return each, many - _MANY * each


def _added(_: Any, left: tuple[int, ...], right: tuple[int, ...], **_how: Any) -> int:
    """Of a product added onto an array in place, which torch counts only where it makes one."""
    return 2 * math.prod(left) * right[-1]


def counted(work: Callable[[], Any]) -> float:
    """Multiply-adds of some work, done in this thread."""
    mapping = {torch.ops.aten.baddbmm_: _added}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        work()
    return counter.get_total_flops() / 2
