"""Where the data of a reproduction come from: paths that are given, or the benchmark folder."""

import numpy as np
import pytest

from headstart.data.datasets import Dataset
from headstart.errors import DataError, HeadstartError
from headstart.papers import best_training_free, catalogue, reproduce, sources
from headstart.progress import silent


@pytest.fixture(autouse=True)
def nothing_at_the_usual_places(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path / "none"))


def find(name, *given):
    return sources.find(catalogue()[name], given, silent)


def save(path, n=12, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "features_q": rng.integers(0, 256, (n, 3)).astype(np.uint8),
        "mirrored_q": rng.integers(0, 256, (n, 3)).astype(np.uint8),
        "top": np.array([1.0, 2.0, 0.5], np.float32),
        "label": (np.arange(n) % 3).astype(np.int16),
        "is_train": np.arange(n) % 4 > 0,
    }
    kept = {name: value for name, value in {**arrays, **changes}.items() if value is not None}
    np.savez(path, **kept)
    return arrays


def test_a_path_belongs_to_the_data_set_it_names(tmp_path):
    assert find("feddr-table2", "photos") == {"cifar100": "photos"}
    assert find("feddr-table2", "cifar100=my=photos") == {"cifar100": "my=photos"}
    assert find("fedcof-table3") == {}
    with pytest.raises(HeadstartError, match="data: expected cifar100=PATH, cub200=PATH, got 'x'"):
        find("fedcof-table3", "x")
    with pytest.raises(HeadstartError, match="data: expected none, got 'x'"):
        find("thesis-table3.6", "x")


def test_images_serve_every_feature_set_of_their_data_set(monkeypatch, tmp_path):
    made = []

    def extracted(feature_set, path, progress):
        made.append((feature_set.extractor, feature_set.views, path))
        return Dataset("images", np.ones((4, 2)), np.arange(4) % 2)

    monkeypatch.setattr(sources, "holds_images", lambda path: path == "photos")
    monkeypatch.setattr(sources, "_extracted", extracted)
    found = find("best-training-free", "cub200=photos")
    assert list(found) == ["cub200", "cub200-lite2"]
    assert made == [
        ("mobilenet_v2", None, "photos"),
        ("efficientnet_lite2", "flip", "photos"),
    ]
    assert found["cub200"].test.sum() == 1  # a fifth, for there is no split


def test_features_in_8_bits_are_the_mean_of_both_views(tmp_path):
    arrays = save(tmp_path / "features.npz")
    (data,) = find("best-training-free", f"cub200-lite2={tmp_path / 'features.npz'}").values()
    views = [arrays["top"] * (arrays[name] / 255.0) ** 2 for name in ("features_q", "mirrored_q")]
    np.testing.assert_allclose(data.features, np.mean(views, axis=0), rtol=1e-5)
    assert np.array_equal(data.test, ~arrays["is_train"])
    assert np.array_equal(data.labels, arrays["label"])


def test_an_incomplete_file_of_8_bits_is_refused(tmp_path):
    save(tmp_path / "features.npz", top=None)
    with pytest.raises(DataError, match="got no top"):
        find("best-training-free", f"cub200-lite2={tmp_path / 'features.npz'}")


def test_the_usual_place_is_below_the_benchmark_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))
    place = tmp_path / sources.FEATURE_SETS["cub200-lite2"].file
    place.parent.mkdir()
    save(place)
    assert list(find("best-training-free")) == ["cub200-lite2"]


def test_feature_sets_side_by_side_must_be_of_the_same_samples():
    rng, labels = np.random.default_rng(0), np.arange(40) % 2
    test = np.arange(40) % 4 == 0
    sets = {
        "cub200": Dataset("a", rng.normal(size=(40, 3)), labels, test=test),
        "cub200-lite2": Dataset("b", rng.normal(size=(40, 2)), labels[::-1].copy(), test=test),
    }
    with pytest.raises(DataError, match="cub200: expected the same samples in cub200 and cub200-"):
        reproduce("best-training-free", sets)


def test_feature_sets_stand_side_by_side_each_of_unit_length():
    rng, labels = np.random.default_rng(0), np.arange(8) % 2
    sets = {
        "cub200": Dataset("a", rng.normal(size=(8, 3)), labels),
        "cub200-lite2": Dataset("b", rng.normal(size=(8, 2)), labels),
    }
    both = best_training_free.Representation(tuple(sets), "square root")
    z = both.of(sets).features
    assert z.shape == (8, 5)
    np.testing.assert_allclose(np.linalg.norm(z[:, :3], axis=1), 1, rtol=1e-6)
    signed = np.sign(sets["cub200-lite2"].features) * z[:, 3:] ** 2
    direction = signed / np.linalg.norm(signed, axis=1, keepdims=True)
    expected = sets["cub200-lite2"].features
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(direction, expected, rtol=1e-5)
