"""Digits at twelve clients, and pictures whose colour is their class."""

from __future__ import annotations

import pytest

from headstart.pipeline.config import make_config
from headstart.pipeline.experiment import prepare

from .helpers import DIGITS, painted


@pytest.fixture(scope="module")
def digits():
    return prepare(make_config(DIGITS))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return prepare(make_config(painted(tmp_path_factory.mktemp("pictures"))))
