"""A network's stages on one grid: one row of features for every cell of 8×8 pixels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STRIDE = 8
BOUND = 128.0  # what no photograph gives is cut there, for sums on a lattice


class SideBySide(nn.Module):
    """(n, 3, H, W) ↦ (n, H/8, W/8, d): finer stages are averaged, coarser ones enlarged."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        grid = (x.shape[2] // STRIDE, x.shape[3] // STRIDE)
        found = [_on(grid, stage) for stage in self.network.stages(x)]
        return torch.cat(found, 1).clamp(-BOUND, BOUND).permute(0, 2, 3, 1).contiguous()


def _on(grid: tuple[int, int], stage: Tensor) -> Tensor:
    rows, columns = stage.shape[2:]
    if (rows, columns) == grid:
        return stage
    if rows > grid[0]:
        return F.avg_pool2d(stage, (rows // grid[0], columns // grid[1]))
    return F.interpolate(stage, size=grid, mode="bilinear", align_corners=False)
