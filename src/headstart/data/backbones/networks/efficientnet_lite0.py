"""EfficientNet-Lite0 (Tan and Le 2019): the stages of B0."""

from __future__ import annotations

from headstart.data.backbones.networks.efficientnet_lite import EfficientNetLite


def build() -> EfficientNetLite:
    """Return the torch module with random weights."""
    return EfficientNetLite()
