"""DeepLabV3 on MobileNetV2 with 64 numbers per cell, for a CPU."""

from __future__ import annotations

from headstart.data.backbones.networks.deeplabv3 import DeepLabV3


def build(classes: int | None = None) -> DeepLabV3:
    return DeepLabV3(classes, head=64)
