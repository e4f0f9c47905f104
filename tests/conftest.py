"""Fixtures shared by the whole suite: real features, and clients of every awkward size."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from headstart import registry
from headstart.report.drawing import Drawing
from headstart.testing.heads import make_clients as clients_of_sizes


@pytest.fixture(scope="session")
def digits():
    """8×8 digits: 64 features, the first pixel and others always zero."""
    data = load_digits()
    return data.data.astype(np.float64), data.target.astype(np.int64)


@pytest.fixture(autouse=True)
def short_pdfs(request, monkeypatch):
    """Fonts in PDF files take longer than most runs here; tests/report makes real ones."""
    if request.path.parent.name != "report":
        monkeypatch.setattr(Drawing, "pdf", b"%PDF of a test")


@pytest.fixture
def registered():
    """What a test registers or loads is forgotten after it."""
    before = [(one, dict(one._known())) for one in registry._REGISTRIES]
    plugins = dict(registry._PLUGINS)
    yield
    for name in set(registry._PLUGINS) - set(plugins):
        registry._unload(name)
    for one, entries in before:  # but what its own module has registered meanwhile stays
        now = one._known()
        one._entries = {key: old if old.thing else now[key] for key, old in entries.items()}


@pytest.fixture(scope="session")
def make_clients():
    """(features, labels) of clients with these sizes, drawn from Gaussian classes."""
    return clients_of_sizes
