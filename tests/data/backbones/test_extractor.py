"""Extractors: the same bits in any company, one identity, any file, any function."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from headstart.data.backbones import Preprocess, extractor, from_callable, from_onnx, names
from headstart.data.backbones.sources import cache_folder
from headstart.errors import DataError

TINY = Preprocess(size=8, resize=8)
RNG = np.random.default_rng(0)
SMALL = RNG.normal(size=(7, 3, 8, 8)).astype(np.float32)
KERNEL = RNG.normal(size=(5, 3, 1, 1)).astype(np.float32)


def write_model(path, *, batch="N", size=8, flat=False, outputs=1, kind=TensorProto.FLOAT):
    """A 1×1 convolution to 5 maps; `flat` pools them."""
    nodes = [helper.make_node("Conv", ["x", "kernel"], ["maps"])]
    if flat:
        nodes += [helper.make_node("GlobalAveragePool", ["maps"], ["pooled"])]
        nodes += [helper.make_node("Flatten", ["pooled"], ["z"])]
    shape = [batch, 5] if flat else [batch, 5, size, size]
    found = [helper.make_tensor_value_info("z" if flat else "maps", kind, shape)]
    if outputs == 2:
        nodes.append(helper.make_node("Relu", ["maps"], ["other"]))
        found.append(helper.make_tensor_value_info("other", kind, [batch, 5, size, size]))
    entry = helper.make_tensor_value_info("x", kind, [batch, 3, size, size])
    graph = helper.make_graph(
        nodes, "g", [entry], found, [numpy_helper.from_array(KERNEL, "kernel")]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def expected(images):
    return np.einsum("nchw,dc->nd", images, KERNEL[:, :, 0, 0]) / 64


# --- the same bits


def check_company(run, images):
    """Another place, other company, alone, among copies: always the same bits."""
    whole = run(images)
    order = np.array([5, 2, 0, 1, 4, 3])
    np.testing.assert_array_equal(run(images[order]), whole[order])
    np.testing.assert_array_equal(run(images[3:4]), whole[3:4])
    np.testing.assert_array_equal(run(np.repeat(images[1:2], 5, 0)), np.repeat(whole[1:2], 5, 0))
    return whole


def test_features_do_not_depend_on_the_batch(mobilenet, images):
    features = check_company(mobilenet, images)
    assert features.shape == (6, 1280)
    assert features.dtype == np.float32
    assert features.min() >= 0
    assert features.max() <= mobilenet.bound == 6


def test_features_by_torch_do_not_depend_on_the_batch(images):
    small = Preprocess(size=96, resize=96)
    run = extractor("mobilenet_v2", engine="torch", batch=4, preprocess=small)
    check_company(run, np.ascontiguousarray(images[:, :, :96, :96]))


def test_engines_agree(mobilenet, images):
    by_torch = extractor("mobilenet_v2", engine="torch", batch=1)
    assert by_torch.identity == mobilenet.identity
    np.testing.assert_allclose(mobilenet(images[:1]), by_torch(images[:1]), rtol=1e-4, atol=1e-4)


def test_a_saturated_picture_stays_within_the_bound(mobilenet):
    for value in (-1e4, 1e4):
        assert mobilenet(np.full((1, 3, 224, 224), value, np.float32)).max() <= mobilenet.bound


def test_no_images_give_no_features(mobilenet, images):
    assert mobilenet(images[:0]).shape == (0, 1280)


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, 3, 224, 224)),
        np.zeros((3, 224, 224), np.float32),
        np.zeros((2, 3, 223, 224), np.float32),
        np.zeros((2, 224, 224, 3), np.float32),
        [[1.0]],
    ],
)
def test_other_inputs_are_named(mobilenet, images):
    with pytest.raises(DataError, match=r"^images: expected"):
        mobilenet(images)


# --- names, identity, cache


def test_identity_is_of_network_weights_and_preprocessing(tmp_path):
    base = extractor("mobilenet_v2")
    assert len(base.identity) == 64
    assert extractor("mobilenet_v2", batch=8, threads=1, engine="torch").identity == base.identity
    small = extractor("mobilenet_v2", preprocess=base.preprocess.for_small())
    assert small.identity != base.identity
    state = torch.load(base.source.weights, weights_only=True)
    state["features.0.0.weight"][0, 0, 0, 0] += 1
    torch.save(state, tmp_path / "own.pth")
    assert extractor("mobilenet_v2", weights=tmp_path / "own.pth").identity != base.identity
    assert extractor("efficientnet_lite0").identity != base.identity


def test_the_export_is_one_clean_file_in_the_cache(mobilenet, images, export_cache):
    mobilenet(images[:1])
    found = list((export_cache / "extractors").iterdir())
    assert [path.name for path in found] == [f"{mobilenet.identity}.onnx"]
    data = found[0].read_bytes()
    for trace in (b"site-packages", b"/home", b"/root", b".py", b"headstart.data"):
        assert trace not in data
    model = onnx.load_model_from_string(data)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["identity"] == mobilenet.identity
    assert Preprocess(**json.loads(metadata["preprocess"])) == mobilenet.preprocess
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_exported_files_work_without_torch(mobilenet, images, export_cache, tmp_path):
    """By name while the cache has the export, and by the path of the file."""
    np.savez(tmp_path / "io.npz", x=images[:2], z=mobilenet(images[:2]))
    exported = export_cache / "extractors" / f"{mobilenet.identity}.onnx"
    code = f"""
    import sys
    for name in ("torch", "onnx", "onnxscript"):
        sys.modules[name] = None
    import numpy as np
    from headstart import HeadstartError
    from headstart.data import backbones
    io = np.load({str(tmp_path / "io.npz")!r})
    assert backbones.names()
    for run in (
        backbones.extractor("mobilenet_v2", batch=4, threads=2, cache={str(export_cache)!r}),
        backbones.extractor({str(exported)!r}, batch=4),
    ):
        assert np.array_equal(run(io["x"]), io["z"])
        assert run.bound == 6
    try:
        backbones.extractor("mobilenet_v2", cache={str(tmp_path)!r})(io["x"])
    except HeadstartError as error:
        assert "headstart[vision]" in str(error), error
    else:
        raise SystemExit("expected an error")
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_listing_loads_nothing_heavy():
    code = (
        "import sys; from headstart.data import backbones; backbones.names(); "
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'PIL') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert "mobilenet_v2" in names()


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("HEADSTART_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "headstart"


def test_the_module_is_ones_own_and_trainable(mobilenet):
    one, other = mobilenet.module(), mobilenet.module()
    assert not one.training
    assert all(p.requires_grad for p in one.parameters())
    with torch.no_grad():
        one.features[0][0].weight.zero_()
    assert other.features[0][0].weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (["alexnet"], {}, "extractor: expected one of efficientnet_lite0"),
        (["mobilenet_v2"], {"engine": "jax"}, "engine: expected onnx or torch"),
        (["mobilenet_v2"], {"batch": 0}, "batch"),
        (["mobilenet_v2"], {"threads": 0}, "threads"),
        (["absent.onnx"], {}, r"absent\.onnx: cannot be read"),
        (["absent.onnx"], {"engine": "torch"}, "takes no weights"),
        (["resnet18"], {"weights": "absent.pth"}, "cannot be read"),
    ],
)
def test_mistakes_are_named(arguments, options, named):
    with pytest.raises(DataError, match=named):
        extractor(*arguments, **options)


