"""EfficientNet-Lite2 (Tan and Le 2019): Lite0, 1.1 times as wide and 1.2 times as deep."""

from __future__ import annotations

from headstart.data.backbones.networks.efficientnet_lite import EfficientNetLite


def build() -> EfficientNetLite:
    """Return the torch module with random weights."""
    return EfficientNetLite(width=1.1, depth=1.2, dropout=0.3)
