"""A folder of small images, and blocks of few rows."""

import pytest

from headstart.data import features
from headstart.data.images import load_images


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, tmp_path):
    monkeypatch.setattr(features, "BLOCK", 8)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "default"))


@pytest.fixture
def root(tmp_path):
    from .fakes import folder  # needs Pillow: its tests are left out without it

    return folder(tmp_path / "images")


@pytest.fixture
def images(root):
    return load_images(root)
