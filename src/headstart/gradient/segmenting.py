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
    tensors, x = _tensors(model, params), model.inputs(images)
    if statistics == "batch":
        _check_batch(x)
    with torch.no_grad(), _normalizing(model, statistics == "batch"):
        cells = _run(model, tensors, x)
        scores = model.logits(tensors, cells.permute(0, 2, 3, 1).flatten(0, 2)[None])[0]
    maps = scores.reshape(len(x), *cells.shape[2:], -1).permute(0, 3, 1, 2)
    wanted = size or (x.shape[2], x.shape[3])
    found: NDArray[np.int64] = enlarged(maps, wanted).argmax(dim=1).numpy()
    return found


def with_measured_statistics(
    model: Model, params: Arrays, blocks: Iterable[NDArray[Any]]
) -> Arrays:
    """The same parameters with the statistics of these images, in one pass.

    Means and variances of blocks are put together, μ = Σnμ_b/Σn and v = Σn(v_b + μ_b²)/Σn − μ²;
    each block, of two images at least, is normalized by its own while it passes.
    """
    total: dict[str, Tensor] = {}
    count = 0
    tensors = _tensors(model, params)
    pairs = [name for name in model.statistics if name.endswith("running_mean")]
    with torch.no_grad(), _normalizing(model, True):
        for block in blocks:
            x = model.inputs(block)
            _check_batch(x)
            _run(model, tensors, x)
            for name in pairs:
                mean, variance = (tensors[one][0].double() for one in _pair(name))
                moments = torch.stack([mean, variance + mean**2]) * len(block)
                total[name] = total[name] + moments if name in total else moments
            count += len(block)
    if not count:
        raise DataError("images: expected at least one to measure statistics on, got none")
    measured = dict(params)
    for name, sums in total.items():
        mean, square = (sums / count).numpy()
        where_mean, where_variance = _pair(name)
        measured[where_mean] = mean.astype(np.float32)
        measured[where_variance] = np.maximum(square - mean**2, 0).astype(np.float32)
    return measured


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
