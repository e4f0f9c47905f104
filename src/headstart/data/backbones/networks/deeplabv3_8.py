"""DeepLabV3 on MobileNetV2 at output stride 8: finer, and thrice the work."""

from __future__ import annotations

from headstart.data.backbones.networks.deeplabv3 import DeepLabV3


def build(classes: int | None = None) -> DeepLabV3:
    return DeepLabV3(classes, stride=8)
