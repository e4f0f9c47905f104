"""A new ledger."""

import pytest

from headstart.deploy.ledger import Ledger

from .ledger_world import contract_of


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "ledger", contract_of()) as one:
        yield one