def test_vit_keeps_its_size(tmp_path):
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(DataError, match="vit_b_16 expects size 224"):
        extractor("vit_b_16", weights=tmp_path / "w.pth", preprocess=Preprocess(160, 180))


# --- files


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("batch", ["N", 1, 3])
def test_any_onnx_file(tmp_path, flat, batch):
    run = from_onnx(write_model(tmp_path / "m.onnx", batch=batch, flat=flat), preprocess=TINY)
    assert (run.name, run.dimension, run.bound) == ("m", 5, 64)
    assert run.batch == (32 if batch == "N" else batch)
    np.testing.assert_allclose(run(SMALL), expected(SMALL), atol=1e-5)
    np.testing.assert_array_equal(run(SMALL[2:3]), run(SMALL)[2:3])


def test_free_sizes_are_those_of_the_preprocessing(tmp_path):
    path = write_model(tmp_path / "m.onnx", size="S")
    np.testing.assert_allclose(from_onnx(path, preprocess=TINY)(SMALL), expected(SMALL), atol=1e-5)
    assert from_onnx(path, batch=1).preprocess == Preprocess()


def test_an_unknown_file_gets_the_usual_preprocessing_at_its_size(tmp_path):
    run = extractor(write_model(tmp_path / "m.onnx"))
    assert run.preprocess == Preprocess(size=8, resize=9)


def test_a_named_output(tmp_path):
    path = write_model(tmp_path / "m.onnx", outputs=2)
    first = from_onnx(path, preprocess=TINY, output="maps")
    other = from_onnx(path, preprocess=TINY, output="other")
    assert first.identity != other.identity
    assert other(SMALL).min() >= 0
    for wanted in (None, "absent"):
        with pytest.raises(DataError, match=r"output: .*maps, other"):
            from_onnx(path, preprocess=TINY, output=wanted)


