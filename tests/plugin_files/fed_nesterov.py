from dataclasses import dataclass

import headstart as hs


@dataclass(frozen=True)
class Nesterov:
    """v ← βv + mean δ, θ ← θ + βv + mean δ."""

    momentum: float

    def start(self, params):
        return {"velocity": {name: 0 * array for name, array in params.items()}}

    def step(self, params, state, sums):
        beta, mean = self.momentum, sums.mean
        velocity = {name: beta * v + mean[name] for name, v in state["velocity"].items()}
        after = {name: p + beta * velocity[name] + mean[name] for name, p in params.items()}
        return after, {"velocity": velocity}


@hs.register_method
def fed_nesterov(momentum: float = 0.9) -> hs.Recipe:
    """FedAvg with Nesterov's momentum on the server."""
    if not 0 <= momentum < 1:
        raise hs.HeadstartError(f"momentum: expected a number from 0 to below 1, got {momentum!r}")
    return hs.Recipe(server=Nesterov(momentum))
