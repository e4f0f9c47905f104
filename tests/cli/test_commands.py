"""The command line as a user meets it: what it prints, and one line for every mistake."""

import os
import subprocess
import sys

import numpy as np
import pytest

from headstart import LinearHead
from headstart.data.datasets import load


def _word(value):
    return value if isinstance(value, bytes) else str(value)


@pytest.fixture
def headstart(tmp_path):
    def call(*arguments, code=0, err=False):
        """What it prints; with `err`, or when it fails, what it says beside that."""
        done = subprocess.run(
            [sys.executable, "-m", "headstart", *map(os.fsdecode, map(_word, arguments))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.strip() if code or err else done.stdout

    return call


@pytest.fixture
def table(tmp_path):
    """A CSV of a user's own: string labels, a client column, a split."""
    data = load("digits")
    kept = np.arange(0, len(data), 4)
    with open(tmp_path / "mine.csv", "w") as file:
        names = ",".join(f"f{j}" for j in range(data.dimension))
        file.write(f"who,what,part,{names}\n")
        for i in kept:
            part = "test" if data.test[i] else "train"
            numbers = ",".join(f"{v:g}" for v in data.features[i])
            file.write(f"site{i % 5},digit-{data.labels[i]},{part},{numbers}\n")
    return "mine.csv"


def test_the_demo_says_that_the_bits_are_the_same(headstart, tmp_path):
    said = headstart("demo", "--clients", "12")
    assert "the same bits" in said
    for head in ("Fed3R", "Fed3R-RF", "FedNCM", "FedCOF", "LDA", "pooled ridge"):
        assert head in said
    assert (tmp_path / "runs" / "demo-1" / "report.html").exists()
    accuracies = {line.split()[0]: line.split() for line in said.splitlines() if line.strip()}
    assert accuracies["Fed3R"][1] == accuracies["pooled"][2]


def test_from_ones_own_csv_to_predictions(headstart, table, tmp_path):
    columns = ("--label", "what", "--client", "who", "--split", "part")
    said = headstart("fit", "--data", table, *columns, "--out", "out")
    assert "the same bits" in said
    assert "5 clients" in said
    scored = headstart(
        "evaluate", "out", "--data", table, "--label", "what", "--split", "part", "--client", "who"
    )
    assert float(scored.split("accuracy")[1].split()[0]) > 0.7
    headstart("predict", "out", "--data", table, *columns, "--out", "guess.csv")
    lines = (tmp_path / "guess.csv").read_text().splitlines()
    assert lines[0] == "sample,class,probability"
    assert lines[1].split(",")[1].startswith("digit-")


def test_add_and_forget(headstart):
    headstart("fit", "--data", "digits", "--clients", "6", "--alpha", "0.5", "--out", "out")
    before = headstart("evaluate", "out", "--data", "digits")
    said = headstart("add", "out", "--data", "digits", "--client", "late")
    total = said.rsplit("total", 1)[1]
    assert headstart("forget", "out", "late").rsplit("total", 1)[1] != total
    assert headstart("evaluate", "out", "--data", "digits") == before


def test_run_takes_a_file_and_changes(headstart, tmp_path):
    (tmp_path / "c.yaml").write_text("data: digits\npartition: {name: iid, clients: 4}\n")
    assert "7 clients" in headstart("run", "c.yaml", "partition.clients=7", "pipeline=fedncm")


def test_a_temperature_can_be_stated(headstart, tmp_path):
    few = ("--clients", "4", "--alpha", "1")
    headstart("fit", "--data", "digits", *few, "--temperature", "0.5", "--out", "fit")
    headstart("run", "Fed3R", "--data", "digits", "temperature=0.5", "--out", "run")
    for name in ("fit", "run"):
        assert LinearHead.load(tmp_path / name / "model.safetensors").temperature == 0.5


def test_list_names_everything(headstart):
    from headstart.data.partition import PARTITIONERS
    from headstart.heads import HEADS

    said = headstart("list")
    for name in [*HEADS, *PARTITIONERS, "digits", "int8"]:
        assert name in said


def test_doctor_and_version(headstart):
    assert "numpy" in headstart("doctor")
    assert headstart("--version").strip() == __import__("headstart").__version__


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("fit", "--data", "nothing.csv"), "no such file"),
        (("fit", "--data", "digits", "--head", "fed4r"), "did you mean 'fed3r'"),
        (("fit", "--data", "digits", "--ridge", "lots"), "ridge"),
        (("fit", "--data", "digits", "--temperature", "0"), "temperature"),
        (("fit", "--data", "digits", "--partition", "dirichlet"), "clients, alpha"),
        (("run", "nothing.yaml"), "cannot read"),
        (("evaluate", "nothing", "--data", "digits"), "cannot read"),
        (("predict", "bad.safetensors", "--data", "digits"), "malformed"),
        (("add", "nowhere", "--data", "digits", "--client", "x"), "no run folder"),
        (("forget", "nowhere", "x"), "no run folder"),
        (("fit", "--data", "bad.safetensors"), "expected a .csv"),
        (("fit", "--data", "digits", "--out", "bad.safetensors/x"), "output"),
    ],
)
def test_a_mistake_is_one_clear_line(headstart, tmp_path, arguments, hint):
    (tmp_path / "bad.safetensors").write_bytes(b"\x00" * 64)
    said = headstart(*arguments, code=2)
    assert said.startswith("error: ")
    assert hint in said
    assert len(said.splitlines()) == 1


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Where the network is kept once it is exported, which takes longer than the images."""
    return tmp_path_factory.mktemp("extractors")


@pytest.fixture
def photos(tmp_path, exported, monkeypatch):
    """client/class/file: two kinds of pictures at three sites, and new ones without a client."""
    from PIL import Image

    (tmp_path / "cache").mkdir()  # of features: its own in every test
    (tmp_path / "cache" / "extractors").symlink_to(exported)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for i in range(24):
        kind, tint = ("warm", (255, 90, 30)) if i % 2 else ("cold", (30, 90, 255))
        pixels = rng.integers(0, 80, (40, 48, 3)) + np.array(tint) * 0.6
        folder = f"photos/site{i % 3}/{kind}" if i < 18 else f"new/{kind}"
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / folder / f"{i}.png")
    return "photos"


def test_from_a_folder_of_images_to_an_onnx_file(headstart, photos, tmp_path):
    import json

    import onnxruntime
    from PIL import Image

    from headstart.data.backbones import Preprocess

    assert "the same bits" in headstart("fit", "--data", photos, "--out", "run")
    assert "accuracy           1.0" in headstart("evaluate", "run", "--data", "new")
    guesses = dict(
        line.split(",")[:2] for line in headstart("predict", "run", "--data", "new").splitlines()
    )
    headstart("export", "run", "--out", "model.onnx")
    assert [p.name for p in tmp_path.glob("model.onnx*")] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    prepare = Preprocess(**json.loads(about["preprocess"]))
    names = json.loads(about["classes"])
    assert len(guesses) == 7  # with the header
    for where in sorted((tmp_path / "new").glob("*/*.png")):
        pixels = prepare(Image.open(where))[None]
        (found,) = session.run(["class"], {session.get_inputs()[0].name: pixels})
        said = next(guess for name, guess in guesses.items() if name.endswith(where.name))
        assert names[int(found[0])] == said


def test_a_folder_with_other_files_and_odd_names(headstart, photos, tmp_path):
    root = os.fsencode(tmp_path) + b"/caf\xe9"
    os.rename(tmp_path / photos, root)
    os.rename(root + b"/site1", root + b"/s\xe9")
    os.rename(root + b"/s\xe9/warm/1.png", root + b"/s\xe9/warm/\xff.png")
    for name in (b"notes.txt", b"README", b"Thumbs.db", b".DS_Store"):
        with open(root + b"/" + name, "w") as file:
            file.write("x")
    said = headstart("fit", "--data", b"caf\xe9", "--out", "run", err=True)
    (line,) = said.splitlines()
    assert line.startswith("left out: caf\\xe9: 2 files other than images (")
    assert line.endswith("): README, notes.txt")
    lines = headstart("predict", "run", "--data", b"caf\xe9").splitlines()
    assert "caf\\xe9/s\\xe9/warm/\\xff.png,warm,0.9999" in lines
    headstart("predict", "run", "--data", b"caf\xe9", "--out", "p.csv")
    assert (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines() == lines
    assert "is out" in headstart("forget", "run", b"s\xe9")


def test_a_single_image(headstart, photos):
    headstart("fit", "--data", photos, "--out", "run")
    lines = headstart("predict", "run", "--data", "new/warm/19.png").splitlines()
    assert lines == ["sample,class,probability", "new/warm/19.png,warm,0.9999"]
    assert "a single image is not a dataset" in headstart(
        "fit", "--data", "new/warm/19.png", code=2
    )


def test_features_of_images_are_a_file_one_can_fit(headstart, photos, tmp_path):
    assert "18 samples of dimension 1280" in headstart(
        "features", "--data", photos, "--out", "photos.npz"
    )
    (tmp_path / "c.yaml").write_text("data: photos.npz\nbound: 6\n")
    by_file = headstart("run", "c.yaml", "--out", "one")
    by_image = headstart("run", "c.yaml", f"data={photos}", "--out", "two")
    assert by_file.split("federated total")[1][:18] == by_image.split("federated total")[1][:18]


def test_a_head_of_both_views_predicts_with_both(headstart, photos, tmp_path):
    import json

    import onnxruntime
    from PIL import Image

    from headstart.heads.linear import LinearHead
    from headstart.pipeline.inputs import read

    headstart("fit", "--data", photos, "--out", "run", "--views", "flip")
    head = LinearHead.load(tmp_path / "run" / "model.safetensors")
    assert head.provenance["extractor"]["views"] == "flip"
    for name, arguments in (("plain", ()), ("flip", ("--views", "flip"))):
        headstart("features", "--data", "new", "--out", f"{name}.npz", *arguments)
    for path in (tmp_path / "new").glob("*/*.png"):
        where = tmp_path / "mirrored" / path.relative_to(tmp_path / "new")
        where.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(where)
    headstart("features", "--data", "mirrored", "--out", "mirrored.npz")
    plain, flip, mirrored = (
        np.load(tmp_path / f"{name}.npz")["features"] for name in ("plain", "flip", "mirrored")
    )
    np.testing.assert_allclose(flip, (plain + mirrored) / 2, atol=1e-3)
    assert np.abs(flip - plain).max() > 0.05
    columns = {role: role for role in ("label", "client", "domain", "split")}
    again = read(str(tmp_path / "new"), columns, about=head.provenance["extractor"])
    np.testing.assert_array_equal(again.data.features, flip)
    assert again.extractor["identity"] == head.provenance["extractor"]["identity"]
    lines = headstart("predict", "run", "--data", "new").splitlines()[1:]
    said = [float(line.split(",")[2]) for line in lines]
    np.testing.assert_allclose(said, head.probabilities(flip).max(axis=1), atol=1e-4)
    assert "accuracy           1.0" in headstart("evaluate", "run", "--data", "new")
    headstart("export", "run", "--out", "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["provenance"])["extractor"]["views"] == metadata["views"] == "flip"


@pytest.mark.parametrize(
    ("arguments", "held"),
    [
        (("fit", "--data", "digits"), "features"),
        (("features", "--data", "digits", "--out", "f.npz"), "features"),
        (("fit", "--data", "said.csv", "--text", "said"), "sentences"),
    ],
)
def test_views_are_of_images(headstart, tmp_path, arguments, held):
    (tmp_path / "said.csv").write_text("said,label\nhello,a\nbye,b\n")
    said = headstart(*arguments, "--views", "flip", code=2)
    assert said.strip() == f"error: views: expected images, which can be mirrored, got {held}"


def test_a_model_of_features_says_that_it_knows_no_images(headstart, photos):
    headstart("fit", "--data", "digits", "--clients", "4", "--alpha", "1", "--out", "run")
    assert "fitted to features" in headstart("predict", "run", "--data", "photos", code=2)
    assert "holds features" in headstart("fit", "--data", "digits", "--extractor", "x", code=2)


def test_an_image_left_out_is_named_even_the_first(headstart, photos, tmp_path):
    (tmp_path / "photos" / "site0" / "cold" / "0.png").write_bytes(b"no image")
    assert "0.png" in headstart("fit", "--data", photos, "--out", "run", code=2)
    assert "17 samples" in headstart(
        "features", "--data", photos, "--out", "f.npz", "--skip-corrupt"
    )
    said = headstart("fit", "--data", photos, "--out", "run", "--skip-corrupt", err=True)
    (line,) = said.splitlines()
    assert line.startswith("left out: photos/site0/cold/0.png: expected an image")
    options = ("--skip-corrupt", "--weights", "nope.pt")
    assert "nope.pt" in headstart("fit", "--data", photos, *options, code=2)


def test_images_go_through_the_preprocessing_of_the_model(photos, tmp_path):
    """Small images are not cropped; a model made with them must not crop large ones later."""
    from PIL import Image

    from headstart.pipeline.inputs import read

    columns = {"label": "label", "client": "client", "domain": "domain", "split": "split"}
    about = read(str(tmp_path / photos), columns).extractor
    (tmp_path / "large" / "warm").mkdir(parents=True)
    Image.new("RGB", (300, 300), "red").save(tmp_path / "large" / "warm" / "0.png")
    source = str(tmp_path / "large")
    assert read(source, columns).extractor != about
    again = read(source, columns, about=about).extractor
    assert again["preprocess"] == about["preprocess"]


def test_what_cannot_be_written_or_compared_is_one_line(headstart, table, tmp_path):
    headstart("fit", "--data", "digits", "--clients", "4", "--alpha", "1", "--out", "run")
    columns = ("--label", "what", "--client", "who", "--split", "part")
    (tmp_path / "file").write_text("x")
    for arguments, hint in [
        (("predict", "run", "--data", "digits", "--out", "nowhere/p.csv"), "cannot write nowhere"),
        (("predict", "run", "--data", "digits", "--out", "run"), "cannot write run"),
        (("fit", "--data", "digits", "--out", "file"), "expected a folder"),
        (("reproduce", "thesis-table3.6", "--out", "file"), "file"),
        (("evaluate", "run", "--data", table, *columns), "expected classes like 0, got 'digit-"),
        (("add", "run", "--data", "digits", "--client", ""), "expected a name"),
    ]:
        said = headstart(*arguments, code=2)
        assert hint in said
        assert len(said.splitlines()) == 1
    assert not list(tmp_path.rglob("*.part"))


def test_a_terminal_without_arrows_still_works(headstart, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    arguments = ("--data", "digits", "--clients", "4", "--alpha", "1", "--held-out", "0.3")
    assert "the same bits" in headstart("fit", *arguments)


def test_streets_ask_for_the_vision_extra_in_one_line(tmp_path):
    code = (
        "from headstart import cli, optional; optional.missing = lambda names: ('torch',); "
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "demo", "streets"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert done.stderr == (
        'error: demo streets: torch is needed and not installed: pip install "headstart[vision]"\n'
    )
    assert not list(tmp_path.iterdir())  # nothing was begun
