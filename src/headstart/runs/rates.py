"""The learning rates of the papers, for who does not give one."""

from __future__ import annotations

from headstart.gradient.recipe import Recipe
from headstart.runs.world import Stage

_FEDAVG = Recipe()


def rate_of(stage: Stage, part: str, recipe: Recipe = _FEDAVG) -> float:
    """The method's own (0.1); a tenth after a closed-form head, and a tenth of that after OLL.

    A head that trains alone takes the last tenth in any case (FedCOF's linear probing, 0.001):
    at the temperature T of a closed-form head, a step on its logits is larger by 1/T². A frame
    (ETF) knows nothing of the features: what trains towards it begins anew.
    """
    if stage.head is None or stage.blind:
        return recipe.rate
    return recipe.rate * (0.01 if part == "head" or stage.oll else 0.1)
