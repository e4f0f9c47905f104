"""Nodes with images of their own, and the extractors that they name."""

from __future__ import annotations

import numpy as np
import pytest

from headstart import HeadstartError, LinearHead

from .fake_grid import FakeGrid, FakeNode, run_settings, served


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two nodes with images and an extractor, each in another place; and the server."""
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    onnx, image = pytest.importorskip("onnx"), pytest.importorskip("PIL.Image")
    kind, make = onnx.TensorProto.FLOAT, onnx.helper
    graph = make.make_graph(
        [
            make.make_node("AveragePool", ["x"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
            make.make_node("Flatten", ["p"], ["y"]),
        ],
        "pooled",
        [make.make_tensor_value_info("x", kind, ["n", 3, 8, 8])],
        [make.make_tensor_value_info("y", kind, ["n", 12])],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    rng = np.random.default_rng(0)
    for place in ("east", "west", "server"):
        (tmp_path / place).mkdir()
        onnx.save(model, str(tmp_path / place / f"{place}.onnx"))
        for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
            folder = tmp_path / place / "photos" / name
            folder.mkdir(parents=True)
            for i in range(8):
                pixels = np.array(colour) + rng.integers(-25, 25, (10, 10, 3))
                image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path


def test_nodes_with_images_and_a_server_that_tests_on_images(photos):
    nodes = [
        FakeNode(
            place,
            {
                "client": place,
                "data": str(photos / place / "photos"),
                "extractor": str(photos / place / f"{place}.onnx"),
                "folder": str(photos / place / "private"),
            },
            place.encode(),
        )
        for place in ("east", "west")
    ]
    told = run_settings(
        photos,
        dimension=12,
        bound=64.0,
        wanted=2,
        test_data=str(photos / "server" / "photos"),
        labels="text",
        extractor=str(photos / "server" / "server.onnx"),
    )
    results = served(FakeGrid(nodes), told)
    assert not results.failures
    assert results.data.samples == 32
    assert results.accuracy == 1.0
    about = LinearHead.load(photos / "out" / "model.safetensors").provenance["extractor"]
    assert about["name"] == told.extractor  # where `headstart predict` finds it
    for name in ("nodes.json", "contract.json"):  # where files are is their owners' own affair
        assert str(photos) not in (photos / "ledger" / name).read_text()


@pytest.mark.parametrize("name", [None, "", "../server/server.onnx", 3])
def test_a_clients_word_for_its_extractor_opens_no_file(photos, monkeypatch, unchecked, name):
    """Left out, or a path: what is opened is what the server's own settings name."""
    said = {"identity": "x"} if name is None else {"identity": "x", "name": name}
    monkeypatch.setattr("headstart.deploy.flower.samples._public", lambda extractor: said)
    config = {
        "client": "east",
        "data": str(photos / "east" / "photos"),
        "extractor": str(photos / "east" / "east.onnx"),
        "folder": str(photos / "east" / "private"),
    }
    told = run_settings(
        photos,
        dimension=12,
        bound=64.0,
        wanted=1,
        labels="text",
        test_data=str(photos / "server" / "photos"),
        extractor=str(photos / "server" / "server.onnx"),
    )
    with pytest.raises(HeadstartError, match=r"expected those of server.onnx .*\[extractor\]"):
        served(FakeGrid([FakeNode("east", config, b"east")]), told)
