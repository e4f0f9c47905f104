"""Headstart: federated learning in which a client speaks once.

Clients send small statistics of their features; the server adds them and solves, in closed form,
the classifier that pooled data would give, whatever the split.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Names are loaded when first used: `import headstart` stays light.
_WHERE = {
    "Fed3R": "heads.fed3r",
    "Fed3RRandomFeatures": "heads.random_features",
    "FedCOF": "heads.fedcof",
    "FedNCM": "heads.fedncm",
    "SharedVariances": "heads.shared_variances",
    "LDA": "heads.lda",
    "ETF": "heads.etf",
    "Orthonormal": "heads.orthonormal",
    "KernelRidge": "heads.krr",
    "LinearHead": "heads.linear",
    "RandomFeatures": "heads.features",
    "bandwidth_of": "heads.random_features",
    "Moments": "statistics.moments",
    "ClassSums": "statistics.class_sums",
    "ClientMeans": "statistics.client_means",
    "Tally": "statistics.tally",
    "Limits": "statistics.wire",
    "total": "statistics.base",
    "provenance": "heads.provenance",
    "Recipe": "gradient.recipe",
    "Term": "gradient.recipe",
    "Dataset": "data.datasets",
    "Partition": "data.partition",
    "register_head": "heads",
    "register_method": "gradient",
    "register_loss": "gradient.objectives",
    "register_network": "data.backbones.catalogue",
    "register_dataset": "data.datasets",
    "register_augmentation": "data.augment",
    "Augmentation": "data.augment.base",
    "register_partitioner": "data.partition",
    "register_step": "federation.protocol",
    "ClientData": "federation.protocol",
    "ArraySamples": "data.samples",
    "Step": "federation.protocol",
    "Simulator": "federation.simulator",
    "load_plugin": "registry",
    "Pipeline": "pipeline.pipeline",
    "InitHead": "pipeline.phases",
    "FineTune": "pipeline.phases",
    "PersonalizePartly": "pipeline.phases",
    "PersonalizeClosedForm": "pipeline.phases",
    "PersonalizeFully": "pipeline.phases",
    "run": "api",
    "compare": "api",
    "load_result": "api",
    "parse": "api",
    "RunResult": "results",
    "Comparison": "results",
    "HeadstartError": "errors",
    "DataError": "errors",
    "SolveError": "errors",
    "WireError": "errors",
    "DivergedError": "errors",
}
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headstart' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headstart.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
