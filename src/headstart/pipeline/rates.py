"""The learning rates of the papers, for who does not give one."""

from __future__ import annotations

from headstart.pipeline.context import ModelState


def rate_scale(state: ModelState, part: str) -> float:
    """By what a method's own rates (0.1) are multiplied: 0.1 after a closed-form head, 0.1 by OLL.

    A head that trains alone after a closed form takes the second tenth in any case (FedCOF's linear
    probing, 0.001): at the temperature T of a closed-form head, a step on its logits is larger by
    1/T². A frame (ETF) knows nothing of the features: what trains towards it begins anew.
    """
    if state.method is None or state.data_free:
        return 0.1 if state.oll else 1.0
    return 0.01 if part == "head" or state.oll else 0.1
