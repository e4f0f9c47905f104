"""BiSeNetV2 at a quarter of its width, for a CPU."""

from __future__ import annotations

from headstart.data.backbones.networks.bisenetv2 import BiSeNetV2


def build(classes: int | None = None) -> BiSeNetV2:
    return BiSeNetV2(classes, width=0.25, head=128)
