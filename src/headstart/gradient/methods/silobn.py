"""SiloBN (Andreux et al. 2020): FedAvg whose statistics of batch norm stay with each client.

γ and β are shared like all weights. Training never uses running statistics (but in a batch of
one image, which has none of its own), so that the learned parameters are those of FedAvg, bit for
bit; what differs is what a test normalizes with.
"""

from __future__ import annotations

from headstart.gradient.recipe import Average, Recipe


def silobn(server_rate: float = 1.0) -> Recipe:
    return Recipe(server=Average(server_rate), batch_norm="local")
