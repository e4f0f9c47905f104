"""Plugin files and entry points from end to end: heads and methods that lie outside the package."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import headstart as hs
from headstart import registry
from headstart.errors import HeadstartError
from headstart.federation.protocol import STEPS, step_kind
from headstart.pipeline.config import make_config, read_config
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.run import compare, run_config

PLUGINS = Path(__file__).parent / "plugin_files"
NAMES = ("centred.py", "fed_nesterov.py", "largest.py")
HEAD, METHOD, STEP = ((PLUGINS / name).read_text() for name in NAMES)
SPLIT = {"data": "digits", "partition": {"name": "iid", "clients": 4}, "curve_points": 2}


@pytest.fixture
def files(tmp_path):
    head, method = tmp_path / "centred.py", tmp_path / "fed_nesterov.py"
    head.write_text(HEAD)
    method.write_text(METHOD)
    return head, method


@pytest.fixture
def headstart(tmp_path):
    def call(*arguments, code=0):
        command = [sys.executable, "-m", "headstart", *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr.strip()

    return call


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- the command line ------------------------------------------------------------------------------


def test_a_head_and_a_method_of_two_files_are_compared(headstart, files, tmp_path):
    head, method = files
    loaded = ("--plugin", head.name, "--plugin", method)
    texts = ("CentredMeans + FedNesterov-2(head)", "Fed3R")
    said = headstart("compare", *texts, "--data", "digits", *loaded, "--out", "out")
    assert "centred-means + fed-nesterov-2(ψ)" in said
    kept = yaml.safe_load((tmp_path / "out" / "01" / "config.yaml").read_text())
    assert kept["plugins"] == [
        {"path": str(path), "sha256": digest(path)} for path in (head, method)
    ]
    assert headstart("compare", *texts, "--data", "digits", *loaded, "--out", "out") == said
    again = headstart("compare", *texts, "--data", "digits", "--out", "out", code=2)
    assert "\n" not in again
    assert f"give --plugin {head}" in again


def test_a_fitted_head_of_a_file_goes_on_only_with_that_file(headstart, files, tmp_path):
    head, _ = files
    fit = ("fit", "--data", "digits", "--head", "centred-means", "--plugin", head, "--out", "out")
    assert "Centred means" in headstart(*fit)
    assert "accuracy" in headstart("evaluate", "out", "--data", "digits")  # a model needs no code
    for arguments in (
        ("forget", "out", "client-00"),
        ("add", "out", "--data", "x", "--client", "y"),
    ):
        said = headstart(*arguments, code=2)
        assert "\n" not in said
        assert f"plugin: expected {head}" in said
        assert f"give --plugin {head}" in said
    assert "client-00 is out" in headstart("forget", "out", "client-00", "--plugin", head)
    head.write_text(HEAD + "# changed\n")
    said = headstart("forget", "out", "client-01", "--plugin", head, code=2)
    assert "\n" not in said
    assert f"plugin: {head} has changed: its SHA-256 was " in said


def test_a_run_folder_never_has_its_plugins_loaded(headstart, files, tmp_path):
    head, _ = files
    headstart(
        "fit", "--data", "digits", "--head", "centred-means", "--plugin", head, "--out", "out"
    )
    config = tmp_path / "out" / "config.yaml"
    evil = tmp_path / "evil.py"
    evil.write_text("open('executed', 'w')\n")
    kept = yaml.safe_load(config.read_text())
    kept["plugins"] = [{"path": str(evil), "sha256": digest(evil)}]
    config.write_text(yaml.safe_dump(kept))
    said = headstart("forget", "out", "client-00", "--plugin", head, code=2)
    assert f"give --plugin {evil}" in said
    headstart("run", config, "--plugin", head, code=2)
    assert not (tmp_path / "executed").exists()


def test_list_says_where_everything_comes_from(headstart, files, distribution):
    head, _ = files
    broken = {"headstart.heads": {"lost": "installed:Lost"}}
    distribution("their-dist", HEAD.replace("centred-means", "theirs"), broken)
    said = headstart("list", "--plugin", head, "--plugin", PLUGINS / "largest.py")
    rows = {line.split()[1]: line for line in said.splitlines() if len(line.split()) > 2}
    assert "plugin" in rows["largest"]
    assert "package" in rows["update"]
    assert "package" in rows["fed3r"]
    assert "plugin" in rows["centred-means"]
    assert "entry point" in rows["lost"]
    assert "cannot load" in " ".join(said.split())


def test_what_is_no_plugin_is_one_line(headstart, tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_of_this_name\n")
    for file, said in (("bad.py", "line 1: ModuleNotFoundError"), ("gone.py", "cannot read")):
        line = headstart("compare", "Fed3R", "--data", "digits", "--plugin", file, code=2)
        assert line.startswith("error: plugin: ")
        assert said in line
        assert "\n" not in line
    assert "--plugin" in headstart("ledger", "list", "--help")


# -- configurations --------------------------------------------------------------------------------


@pytest.mark.usefixtures("registered")
def test_a_configuration_names_plugins(files, tmp_path):
    head, _ = files
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump({**SPLIT, "pipeline": "centred-means", "plugins": [str(head)]})
    )
    config = read_config(tmp_path / "c.yaml")
    assert [(one.path, one.sha256) for one in config.plugins] == [(str(head), digest(head))]
    assert [one.path for one in registry.plugins()] == [head]
    run_config(config, tmp_path / "out")
    assert RunFolder(tmp_path / "out").head().name == "centred-means"
    assert make_config(SPLIT).plugins == config.plugins  # whatever the process has loaded
    for wrong in (3, {"path": "x.py"}, [["x.py"]]):
        with pytest.raises(hs.HeadstartError, match=r"plugins: expected paths of \.py files, got"):
            make_config({**SPLIT, "plugins": wrong})


@pytest.mark.usefixtures("registered")
def test_a_run_goes_on_with_the_same_bytes_wherever_they_lie(files, tmp_path):
    _, method = files
    config = make_config({**SPLIT, "cohort": 2, "plugins": str(method)})
    pipelines = ["none + FedNesterov-1(head)"]
    before = compare(pipelines, config, tmp_path / "out")
    kept = (tmp_path / "out" / "config.yaml").read_bytes()
    registry._unload("headstart_plugin_fed_nesterov")
    with pytest.raises(hs.HeadstartError, match=f"was begun with a plugin: .* --plugin {method}"):
        compare(pipelines, make_config({**SPLIT, "cohort": 2}), tmp_path / "out")
    (tmp_path / "moved").mkdir()
    other = method.rename(tmp_path / "moved" / method.name)
    more = tmp_path / "one_more.py"
    more.write_text(METHOD.replace("fed_nesterov", "fed_third"))
    config = make_config({**SPLIT, "cohort": 2, "plugins": [other, more]})
    assert compare(pipelines, config, tmp_path / "out") == before
    assert (tmp_path / "out" / "config.yaml").read_bytes() == kept


def test_a_run_without_plugins_says_nothing_of_them(tmp_path):
    run_config(make_config(SPLIT), tmp_path / "out")
    assert "plugins" not in (tmp_path / "out" / "config.yaml").read_text()


# -- entry points ----------------------------------------------------------------------------------


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Install a distribution of one module, `installed`, on the path of child processes."""

    def install(name, source, groups):
        site = tmp_path / "site"
        info = site / f"{name.replace('-', '_')}-2.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1\n")
        lines = []
        for group, points in groups.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines))
        (site / "installed.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")

    return install


