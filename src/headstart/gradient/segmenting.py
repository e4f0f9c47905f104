"""Masks from a dense model, and the statistics of batch norm that it is tested with.

A model whose statistics stay with clients (SiloBN) has none of its own to be tested with. It takes
those of the test images themselves: of each batch ("batch", as FedDrive's program does it), or of
all (`with_measured_statistics`, then "own"), which does not depend on what else is in a batch;
or, where a test image comes from a client's domain, that client's own, measured on its training
images in the same way with the final model: running statistics of few steps lag behind the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from headstart.data.backbones.networks.dense import enlarged
from headstart.errors import DataError, HeadstartError
from headstart.gradient.models import Arrays, Model

Statistics = Literal["own", "batch"]


def predicted_masks(
    model: Model,
    params: Arrays,
    images: NDArray[Any],
    size: tuple[int, int] | None = None,
    statistics: Statistics = "own",
) -> NDArray[np.int64]:
    """The place of the highest score of each pixel, n×H×W: scores enlarged to `size`, never a mask
    made smaller. `statistics`: the model's own, or those of this batch."""
    wanted = size or (images.shape[2], images.shape[3])
    return highest(cell_scores(model, params, images, statistics), wanted)


def highest(scores: Tensor, size: tuple[int, int]) -> NDArray[np.int64]:
    """The place of the highest of n×C×h×w scores at every pixel, n×H×W."""
    # torch's argmax takes ten times as long over an axis that is not the last
    found: NDArray[np.int64] = enlarged(scores, size).max(dim=1).indices.numpy()
    return found


def cell_scores(
    model: Model, params: Arrays, images: NDArray[Any], statistics: Statistics = "own"
) -> Tensor:
    """Scores of the cells of images, n×C×h×w."""
    tensors, x = _tensors(model, params), model.inputs(images)
    if statistics == "batch":
        _check_batch(x)
    with torch.no_grad(), _normalizing(model, statistics == "batch"):
        cells = _run(model, tensors, x)
        scores = model.logits(tensors, cells.permute(0, 2, 3, 1).flatten(0, 2)[None])[0]
    return scores.reshape(len(x), *cells.shape[2:], -1).permute(0, 3, 1, 2)


def with_measured_statistics(
    model: Model, params: Arrays, blocks: Iterable[NDArray[Any]]
) -> Arrays:
    """The same parameters with the statistics of these images, in one pass."""
    return with_statistics(model, params, *measured_sums(model, params, blocks))


def measured_sums(
    model: Model, params: Arrays, blocks: Iterable[NDArray[Any]]
) -> tuple[NDArray[np.float64], int]:
    """Σn·μ_b and Σn·(v_b + μ_b²) of every batch norm in one row, and Σn: sums, so clients' add.

    Each block, of two images at least, is normalized by its own statistics while it passes.
    """
    names = _means(model)
    total = np.zeros(2 * sum(model.statistics[name][0] for name in names))
    count = 0
    tensors = _tensors(model, params)
    with torch.no_grad(), _normalizing(model, True):
        for block in blocks:
            x = model.inputs(block)
            _check_batch(x)
            _run(model, tensors, x)
            parts = []
            for name in names:
                mean, variance = (tensors[one][0].double() for one in _pair(name))
                parts += [mean, variance + mean**2]
            total += len(block) * torch.cat(parts).numpy()
            count += len(block)
    return total, count


def with_statistics(
    model: Model, params: Arrays, sums: NDArray[np.float64], count: float
) -> Arrays:
    """The parameters with μ = Σnμ_b/Σn and v = Σn(v_b + μ_b²)/Σn − μ² of `measured_sums`."""
    if not count:
        raise DataError("images: expected at least one to measure statistics on, got none")
    measured, rest = dict(params), sums / count
    for name in _means(model):
        size = model.statistics[name][0]
        mean, square, rest = rest[:size], rest[size : 2 * size], rest[2 * size :]
        where_mean, where_variance = _pair(name)
        measured[where_mean] = mean.astype(np.float32)
        measured[where_variance] = np.maximum(square - mean**2, 0).astype(np.float32)
    return measured


def _means(model: Model) -> list[str]:
    """The running mean of each batch norm."""
    return [name for name in model.statistics if name.endswith("running_mean")]


def _check_batch(x: Tensor) -> None:
    if len(x) < 2:
        raise DataError(f"images: expected at least two, for statistics of their own, got {len(x)}")


def _pair(name: str) -> tuple[str, str]:
    return name, name.removesuffix("running_mean") + "running_var"


def _tensors(model: Model, params: Arrays) -> dict[str, Tensor]:
    if model.stride is None:
        raise HeadstartError(f"network: expected a dense network, got {model.spec.network}")
    return {name: torch.from_numpy(np.array(params[name]))[None] for name in model.shapes}


def _run(model: Model, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """φ(x), b×d×h×w, in the mode that the network is in."""
    cells: Tensor = model.call(params, x)
    return cells


@contextmanager
def _normalizing(model: Model, by_batch: bool) -> Iterator[None]:
    """Batch norm by the batch (which then is its statistics), nothing else as in training."""
    assert model.module is not None
    model.module.eval()
    norms = [part for part in model.module.modules() if isinstance(part, nn.BatchNorm2d)]
    before = [norm.momentum for norm in norms]
    try:
        for norm in norms if by_batch else ():
            norm.train()
            norm.momentum = 1.0
        yield
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.eval()
