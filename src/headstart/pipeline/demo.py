"""The demo: digits over 50 very unlike clients, every closed-form head, and the pooled ridge.

Nothing is tuned on test data: λ comes from the sums (GCV), the bandwidth from the spread of the
samples, the temperature from the training loss; γ of FedCOF is the paper's.
"""

from __future__ import annotations

import numpy as np

from headstart.pipeline.config import RunConfig, make_config
from headstart.pipeline.experiment import Experiment

PIPELINES = (
    "Fed3R(ridge=gcv)",
    "Fed3R-RF(bandwidth=auto, dimension=500, ridge=gcv)",
    "FedNCM",
    "FedCOF",
    "LDA",
)


def demo_config(clients: int = 50, alpha: float = 0.1, seed: int = 0) -> RunConfig:
    """Return the demo's configuration: digits over Dirichlet(α) clients."""
    return make_config(
        {
            "data": "digits",
            "partition": {"name": "dirichlet", "clients": clients, "alpha": alpha},
            "held_out": 0.3,
            "seed": seed,
        }
    )


def pooled_ridge(experiment: Experiment, ridge: float) -> float:
    """The accuracy of scikit-learn's ridge on all training samples, normalized as Fed3R's."""
    from sklearn.linear_model import Ridge

    z, y = experiment.pooled()
    classes, of = np.unique(y, return_inverse=True)
    fitted = Ridge(alpha=ridge, fit_intercept=False).fit(z, np.eye(len(classes))[of])
    weights = fitted.coef_ / np.linalg.norm(fitted.coef_, axis=1, keepdims=True)
    features, labels = experiment.test.read()
    guess = classes[np.argmax(features @ weights.T, axis=1)]
    return float(np.mean(guess == labels))