def test_installed_distributions_bring_heads_and_methods(headstart, distribution):
    source = HEAD.replace("@hs.register_head\n", "") + METHOD.replace("@hs.register_method\n", "")
    distribution(
        "their-dist",
        source,
        {
            "headstart.heads": {"centred-means": "installed:CentredMeans"},
            "headstart.methods": {"fed-nesterov": "installed:fed_nesterov", "lost": "nowhere:lost"},
        },
    )
    said = headstart("compare", "CentredMeans + FedNesterov-1(head)", "Fed3R", "--data", "digits")
    assert "centred-means + fed-nesterov-1(ψ)" in said
    line = headstart("compare", "Lost-1(head)", "Fed3R", "--data", "digits", code=2)
    assert "cannot load 'lost', the entry point of their-dist 2.1" in line
    assert "\n" not in line


def test_a_decorated_loss_is_published_by_its_function(headstart, distribution):
    source = """
import headstart as hs

@hs.register_loss(references=1)
def angle(seen, term):
    import torch
    return seen.mean(1 - torch.cosine_similarity(seen.scores, seen.received.scores, dim=-1))
"""
    distribution("their-dist", source, {"headstart.losses": {"angle": "installed:angle"}})
    texts = ("none + FedAvg-2(head, term=angle)", "none + FedAvg-2(head)")
    assert "term=angle" in headstart("compare", *texts, "--data", "digits")


# -- steps -----------------------------------------------------------------------------------------


def test_a_step_of_a_file_is_asked_for_by_name(tmp_path):
    path = tmp_path / "largest.py"
    path.write_text(STEP)
    loaded = hs.load_plugin(path)
    try:
        assert loaded.names == ("step largest",)
        clients = {
            name: hs.ClientData(hs.ArraySamples(np.full((n, 2), float(n)), np.zeros(n, int)))
            for name, n in {"a": 3, "b": 0, "c": 5}.items()
        }
        answer = hs.Simulator(clients).total(hs.Step("largest"))
        assert answer.statistic.values.tolist() == [8.0, 2.0]
        kind = step_kind("largest")
        assert kind.answer_type(hs.Step("largest")) is hs.Tally
        assert kind.discloses == "a maximum is one sample's own number"
        with pytest.raises(HeadstartError, match=r"^step: expected 'largest', got 'Largest'$"):
            step_kind("Largest")  # names travel, and are compared: there is one spelling
    finally:
        registry._unload("headstart_plugin_largest")
    with pytest.raises(HeadstartError, match=r"^step: expected one of calibrate, .*'largest'"):
        step_kind("largest")


def test_an_installed_distribution_brings_a_step(headstart, distribution):
    distribution("their-dist", STEP, {"headstart.steps": {"largest": "installed:largest"}})
    said = headstart("list")
    rows = [line for line in said.splitlines() if line.startswith("step")]
    assert any("largest" in row and "entry point of" in row for row in rows)
    assert "The largest feature" in said


def test_what_is_no_step_is_refused():
    with pytest.raises(HeadstartError, match="expected one that @register_step has registered"):
        STEPS.add(lambda client, params, broadcast: None, name="bare")
