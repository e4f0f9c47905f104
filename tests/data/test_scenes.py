"""Images with masks: layouts, drives, splits; what a bad mask says; drawn streets."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from headstart.data import drawn
from headstart.data.partition import PARTITIONERS, runs
from headstart.data.scene_layouts import is_scenes, load_scenes
from headstart.data.scenes import CITYSCAPES, VOID, last_frames, seen_and_unseen
from headstart.errors import DataError, HeadstartError

pytest.importorskip("PIL", reason="pillow is not installed")
from PIL import Image


def png(array: np.ndarray, mode: str | None = None) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(buffer, "png")
    return buffer.getvalue()


def photo(height: int = 16, width: int = 24, value: int = 90) -> bytes:
    return png(np.full((height, width, 3), value, np.uint8))


def ids(*values: int, height: int = 16, width: int = 24) -> bytes:
    return png(np.resize(np.array(values, np.uint8), (height, width)))


def archive(path: Path, files: dict[str, bytes | str]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in files.items():
            made.writestr(name, content)
    return path


def folder(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


OWN: dict[str, bytes | str] = {
    "images/a/0.png": photo(),
    "images/b/0.png": photo(),
    "masks/a/0.png": ids(0, 7, 9),
    "masks/b/0.png": ids(7),
    "classes.csv": "id,name,void\n0,grass,\n7,water,\n9,unknown,1\n",
}


def test_camvid_layout_has_drives_a_split_and_leaves_val_out(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {"meta.csv": "split,name,sequence\n"}
    for split, names in {"train": ["A_1", "A_2", "B_1"], "val": ["B_2"], "test": ["C_1"]}.items():
        for name in names:
            files |= {f"{split}/{name}.png": photo(), f"{split}annot/{name}.png": ids(0, 3, 11)}
            files["meta.csv"] = f"{files['meta.csv']!s}{split},{name},drive {name[0]}\n"
    found = load_scenes(archive(tmp_path / "c.zip", files))
    assert found.clients is not None
    assert found.test is not None
    assert found.clients.tolist() == ["drive A", "drive A", "drive B", "drive C"]
    assert found.test.tolist() == [False, False, False, True]
    assert found.mask(1)[0, :3].tolist() == [0, 3, VOID]
    assert found.names[3] == "road"


@pytest.mark.parametrize("kind", ["labelIds", "labelTrainIds"])
def test_cityscapes_layout_maps_its_ids(tmp_path: Path, kind: str) -> None:
    stored = {"labelIds": (7, 33, 4), "labelTrainIds": (0, 18, 255)}[kind]
    files: dict[str, bytes | str] = {}
    for split, city in (("train", "aachen"), ("val", "ulm")):
        stem = f"{split}/{city}/{city}_000001_000019"
        files |= {
            f"leftImg8bit/{stem}_leftImg8bit.png": photo(),
            f"gtFine/{stem}_gtFine_{kind}.png": ids(*stored),
            f"gtFine/{stem}_gtFine_color.png": photo(),
        }
    found = load_scenes(folder(tmp_path / "city", files))
    assert found.names == CITYSCAPES
    assert found.clients is not None
    assert found.clients.tolist() == ["aachen", "ulm"]
    assert found.test is not None
    assert found.test.tolist() == [False, True]
    assert found.mask(0)[0, :3].tolist() == [0, 18, VOID]


def test_own_layout_with_clients_and_domains_in_meta(tmp_path: Path) -> None:
    assert is_scenes(folder(tmp_path / "own", OWN))
    found = load_scenes(tmp_path / "own")
    assert found.clients is not None
    assert (found.names, found.clients.tolist()) == (("grass", "water"), ["a", "b"])
    assert found.mask(0)[0, :3].tolist() == [0, 1, VOID]
    told = "name,client,domain,split\na/0,k,rain,train\nb/0,l,sun,test\n"
    found = load_scenes(folder(tmp_path / "own", {"meta.csv": told}))
    assert found.domains is not None
    assert found.test is not None
    assert (found.domains.tolist(), found.test.tolist()) == (["rain", "sun"], [False, True])


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (ids(0, 5), "expected ids of 2 classes and void (0, 7, 9), got 5 too"),
        (ids(0, 7, height=8), "expected the size of its image, 24×16, got 24×8"),
        (photo(), "expected a mask of ids (grey, 8 bits, mode L), got colours (mode RGB)"),
        (png(np.zeros((16, 24, 3), np.uint8), "P"), "got a palette (mode P)"),
        (b"no image", "expected an image"),
    ],
)
def test_a_bad_mask_is_one_line_that_names_the_file(tmp_path: Path, mask: bytes, said: str) -> None:
    scenes = load_scenes(archive(tmp_path / "own.zip", {**OWN, "masks/a/0.png": mask}))
    with pytest.raises(DataError) as caught:
        scenes.mask(0)
    assert said in str(caught.value)
    assert "masks/a/0.png" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images/c.png": photo()}, "expected a mask for each image"),
        ({"classes.csv": "id,name\n300,x\n"}, "expected a number from 0 to 255, got '300'"),
        ({"classes.csv": "id,name\n1,x\n1,y\n"}, "expected each once, got 1 twice"),
        ({"classes.csv": "id,name\n0,x\n7,x\n9,y\n"}, "got 'x' twice"),
        ({"classes.csv": "number,name\n1,x\n"}, "expected columns id and name"),
        ({"meta.csv": "name,client\na/0,k\n"}, "'b/0' is missing"),
        ({"meta.csv": "name,split\na/0,train\nb/0,dev\n"}, "expected train, val, test, got 'dev'"),
    ],
)
def test_a_bad_folder_is_one_line(
    tmp_path: Path, change: dict[str, bytes | str], said: str
) -> None:
    with pytest.raises(HeadstartError) as caught:
        load_scenes(archive(tmp_path / "own.zip", {**OWN, **change}))
    assert said in str(caught.value)


def test_test_frames_are_the_last_of_each_drive() -> None:
    drives = np.array(["a"] * 10 + ["b"] * 5 + ["c"])
    held = last_frames(drives, 0.2)
    assert np.flatnonzero(held).tolist() == [8, 9, 14]
    seen, unseen = seen_and_unseen(drives, ["b"], 0.2)
    assert np.flatnonzero(seen).tolist() == [8, 9]
    assert np.flatnonzero(unseen).tolist() == [10, 11, 12, 13, 14]
    with pytest.raises(DataError, match="expected some of a, b, c; got 'd'"):
        seen_and_unseen(drives, ["d"])


def test_runs_are_consecutive_frames_of_one_drive() -> None:
    drives = np.array(["b"] * 7 + ["a"] * 12)
    made = runs(drives, frames=5)
    assert made.names == ("a/0", "a/1", "b/0")
    assert [index.tolist() for index in made.indices] == [
        list(range(7, 13)),
        list(range(13, 19)),
        list(range(7)),
    ]
    assert "runs" in PARTITIONERS


def test_joined_sets_agree_on_classes(tmp_path: Path) -> None:
    one = load_scenes(archive(tmp_path / "one.zip", OWN))
    other = {
        **OWN,
        "classes.csv": "id,name\n1,grass\n2,water\n0,void\n",
        "masks/a/0.png": ids(1, 0),
    }
    other["masks/b/0.png"] = ids(2)
    both = one.with_outside(load_scenes(archive(tmp_path / "two.zip", other)))
    assert both.mask(2)[0, :2].tolist() == [0, VOID]
    assert np.unique(both.mask(3)).tolist() == [1]
    with pytest.raises(DataError, match="expected masks of grass, water; got sky"):
        one.with_outside(drawn.streets(1, 4))


# --- drawn


def test_drawn_scenes_are_those_of_their_seed_and_show_every_class() -> None:
    image, mask = drawn.draw(3, drive=1, frame=2)
    again, same = drawn.draw(3, drive=1, frame=2)
    assert (image == again).all()
    assert (mask == same).all()
    assert (drawn.draw(4, drive=1, frame=2)[0] != image).any()
    shown = [drawn.draw(0, drive, frame)[1] for drive in range(3) for frame in range(4)]
    assert set(np.unique(shown)) == set(range(11))


def test_a_polygon_fills_the_pixels_whose_centres_it_holds() -> None:
    canvas = drawn.Canvas.empty(8, 8)
    canvas.fill([(0, 0), (0.5, 0), (0.5, 0.5), (0, 0.5)], "car", (1, 0, 0))
    assert (canvas.ids == 8).sum() == 16
    assert (canvas.ids[:4, :4] == 8).all()
    canvas.fill([(0, 0), (1, 0), (0, 1)], "sky", (0, 0, 1))  # half of the square
    assert (canvas.ids == 0).sum() == 28


def test_streets_are_a_dataset_by_name() -> None:
    found = load_scenes("streets")
    assert found.test is not None
    assert (len(found), int(found.test.sum())) == (84, 24)
    image, mask = drawn.draw(0, 1, 9)
    assert (np.asarray(found.open(23)) == image).all()
    assert (found.mask(23) == mask).all()
