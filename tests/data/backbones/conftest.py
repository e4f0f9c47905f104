"""One exported MobileNetV2 for the whole suite, and a little PACS."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from headstart.data.backbones import extractor


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Torch's threads spin while they wait for a busy core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def export_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("extractors")


@pytest.fixture(scope="session")
def mobilenet(export_cache):
    """By onnxruntime, in batches of four, on the published weights."""
    return extractor("mobilenet_v2", batch=4, threads=2, cache=export_cache)


@pytest.fixture(scope="session")
def images():
    """Six inputs of the size MobileNetV2 expects."""
    return np.random.default_rng(0).normal(size=(6, 3, 224, 224)).astype(np.float32)


@pytest.fixture(scope="session")
def photos():
    """class ↦ the first eight photographs of that class in PACS."""
    path = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "pacs" / "pacs_160.zip"
    if not path.exists():
        pytest.skip("pacs_160.zip not found: set HEADSTART_DATA")
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in ("dog", "elephant", "guitar"):
            members = [n for n in archive.namelist() if n.startswith(f"PACS/photo/{name}/")]
            found[name] = [Image.open(io.BytesIO(archive.read(n))) for n in sorted(members)[:8]]
    return found
