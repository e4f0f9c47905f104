"""BiSeNetV2 (Yu et al. 2021), FedDrive's network: details at stride 8, semantics at stride 32.

Two forms of its last layer are public: a 1×1 convolution to the classes, then a bilinear
enlargement (ours: ψ is a C×head matrix, like every head), or a 1×1 convolution to 64 numbers per
class, then a pixel shuffle (`shuffle`, with which the published numbers of parameters were
counted). The auxiliary heads have the same form, and take part in training only.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.data.backbones.networks.dense import check_sides, conv_norm, enlarged, start

STRIDE = 8  # of the cells
_EXPANSION = 6


def build(
    classes: int | None = None, width: float = 1.0, head: int = 1024, shuffle: bool = False
) -> BiSeNetV2:
    return BiSeNetV2(classes, width, head, shuffle)


class BiSeNetV2(nn.Module):
    """`width`: by what the channels are multiplied; `head`: numbers per cell that φ gives.

    Without `classes` it is φ alone: no last layer, and no auxiliary heads.
    """

    def __init__(
        self,
        classes: int | None = None,
        width: float = 1.0,
        head: int = 1024,
        shuffle: bool = False,
    ) -> None:
        super().__init__()
        w16, w32, w64, w128 = (max(1, round(channels * width)) for channels in (16, 32, 64, 128))
        self.detail = _detail(w64, w128)
        self.stem = Stem(w16)
        self.semantic = nn.ModuleList(
            [_stage(w16, w32, 1), _stage(w32, w64, 1), _stage(w64, w128, 3)]
        )
        self.context = Context(w128)
        self.aggregation = Aggregation(w128)
        self.neck = nn.Sequential(conv_norm(w128, head), nn.Dropout(0.1))
        self.classifier: nn.Module = nn.Identity()
        self.auxiliary = nn.ModuleList()
        if classes is not None:
            self.classifier = _last(head, classes, STRIDE, shuffle)
            for stride, channels in zip((4, 8, 16, 32), (w16, w32, w64, w128), strict=True):
                last = _last(w128, classes, stride, shuffle)
                self.auxiliary.append(
                    nn.Sequential(conv_norm(channels, w128), nn.Dropout(0.1), last)
                )
        start(self)
        for layer in self.modules():
            if isinstance(layer, (GatherExpand, GatherExpandHalf)):
                nn.init.zeros_(layer.last.weight)  # a residual begins as nothing

    def forward(self, x: Tensor, auxiliary: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """φ, n×head×h/8×w/8; with `auxiliary` also the auxiliary heads' scores, of cells."""
        check_sides(x)
        stages = list(self._stages(x))
        cells: Tensor = self.neck(self.aggregation(self.detail(x), self.context(stages[-1])))
        if not auxiliary:
            return cells
        pairs = zip(self.auxiliary, stages, strict=True)
        return cells, [head(stage) for head, stage in pairs]

    def _stages(self, x: Tensor) -> Iterator[Tensor]:
        """The semantic branch at strides 4, 8, 16 and 32."""
        x = self.stem(x)
        yield x
        for stage in self.semantic:
            x = stage(x)
            yield x

    def logits(self, x: Tensor) -> Tensor:
        """Scores of pixels, n×C×h×w."""
        cells = self(x)
        return enlarged(self.classifier(cells), (x.shape[2], x.shape[3]))


class Stem(nn.Module):
    """To stride 4 by two ways, convolutions and a maximum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = max(1, channels // 2)
        self.first = conv_norm(3, channels, 3, 2)
        self.left = nn.Sequential(conv_norm(channels, half, 1), conv_norm(half, channels, 3, 2))
        self.fuse = conv_norm(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        both = torch.cat([self.left(x), F.max_pool2d(x, 3, 2, 1)], dim=1)
        fused: Tensor = self.fuse(both)
        return fused


class GatherExpand(nn.Module):
    """relu(x + F(x)): gather by 3×3, expand each channel to six, project."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = channels * _EXPANSION
        self.gather = conv_norm(channels, channels)
        self.expand = conv_norm(channels, wide, groups=channels)
        self.project = nn.Conv2d(wide, channels, 1, bias=False)
        self.last = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.last(self.project(self.expand(self.gather(x)))))


class GatherExpandHalf(nn.Module):
    """The same at stride 2: two depthwise convolutions, and a depthwise one in the shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        wide = inputs * _EXPANSION
        self.gather = conv_norm(inputs, inputs)
        self.expand = nn.Sequential(
            conv_norm(inputs, wide, 3, 2, groups=inputs, relu=False),
            conv_norm(wide, wide, groups=wide),
        )
        self.project = nn.Conv2d(wide, outputs, 1, bias=False)
        self.last = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential(
            conv_norm(inputs, inputs, 3, 2, groups=inputs, relu=False),
            conv_norm(inputs, outputs, 1, relu=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.project(self.expand(self.gather(x))))
        return F.relu(y + self.shortcut(x))


class Context(nn.Module):
    """The mean of the whole image, added to every cell."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.mix = conv_norm(channels, channels, 1)
        self.last = conv_norm(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        whole = self.mix(self.norm(x.mean(dim=(2, 3), keepdim=True)))
        mixed: Tensor = self.last(whole + x)
        return mixed


class Aggregation(nn.Module):
    """Each branch gates the other, at its own stride."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        same = (channels, channels)
        self.left1 = _separable(channels)
        self.left2 = nn.Sequential(conv_norm(*same, 3, 2, relu=False), nn.AvgPool2d(3, 2, 1))
        self.right1 = conv_norm(*same, relu=False)
        self.right2 = _separable(channels)
        self.last = conv_norm(*same)

    def forward(self, detail: Tensor, semantic: Tensor) -> Tensor:
        size = (detail.shape[2], detail.shape[3])
        fine = self.left1(detail) * torch.sigmoid(enlarged(self.right1(semantic), size))
        coarse = self.left2(detail) * torch.sigmoid(self.right2(semantic))
        both: Tensor = self.last(fine + enlarged(coarse, size))
        return both


def _separable(channels: int) -> nn.Sequential:
    return nn.Sequential(
        conv_norm(channels, channels, groups=channels, relu=False),
        nn.Conv2d(channels, channels, 1, bias=False),
    )


def _detail(narrow: int, wide: int) -> nn.Sequential:
    """Eight convolutions, to stride 8."""
    groups = ((3, narrow, 2), (narrow, narrow, 3), (narrow, wide, 3))
    layers = []
    for inputs, outputs, count in groups:
        layers.append(conv_norm(inputs, outputs, 3, 2))
        layers += [conv_norm(outputs, outputs) for _ in range(count - 1)]
    return nn.Sequential(*layers)


def _stage(inputs: int, outputs: int, more: int) -> nn.Sequential:
    return nn.Sequential(
        GatherExpandHalf(inputs, outputs), *(GatherExpand(outputs) for _ in range(more))
    )


def _last(inputs: int, classes: int, stride: int, shuffle: bool) -> nn.Module:
    """From features to the scores of C classes, of cells or (shuffled) of pixels."""
    if not shuffle:
        return nn.Conv2d(inputs, classes, 1)
    return nn.Sequential(nn.Conv2d(inputs, classes * stride**2, 1), nn.PixelShuffle(stride))
