"""The learning rates of the papers, for who does not give one."""

from __future__ import annotations

from headstart.runs.world import Stage


def rate_of(stage: Stage, part: str) -> float:
    """0.1; a tenth of it after a closed-form head, and a tenth of that after OLL.

    A head that trains alone takes the last tenth in any case (FedCOF's linear probing, 0.001):
    at the temperature T of a closed-form head, a step on its logits is larger by 1/T².
    """
    if stage.head is None:
        return 0.1
    return 0.001 if part == "head" or stage.oll else 0.01