def test_files_that_do_not_fit_are_named(tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(DataError, match=r"text\.onnx: expected an ONNX model"):
        from_onnx(tmp_path / "text.onnx")
    with pytest.raises(DataError, match="expects size 8, got 224"):
        from_onnx(write_model(tmp_path / "m.onnx"), preprocess=Preprocess())
    double = write_model(tmp_path / "d.onnx", kind=TensorProto.DOUBLE)
    with pytest.raises(DataError, match=r"d\.onnx: expected"):
        from_onnx(double)
    with pytest.raises(DataError, match="no torch module"):
        from_onnx(write_model(tmp_path / "m.onnx"), preprocess=TINY).module()


def test_a_sidecar_is_refused(tmp_path):
    model = onnx.load(write_model(tmp_path / "m.onnx"))
    onnx.save(
        model, tmp_path / "s.onnx", save_as_external_data=True, location="s.data", size_threshold=0
    )
    with pytest.raises(DataError, match=r"s\.onnx: .*sidecar"):
        from_onnx(tmp_path / "s.onnx", preprocess=TINY)


# --- functions


def test_any_function():
    shapes = []

    def means(images):
        shapes.append(images.shape)
        return images.mean((2, 3))

    run = from_callable(means, 3, "channel means", TINY, batch=4)
    np.testing.assert_allclose(run(SMALL), SMALL.mean((2, 3)), atol=1e-6)
    assert shapes == [(4, 3, 8, 8)] * 2
    assert from_callable(means, 3, "other", TINY).identity != run.identity
    with pytest.raises(DataError, match="no torch module"):
        run.module()


def test_a_function_that_breaks_its_word_is_named():
    with pytest.raises(DataError, match=r"wide: expected features of shape \(32, 3\), got"):
        from_callable(lambda x: np.zeros((len(x), 4)), 3, "wide", TINY)(SMALL)
    with pytest.raises(DataError, match="bad: expected finite features, got others for image 0"):
        from_callable(lambda x: np.full((len(x), 3), np.nan), 3, "bad", TINY)(SMALL)


# --- views


def mirror(images):
    return np.ascontiguousarray(images[..., ::-1])


def test_flip_is_the_mean_of_an_image_and_its_mirror_image(mobilenet, images):
    flipped = mobilenet.with_views("flip")
    two = images[:2]
    found = flipped(two)
    np.testing.assert_allclose(found, (mobilenet(two) + mobilenet(mirror(two))) / 2, rtol=1e-6)
    np.testing.assert_array_equal(flipped(mirror(two)), found)
    assert np.abs(found - mobilenet(two)).max() > 1e-2
    assert (flipped.dimension, flipped.bound, flipped.parallel) == (1280, 6, mobilenet.parallel)


def test_flip_does_not_depend_on_the_batch(tmp_path):
    run = from_onnx(write_model(tmp_path / "net.onnx", flat=True), preprocess=TINY, batch=3)
    check_company(run.with_views("flip"), SMALL)


def test_views_are_part_of_the_identity(mobilenet):
    plain, flipped = extractor("mobilenet_v2"), extractor("mobilenet_v2", views="flip")
    assert plain.identity == mobilenet.identity == mobilenet.with_views(None).identity
    assert flipped.identity == mobilenet.with_views("flip").identity != plain.identity
    small = extractor("mobilenet_v2", views="flip", preprocess=plain.preprocess.for_small())
    assert small.identity != flipped.identity
    assert (plain.views, flipped.views) == (None, "flip")
    assert "views" not in plain.properties()
    assert flipped.properties()["views"] == "flip"


def test_other_views_are_refused(mobilenet):
    with pytest.raises(DataError, match=r"^views: expected flip, once, got 'crops'$"):
        extractor("mobilenet_v2", views="crops")
    with pytest.raises(DataError, match="views: expected flip, once, got 'flip' of flip"):
        mobilenet.with_views("flip").with_views("flip")
    with pytest.raises(DataError, match="views: a torch module sees one view"):
        mobilenet.with_views("flip").module()


def test_a_function_can_be_flipped():
    corner = from_callable(lambda x: x[:, :, 0, 0], 3, "corner", TINY).with_views("flip")
    np.testing.assert_allclose(
        corner(SMALL), (SMALL[:, :, 0, 0] + SMALL[:, :, 0, -1]) / 2, rtol=1e-6
    )


# --- every network through onnxruntime


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["squeezenet1_1", "resnet18", "vit_b_16", "efficientnet_lite0", "efficientnet_lite2"]
)
def test_every_network_exports(name, images, tmp_path):
    from headstart.data.backbones.catalogue import network

    torch.manual_seed(0)
    torch.save(network(name).build().state_dict(), tmp_path / "own.pth")
    settings = {"weights": tmp_path / "own.pth", "preprocess": Preprocess(), "cache": tmp_path}
    made = [extractor(name, engine=engine, batch=3, **settings) for engine in ("onnx", "torch")]
    by_onnx, by_torch = (check_company(run, images) for run in made)
    np.testing.assert_allclose(by_onnx, by_torch, rtol=1e-3, atol=1e-4)
