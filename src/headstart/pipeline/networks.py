"""Published weights of a network as the parameters of a model that trains."""

from __future__ import annotations

import numpy as np

from headstart.data.backbones.catalogue import NETWORKS
from headstart.errors import HeadstartError
from headstart.gradient.models import Spec, build
from headstart.gradient.networks import module_of
from headstart.pipeline.context import Params, PipelineContext


def published(network: str, weights: str | None) -> Params:
    """The published weights of a network, as parameters; none for one that has none."""
    architecture = NETWORKS[network]
    if architecture.weights is None:
        return {}
    # what a dense network has behind its backbone begins at random, always the same
    module = module_of(network) if architecture.stride else architecture.build()
    architecture.load(module, weights)
    shapes = build(Spec(1, architecture.dimension, network=network)).part("extractor")
    state = module.state_dict()
    return {
        name: state[name.removeprefix("extractor.")].numpy().astype(np.float32) for name in shapes
    }


def check_network(context: PipelineContext) -> None:
    """Statistics of batch norm that nobody has computed yet cannot stay as they are."""
    config = context.config
    model = build(Spec(1, context.dimension, config.network, batch_norm=config.batch_norm))
    random = config.network is not None and NETWORKS[config.network].weights is None
    if random and model.statistics and config.batch_norm == "frozen":
        raise HeadstartError(
            f"batch_norm: expected average or local for {config.network}, which begins at random, "
            "got frozen"
        )
