"""EfficientNet-Lite1 (Tan and Le 2019): Lite0, 1.1 times as deep."""

from __future__ import annotations

from headstart.data.backbones.networks.efficientnet_lite import EfficientNetLite


def build() -> EfficientNetLite:
    """Return the torch module with random weights."""
    return EfficientNetLite(depth=1.1)
