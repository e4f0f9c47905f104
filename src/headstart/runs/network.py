"""What a pipeline asks of a network that trains on images: torch's half of `world`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones.catalogue import NETWORKS
from headstart.data.backbones.weights import load_into
from headstart.errors import HeadstartError
from headstart.gradient.follow import features_of
from headstart.gradient.home import predicted
from headstart.gradient.job import Spec, dimension_of
from headstart.gradient.models import build, initial
from headstart.gradient.steps import tensors
from headstart.runs.config import RunConfig
from headstart.runs.federate import Prepared, lattice_bound
from headstart.runs.inputs import Progress
from headstart.runs.world import Params, Stage


def check_statistics(spec: Spec, config: RunConfig) -> None:
    """Statistics of batch norm that nobody has computed yet cannot stay as they are."""
    if config.network not in NETWORKS and build(spec).statistics and config.batch_norm == "frozen":
        raise HeadstartError(
            f"batch_norm: expected average or local for {config.network}, which begins at random, "
            "got frozen"
        )


def first_params(spec: Spec, config: RunConfig) -> Params:
    """A random model, or one whose extractor has the published weights, if there are any."""
    params: Params = dict(initial(build(spec), None, config.seed))
    return params if config.network is None else {**params, **_published(config)}


def _published(config: RunConfig) -> Params:
    name = config.network or ""
    if name not in NETWORKS:
        return {}
    module = NETWORKS[name].build()
    load_into(module, NETWORKS[name].weights.find(config.weights))
    shapes = build(Spec(1, dimension_of(name), network=name)).part("extractor")
    state = module.state_dict()
    return {
        name: state[name.removeprefix("extractor.")].numpy().astype(np.float32) for name in shapes
    }


def through(prepared: Prepared, spec: Spec, params: Params, progress: Progress) -> Prepared:
    """The federation as closed forms see it: each client's samples through the extractor."""
    model = build(spec)
    clients = {}
    for done, (name, client) in enumerate(prepared.simulator.data.items(), 1):
        own = client.test_features
        clients[name] = replace(
            client,
            features=features_of(model, params, client.features),
            test_features=None if own is None else features_of(model, params, own),
        )
        progress("features", done, len(prepared.simulator.clients))
    test = replace(prepared.test, features=features_of(model, params, prepared.test.features))
    bound = lattice_bound(prepared.config, test, 2.0**10)
    return replace(
        prepared,
        test=test,
        config=prepared.config.model_copy(update={"bound": bound}),
        simulator=replace(prepared.simulator, data=clients),
    )


def positions(stage: Stage, samples: NDArray[Any]) -> NDArray[np.int64]:
    """Where the class that the model gives each sample stands among its classes."""
    return predicted(stage.plain, tensors(stage.params), samples)
