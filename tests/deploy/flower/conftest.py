"""Digits at five clients, and a node for each."""

from __future__ import annotations

import pytest

from headstart.deploy import agreement
from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare

from .fake_grid import nodes_of


@pytest.fixture(scope="session")
def experiment():
    """Digits at five clients, each with a part of its own to test on."""
    return prepare(
        make_config(
            {
                "data": "digits",
                "bound": 1.0,
                "held_out": 0.3,
                "cohort": 3,
                "partition": {"name": "dirichlet", "clients": 5, "alpha": 1.0},
            }
        )
    )


@pytest.fixture
def unchecked(monkeypatch):
    """Nodes that do not hold themselves to what was agreed: liars."""
    monkeypatch.setattr(agreement, "hold", lambda *about: None)


@pytest.fixture
def nodes(experiment, tmp_path):
    return nodes_of(experiment.clients, tmp_path)
