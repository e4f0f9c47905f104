"""A deployed federation of scenes: four nodes with frames of CamVid's three training drives."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from headstart import LDA, LinearHead
from headstart.cli.deploy import app
from headstart.data.cells import CellSet, cell_extractor
from headstart.data.features import extract
from headstart.data.scene_layouts import load_scenes
from headstart.data.scenes import CAMVID
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from tests.deploy.flower.test_live import Stage, finished, free_port, online

ARCHIVE = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "camvid/camvid_480x360.zip"
NODES = ("dusk", "bridge", "town-early", "town-late")
STEP = 6  # every so many frames


def cut():
    """The frames of each node: two drives, and the halves of the longest."""
    scenes = load_scenes(ARCHIVE).train_part()
    drives = [np.flatnonzero(scenes.drives == name)[::STEP] for name in np.unique(scenes.drives)]
    dusk, bridge, town = sorted(drives, key=len)
    return scenes, dict(zip(NODES, (dusk, bridge, *np.array_split(town, 2)), strict=True))


def write(folder, scenes, frames):
    """The generic layout; whose the frames are, a node does not say in them."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for i in frames.tolist():
        with Image.open(io.BytesIO(scenes.source.read(i))) as image:
            image.convert("RGB").save(folder / f"images/{i:04d}.png")
        mask = scenes.mask(i)
        Image.fromarray(np.where(mask < 0, 11, mask).astype(np.uint8)).save(
            folder / f"masks/{i:04d}.png"
        )
    lines = ["id,name", *(f"{at},{name}" for at, name in enumerate(CAMVID)), "11,void"]
    (folder / "classes.csv").write_text("\n".join(lines) + "\n")


def expected(scenes, frames):
    """The same drives in one process, straight from the archive."""
    network = cell_extractor("mobilenet_v2", scenes.size(0))
    own = np.concatenate(list(frames.values()))
    data = CellSet.of(scenes.subset(own), extract(scenes.subset(own), network), network.grid)
    ends = np.cumsum([0, *map(len, frames.values())])
    clients = {
        name: ClientData(data.picked(np.arange(first, last)))
        for name, first, last in zip(frames, ends, ends[1:], strict=False)
    }
    return Simulator(clients).total(steps.measure(LDA(), exact=True, bound=128.0)).statistic


@pytest.mark.long
@pytest.mark.skipif(not ARCHIVE.is_file(), reason=f"{ARCHIVE} is not there")
def test_four_nodes_have_the_simulators_bits(tmp_path):
    port, (scenes, frames) = free_port(), cut()
    asked = ["init", str(tmp_path / "fed"), "--dimension", "712", "--bound", "128.0"]
    asked += ["--address", f"127.0.0.1:{port}"]
    made = CliRunner().invoke(app, asked + [word for n in NODES for word in ("--node", n)])
    assert made.exit_code == 0, made.output
    for name in NODES:
        folder = tmp_path / "fed/nodes" / name
        write(folder / "scenes", scenes, frames[name])
        text = (folder / "node.toml").read_text().replace("samples.csv", "scenes")
        (folder / "node.toml").write_text(f'{text}\nextractor = "mobilenet_v2"\n')
    agreed = tmp_path / "classes.txt"
    agreed.write_text("\n".join(CAMVID) + "\n")
    with Stage(tmp_path / "fed", port) as stage:
        link = stage.server(*NODES)
        nodes = [stage.node(name) for name in NODES]
        online(nodes, link)
        run = stage.run(
            "-c",
            f'pipeline="LDA" extractor="mobilenet_v2" scenes="480x360" class-list="{agreed}" '
            'labels="text" samples=60 wanted=4 patience=1.0',
        )
        results = finished(1, run, tmp_path / "fed/server/output", link, *nodes)
    total = expected(scenes, frames)
    assert results.head.digest == total.digest()
    ours = LinearHead.load(tmp_path / "fed/server/output/model.safetensors")
    assert np.array_equal(ours.weights, LDA().solve(total).weights)
