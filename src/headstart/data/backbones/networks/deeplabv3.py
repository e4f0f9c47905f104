"""DeepLabV3 (Chen et al. 2017) on MobileNetV2, the network of LADD.

Atrous convolutions look at the 1,280 channels of MobileNetV2's last layer at three rates, beside
each cell alone and the mean of the image. The output stride is 16 by dilation, or 8, or 32 without
any, which is how LADD's authors ran it. Rates are those of the paper at 16 and 8, and LADD's at 32.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from headstart.data.backbones.networks.dense import check_sides, conv_norm, enlarged, start
from headstart.data.backbones.networks.mobilenet_v2 import MobileNetV2
from headstart.data.backbones.weights import load_into
from headstart.errors import DataError

RATES = {8: (12, 24, 36), 16: (6, 12, 18), 32: (12, 24, 36)}  # by output stride


def build(classes: int | None = None, stride: int = 16, head: int = 256) -> DeepLabV3:
    return DeepLabV3(classes, stride, head)


class DeepLabV3(nn.Module):
    """`stride`: of the cells; `head`: numbers per cell that φ gives.

    Without `classes` it is φ alone.
    """

    def __init__(self, classes: int | None = None, stride: int = 16, head: int = 256) -> None:
        super().__init__()
        if stride not in RATES:
            raise DataError(f"stride: expected 8, 16 or 32, got {stride!r}")
        self.backbone = MobileNetV2().features
        _dilate(self.backbone, stride)
        self.pyramid = Pyramid(1280, head, RATES[stride])
        self.neck = conv_norm(head, head)
        self.classifier: nn.Module = nn.Identity()
        if classes is not None:
            self.classifier = nn.Conv2d(head, classes, 1)
        for part in (self.pyramid, self.neck, self.classifier):
            start(part)

    def forward(self, x: Tensor) -> Tensor:
        """φ, n×head×h/stride×w/stride."""
        check_sides(x)
        cells: Tensor = self.neck(self.pyramid(self.backbone(x)))
        return cells

    def logits(self, x: Tensor) -> Tensor:
        """Scores of pixels, n×C×h×w."""
        return enlarged(self.classifier(self(x)), (x.shape[2], x.shape[3]))

    def load_backbone(self, path: Path) -> None:
        """The published weights of MobileNetV2; what comes after it stays as it is."""
        whole = MobileNetV2()
        load_into(whole, path)
        self.backbone.load_state_dict(whole.features.state_dict())


class Pyramid(nn.Module):
    """Each cell alone, its surroundings at three distances, and the mean of the image."""

    def __init__(self, inputs: int, outputs: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        around = [conv_norm(inputs, outputs, dilation=rate) for rate in rates]
        self.cells = nn.ModuleList([conv_norm(inputs, outputs, 1), *around])
        self.whole = conv_norm(inputs, outputs, 1)
        self.project = nn.Sequential(
            conv_norm((len(rates) + 2) * outputs, outputs, 1), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        views = [look(x) for look in self.cells]
        mean = self.whole(x.mean(dim=(2, 3), keepdim=True))
        joined = torch.cat([*views, mean.expand_as(views[0])], dim=1)
        projected: Tensor = self.project(joined)
        return projected


def _dilate(layers: nn.Module, stride: int) -> None:
    """Beyond the output stride a convolution does not stride; those behind it reach as far."""
    reached, reach = 1, 1
    for conv in layers.modules():
        if not isinstance(conv, nn.Conv2d):
            continue
        here = reach
        if conv.stride[0] == 2:
            if reached < stride:
                reached *= 2
            else:
                conv.stride = (1, 1)
                reach *= 2
        if conv.kernel_size[0] == 3:  # the one that does not stride any more sees what it saw
            conv.dilation, conv.padding = (here, here), (here, here)
