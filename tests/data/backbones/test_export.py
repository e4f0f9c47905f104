"""One ONNX file: extractor and head together, or either alone, with the same answers."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest

from headstart.data.backbones import Preprocess, from_callable, from_onnx
from headstart.errors import DataError
from headstart.export import export_extractor, export_head, export_onnx
from headstart.heads.features import RandomFeatures
from headstart.heads.linear import LinearHead

RNG = np.random.default_rng(0)


def make_head(d, feature_map=None, classes=("ant", "bee", "cat", "dog")):
    width = feature_map.dimension if feature_map else d
    weights = RNG.normal(size=(len(classes), width))
    return LinearHead(weights, RNG.normal(size=len(classes)), np.array(classes), feature_map)


def run_file(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_outputs()]
    (entry,) = session.get_inputs()
    metadata = session.get_modelmeta().custom_metadata_map
    return dict(zip(names, session.run(None, {entry.name: inputs}), strict=True)), metadata


def only(folder):
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize(
    "feature_map", [None, RandomFeatures(64, 20.0, seed=3)], ids=["linear", "cosines"]
)
def test_extractor_and_head_in_one_file(mobilenet, images, tmp_path, feature_map):
    head = make_head(1280, feature_map)
    export_onnx(mobilenet, head, tmp_path / "model.onnx")
    found, metadata = run_file(only(tmp_path), images)
    features = mobilenet(images)
    assert list(found) == ["scores", "class"]
    assert found["class"].dtype == np.int64
    np.testing.assert_allclose(found["scores"], head.scores(features), rtol=1e-4, atol=1e-4)
    classes = np.array(json.loads(metadata["classes"]))
    np.testing.assert_array_equal(classes[found["class"]], head.predict(features))
    assert Preprocess(**json.loads(metadata["preprocess"])) == mobilenet.preprocess
    assert metadata["extractor"] == "mobilenet_v2"
    assert metadata["identity"] == mobilenet.identity
    assert b"site-packages" not in only(tmp_path).read_bytes()
    one, _ = run_file(only(tmp_path), images[:1])  # any batch size
    np.testing.assert_array_equal(one["class"], found["class"][:1])


@pytest.mark.parametrize("feature_map", [None, RandomFeatures(50, 3.0)], ids=["linear", "cosines"])
def test_a_head_alone_is_exact(tmp_path, feature_map):
    head = make_head(9, feature_map, classes=(2, 3, 5))
    features = RNG.normal(size=(40, 9)).astype(np.float32)
    export_head(head, tmp_path / "head.onnx", dimension=9)
    found, metadata = run_file(only(tmp_path), features)
    np.testing.assert_allclose(found["scores"], head.scores(features), rtol=1e-12, atol=1e-12)
    assert [json.loads(metadata["classes"])[i] for i in found["class"]] == head.predict(
        features
    ).tolist()
    assert json.loads(metadata["temperature"]) is None
    onnx.checker.check_model(onnx.load(only(tmp_path)), full_check=True)


def test_a_map_needs_to_know_what_it_maps(tmp_path):
    with pytest.raises(DataError, match="dimension: expected"):
        export_head(make_head(9, RandomFeatures(50, 3.0)), tmp_path / "head.onnx")
    export_head(make_head(9), tmp_path / "head.onnx")


def test_an_extractor_alone_reads_back(mobilenet, images, tmp_path):
    export_extractor(mobilenet, tmp_path / "net.onnx")
    back = from_onnx(only(tmp_path), batch=4, threads=2)
    assert back.preprocess == mobilenet.preprocess
    assert (back.dimension, back.bound) == (1280, 6)
    np.testing.assert_array_equal(back(images), mobilenet(images))


def test_a_file_of_ones_own_with_a_head(tmp_path):
    from onnx import TensorProto, helper, numpy_helper

    kernel = RNG.normal(size=(5, 3, 1, 1)).astype(np.float32)
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])
    maps = helper.make_tensor_value_info("head_maps", TensorProto.FLOAT, [2, 5, 8, 8])
    node = helper.make_node("Conv", ["x", "kernel"], ["head_maps"])
    graph = helper.make_graph(
        [node], "g", [entry], [maps], [numpy_helper.from_array(kernel, "kernel")]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "own.onnx")
    own = from_onnx(tmp_path / "own.onnx")
    head, x = make_head(5), RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)
    export_onnx(own, head, tmp_path / "both.onnx")
    found, _ = run_file(tmp_path / "both.onnx", x)
    np.testing.assert_allclose(found["scores"], head.scores(own(x)), atol=1e-5)


def test_both_views_are_in_the_file(mobilenet, images, tmp_path):
    flipped, head = mobilenet.with_views("flip"), make_head(1280)
    export_onnx(flipped, head, tmp_path / "model.onnx")
    found, metadata = run_file(only(tmp_path), images[:2])
    scores = head.scores(flipped(images[:2]))
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4, atol=1e-4)
    assert np.abs(scores - head.scores(mobilenet(images[:2]))).max() > 1e-2
    assert (metadata["views"], metadata["identity"]) == ("flip", flipped.identity)
    one, _ = run_file(only(tmp_path), images[:1])  # any batch size
    np.testing.assert_array_equal(one["class"], found["class"][:1])
    export_onnx(mobilenet, head, tmp_path / "plain.onnx")  # every weight is there once
    sizes = [(tmp_path / name).stat().st_size for name in ("model.onnx", "plain.onnx")]
    assert sizes[0] < 1.01 * sizes[1]


@pytest.mark.parametrize("batch", ["N", 2], ids=["any batch", "a fixed batch"])
def test_both_views_of_a_file_of_ones_own(tmp_path, batch):
    """Its maps are averaged over the image after the mean over the views."""
    from onnx import TensorProto, helper, numpy_helper

    kernel = RNG.normal(size=(5, 3, 3, 3)).astype(np.float32)
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])
    maps = helper.make_tensor_value_info("maps", TensorProto.FLOAT, [batch, 5, 6, 6])
    nodes = [
        helper.make_node("Conv", ["x", "starts"], ["images"]),
        helper.make_node("Relu", ["images"], ["maps"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [entry], [maps], [numpy_helper.from_array(kernel, "starts")]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "own.onnx")
    own = from_onnx(tmp_path / "own.onnx").with_views("flip")
    if batch == 2:
        with pytest.raises(DataError, match=r"views: expected a graph of any .*, got 2"):
            export_extractor(own, tmp_path / "both.onnx")
        return
    x, head = RNG.normal(size=(3, 3, 8, 8)).astype(np.float32), make_head(5)
    export_onnx(own, head, tmp_path / "both.onnx")
    found, _ = run_file(tmp_path / "both.onnx", x)
    np.testing.assert_allclose(found["scores"], head.scores(own(x)), atol=1e-5)
    export_extractor(own, tmp_path / "net.onnx")
    np.testing.assert_allclose(from_onnx(tmp_path / "net.onnx")(x), own(x), atol=1e-5)


def test_what_does_not_fit_is_named_and_nothing_is_written(mobilenet, tmp_path):
    with pytest.raises(DataError, match="head: expected one for features of dimension 1280, got 7"):
        export_onnx(mobilenet, make_head(7), tmp_path / "m.onnx")
    made = from_callable(lambda x: x.mean((2, 3)), 3, "means")
    with pytest.raises(DataError, match="means: a function has no ONNX graph"):
        export_onnx(made, make_head(3), tmp_path / "m.onnx")
    assert not any(tmp_path.iterdir())
