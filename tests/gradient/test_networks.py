"""The networks that train are those of their papers, and all of their parameters take part."""

import numpy as np
import pytest
import torch

from headstart.data.backbones.catalogue import NETWORKS
from headstart.gradient import networks
from headstart.gradient.engine import Training
from headstart.gradient.flops import extractor_flops
from headstart.gradient.loop import Plan
from headstart.gradient.models import Spec, initial
from headstart.gradient.steps import Job
from headstart.testing.federations import (
    images,
    run,
)

from .helpers import OWN

ANY_SIZE = [
    n for n, known in NETWORKS.items() if known.any_size and not known.stride and n not in OWN
]


@pytest.mark.parametrize("name", ANY_SIZE)
def test_every_parameter_of_an_extractor_takes_part(name):
    """A published network brings its own classifier, which is no part of φ."""
    module = networks.module_of(name).eval()
    found = module(torch.rand(1, 3, 32, 32))
    assert found.shape == (1, NETWORKS[name].dimension)
    torch.autograd.grad(found.sum(), list(module.parameters()))  # refuses an unused one


@pytest.mark.parametrize(
    ("name", "parameters", "millions"),
    [
        # convolutions (9·in·out) and biases; each channel (9) and point by point, twice a norm; …
        ("vgg11", 9_220_480, 152.8),
        ("mobilenet", 3_206_976, 46.3),
        ("resnet18_32", 11_168_832, 555.4),
    ],
)
def test_our_networks_are_those_of_their_papers(name, parameters, millions):
    """Known sizes without the classifier, and multiply-adds at 32 pixels."""
    module = networks.module_of(name)
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert extractor_flops(name, (3, 32, 32)) / 1e6 == pytest.approx(millions, rel=1e-3)


@pytest.mark.parametrize("name", [n for n, network in NETWORKS.items() if not network.any_size])
def test_nor_is_there_a_classifier_where_images_must_be_large(name):
    with torch.device("meta"):
        module = networks.module_of(name)
        published = NETWORKS[name].build()
    assert any(1000 in parameter.shape for parameter in published.parameters())
    assert not any(1000 in parameter.shape for parameter in module.parameters())


def test_a_published_network_trains_and_sees_normalized_images():
    spec = Spec(2, 1280, network="mobilenet_v2", batch_norm="local")
    job = Job("fedavg", spec, Training(rate=0.01, batch=2), "model")
    data = images((3,), side=32, classes=2)
    start = initial(job.model, None, 5)
    state, memories = run(job, data, Plan(rounds=1, clients=1))
    learned = [n for n in start if n not in job.model.statistics]
    assert all(not np.array_equal(start[n], state.params[n]) for n in learned)
    assert all(np.array_equal(start[n], state.params[n]) for n in job.model.statistics)
    assert len(memories["c00"]["personal"]) == sum(start[n].size for n in job.model.statistics)
    usual = NETWORKS["mobilenet_v2"].preprocess
    x = data["c00"].samples.features.transpose(0, 2, 3, 1)
    x = (x / 255.0 - usual.mean) / usual.std
    module = networks.module_of("mobilenet_v2").eval()
    expected = module(torch.from_numpy(x.transpose(0, 3, 1, 2)).float())
    tensors = {name: torch.from_numpy(array)[None] for name, array in start.items()}
    found = job.model.features(tensors, job.model.inputs(data["c00"].samples.features)[None])
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)
