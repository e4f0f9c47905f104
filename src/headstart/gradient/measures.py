"""What a diagnosis of local training measures (FedDr+, figures 2 to 6), by name.

    alignment   cos(f(x; θ_k), v_y) of a client's model after it has trained
    gap         that less the received model's
    distance    ‖f(x; θ_k) − f(x; θᵗ)‖, and the angle between the two in degrees

apart for the classes that a client observes and those it does not; the mean of a client's samples,
then over the clients of a round.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

KINDS = ("observed", "unobserved")
MEASURES = ("alignment", "gap", "distance", "angle")
NAMES = tuple(f"{kind}_{measure}" for kind in KINDS for measure in MEASURES)
NUMBERS = len(KINDS) * (1 + len(MEASURES))


def told_of(numbers: NDArray[np.float64]) -> dict[str, float]:
    """The means over clients, by name; a kind of class that no client had is left out."""
    table = numbers.reshape(len(KINDS), -1)
    return {
        f"{kind}_{measure}": float(value / row[0])
        for kind, row in zip(KINDS, table, strict=True)
        if row[0]
        for measure, value in zip(MEASURES, row[1:], strict=True)
    }
