"""Digits at simulated clients, and plans of their privacy."""

import numpy as np
from sklearn.datasets import load_digits

import headstart as hs
from headstart.data.samples import ArraySamples
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.privacy.budget import Budget
from headstart.privacy.differential import Private
from headstart.privacy.masked import Masked
from headstart.privacy.plan import PrivacyPlan

from .parties import entropy

X, Y = (np.asarray(part) for part in load_digits(return_X_y=True))
TRUSTS, UNITS = ("server", "secure-sum", "client"), ("sample", "client")


FED3R = steps.measure(hs.Fed3R(), exact=True)


NCM = steps.measure(hs.FedNCM(), exact=True)


def simulator(clients=6, samples=1200):
    parts = np.array_split(np.arange(samples), clients)
    return Simulator(
        {f"c{k}": ClientData(ArraySamples(X[own], Y[own])) for k, own in enumerate(parts)}
    )


def planned(epsilon=4.0, delta=1e-5, **how):
    return PrivacyPlan(epsilon, delta, range(10), 1200, **how)


def private(trust="server", clients=6, seeded=None, budget=None, **how):
    inner = simulator(clients)
    inner = Masked(inner, clients, range(10)) if trust == "secure-sum" else inner
    plan = planned(trust=trust, **how)
    more = {"entropy": entropy(seeded)} if seeded else {}
    return Private(inner, plan, budget or Budget(plan.mu), **more)
