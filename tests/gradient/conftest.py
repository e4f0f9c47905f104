"""Networks of a few parameters, known by name as the real ones are; one thread, as all is small."""

import pytest
import torch

from headstart.gradient import models

from .helpers import own_modules


@pytest.fixture(autouse=True)
def small_networks(monkeypatch):
    monkeypatch.setattr(models, "module_of", own_modules(models.module_of))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
