"""A method of a user's own."""

import headstart as hs
from headstart.gradient.recipe import Average


@hs.register_method
def fed_half(factor: float = 0.5) -> hs.Recipe:
    """Half a step of FedAvg."""
    return hs.Recipe(server=Average(factor))
