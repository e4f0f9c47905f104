"""Clients in clusters by style: what is known, the choice by hand, and drives of a real city."""

import csv
import io
import os
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import silhouette_score

from headstart.data import styles
from headstart.errors import DataError, HeadstartError
from headstart.gradient.clusters import clustered

CAMVID = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / "camvid"


def blobs(centres, each=5, seed=0, spread=0.2):
    rng = np.random.default_rng(seed)
    return {
        f"c{at}{k}": np.array(centre) + spread * rng.normal(size=len(centre))
        for at, centre in enumerate(centres)
        for k in range(each)
    }


@pytest.mark.parametrize("count", [2, 3, 5])
def test_clusters_that_are_there_are_found(count):
    centres = 4 * np.random.default_rng(count).normal(size=(count, 6))
    found = clustered(blobs(centres, spread=0.1))
    assert len(found) == count
    assert max(found.silhouettes, key=found.silhouettes.get) == count
    for own in range(count):
        assert len({name[:2] for name in found.members(own)}) == 1
    for centre in centres:
        np.testing.assert_allclose(found.centres[found.nearest(centre)], centre, atol=0.3)


def test_the_choice_is_the_smallest_distance_and_the_highest_silhouette():
    """Six points on a line: every partition into 2 and 3 runs is tried by hand."""
    points = np.array([0.0, 1.0, 5.0, 6.0, 20.0, 21.0])
    rows = {f"c{i}": [x] for i, x in enumerate(points)}

    def within(cuts):
        return sum(((part - part.mean()) ** 2).sum() for part in np.split(points, cuts))

    best = {
        2: min(([i] for i in range(1, 6)), key=within),
        3: min(([i, j] for i in range(1, 6) for j in range(i + 1, 6)), key=within),
    }
    found = clustered(rows, [2, 3])
    for count, cuts in best.items():
        labels = np.searchsorted(cuts, np.arange(6), side="right")
        assert found.silhouettes[count] == pytest.approx(silhouette_score(points[:, None], labels))
    chosen = max(found.silhouettes, key=found.silhouettes.get)
    labels = np.searchsorted(best[chosen], np.arange(6), side="right")
    assert list(found.of.values()) == labels.tolist()


def test_neither_the_order_of_clients_nor_the_time_matters():
    rows = blobs(np.eye(4) * 3)
    back = dict(reversed(rows.items()))
    one, two, again = clustered(rows), clustered(back), clustered(rows)
    assert one.of == two.of == again.of
    assert one.centres.tobytes() == two.centres.tobytes() == again.centres.tobytes()


def test_few_or_equal_clients_are_one_cluster():
    for rows in ({"a": [1.0, 2.0]}, {"a": [1.0], "b": [5.0]}, {name: [1.0] for name in "abcd"}):
        found = clustered(rows)
        assert set(found.of.values()) == {0}
        assert len(found) == 1
        assert found.silhouettes == {}
    three = clustered({"a": [1.0], "b": [1.1], "c": [9.0]})
    assert three.of == {"a": 0, "b": 0, "c": 1}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: clustered({}), "styles: expected clients with rows of one length, got"),
        (lambda: clustered({"a": [1.0], "b": [1.0, 2.0]}), r"one length, got \[1, 2\]"),
        (
            lambda: clustered({"a": [1.0], "b": [np.nan]}),
            "finite numbers, got NaN or infinity of b",
        ),
        (lambda: clustered({"a": [1.0]}, restarts=0), "restarts: expected a whole number"),
        (lambda: clustered({"a": [1.0]}).nearest([1.0, 2.0]), "style: expected 1 numbers, got 2"),
    ],
)
def test_mistakes_are_named(call, said):
    with pytest.raises((DataError, HeadstartError), match=said):
        call()


# -- CamVid ----------------------------------------------------------------------------------------


def frames(drives):
    """drive ↦ its frames in order, 3×h×w bytes."""
    (path,) = CAMVID.glob("*.zip")
    with zipfile.ZipFile(path) as archive:
        table = csv.DictReader(io.StringIO(archive.read("meta.csv").decode()))
        lines = sorted((line["name"], line["split"], line["sequence"]) for line in table)
        known = {Path(name).stem: name for name in archive.namelist() if name.endswith(".webp")}
        for drive in drives:
            yield (
                drive,
                (
                    np.asarray(
                        Image.open(io.BytesIO(archive.read(known[Path(name).stem]))).convert("RGB")
                    ).transpose(2, 0, 1)
                    for name, _, sequence in lines
                    if sequence == drive
                ),
            )


def test_clusters_of_real_drives_are_the_drives():
    """Runs of about 16 frames of three drives, one of them at dusk; each tests on its last 5.

    With the styles of all 16 frames the silhouette prefers two clusters, dusk and the rest.
    """
    if not any(CAMVID.glob("*.zip")):
        pytest.skip("CamVid not found: set HEADSTART_DATA")
    rows, drive_of = {}, {}
    for drive, images in frames(["0001TP", "0006R0", "Seq05VD"]):
        windows = np.concatenate([styles.amplitudes(image[None]) for image in images])
        for at, run in enumerate(np.array_split(windows, round(len(windows) / 16))):
            rows[f"{drive} {at:02}"] = run[:-5].mean(axis=0)
            drive_of[f"{drive} {at:02}"] = drive
    assert len(rows) == 25
    found = clustered(rows)
    assert len(found) == 3
    most = [Counter(drive_of[name] for name in found.members(own)) for own in range(3)]
    with_their_drive = sum(counts.most_common(1)[0][1] for counts in most)
    assert with_their_drive >= 0.85 * len(rows)
    assert {counts.most_common(1)[0][0] for counts in most} == set(drive_of.values())
    dusk = {own for name, own in found.of.items() if drive_of[name] == "0001TP"}
    assert len(dusk) == 1
