"""Heads and methods of plugin files run on nodes that have loaded the same files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart import HeadstartError, LinearHead, registry
from headstart.deploy.ledger import Ledger
from headstart.federation.protocol import Step
from headstart.pipeline.config import parsed
from headstart.pipeline.run import simulate
from headstart.results import SeedResult

from .fake_grid import (
    EXACT,
    FakeGrid,
    federation,
    run_settings,
    served,
)

CENTRED = Path(__file__).parents[2] / "plugin_files" / "centred.py"


HALF = CENTRED.with_name("fed_nesterov.py")


def other_plugin(folder, name="centred.py"):
    """A file of the same name, which says so when it is executed."""
    folder.mkdir()
    path = folder / name
    mark = f"from pathlib import Path\nPath({str(folder / 'executed')!r}).touch()\n"
    path.write_text(f"{CENTRED.read_text()}\n{mark}")
    return path


@pytest.fixture
def plugged(nodes):
    for node in nodes:
        node.config["plugins"] = f"{CENTRED}, {HALF}"
    return nodes


@pytest.mark.usefixtures("registered")
def test_a_head_and_a_method_of_plugin_files_run_on_nodes(experiment, plugged, tmp_path):
    said = "centred-means + fed-nesterov-2(ψ)"
    settings = run_settings(tmp_path, pipeline=said, plugins=f"{CENTRED},{HALF}", cohort=3)
    results = served(FakeGrid(plugged), settings)
    assert [point.round for point in results.curve] == [0, 1, 2]
    with Ledger.open(Path(settings.ledger), write=False) as ledger:
        assert ledger.contract.plugins == {
            path.name: registry.digest_of(path.read_bytes()) for path in (CENTRED, HALF)
        }
        assert (
            ledger.total().digest()
            == experiment.federation.total(Step("measure", ledger.contract.step)).statistic.digest()
        )
    alone = replace(experiment, federation=replace(experiment.federation, together=False))
    _, state, _ = simulate(alone, parsed(said))
    ours = LinearHead.load(tmp_path / "out" / "model.safetensors")
    assert np.array_equal(ours.weights, state.params["head.weight"].astype(np.float64))


@pytest.mark.usefixtures("registered")
def test_a_node_with_another_plugin_file_is_refused_in_a_line(plugged, tmp_path):
    other = other_plugin(tmp_path / "other")
    plugged[1].config["plugins"] = str(other)
    plugged[2].config["plugins"] = ""
    plugged[3].config["plugins"] = str(tmp_path / "not_here.py")
    settings = run_settings(tmp_path, pipeline="centred-means", plugins=str(CENTRED), wanted=2)
    served(FakeGrid(plugged), settings)
    with Ledger.open(Path(settings.ledger), write=False) as ledger:
        assert set(ledger.members()) == {plugged[0].name, plugged[4].name}
    found = SeedResult.from_json((Path(settings.output) / "results.json").read_bytes())
    said = {failure.client: (failure.code, failure.text) for failure in found.failures}
    code, text = said[plugged[1].name]
    assert code == "plugin"
    assert "\n" not in text
    assert "expected the server's centred.py (SHA-256 " in text
    assert f"got another (SHA-256 {registry.digest_of(other.read_bytes())[:12]}…)" in text
    assert "got none in node.toml" in said[plugged[2].name][1]
    assert "the log of this node says why" in said[plugged[3].name][1]
    assert str(tmp_path) not in said[plugged[3].name][1]
    assert not (tmp_path / "other" / "executed").exists()


@pytest.mark.usefixtures("registered")
def test_a_node_loads_what_its_own_configuration_names_and_nothing_else(nodes, tmp_path):
    """Whatever a server says in a question."""
    other = other_plugin(tmp_path / "other")
    named = {str(other): registry.digest_of(other.read_bytes())}
    over_grid = federation(nodes, plugins=named)
    assert list(over_grid.answers(EXACT)) == []
    assert {failure.code for failure in over_grid.failures} == {"plugin"}
    assert not (tmp_path / "other" / "executed").exists()
    assert registry.plugins() == ()
    nodes[0].config["plugins"] = str(other)
    assert [answer.clients for answer in over_grid.answers(EXACT)] == [(nodes[0].name,)]
    assert (tmp_path / "other" / "executed").exists()


@pytest.mark.usefixtures("registered")
def test_a_ledger_asks_for_the_plugins_it_was_begun_with(plugged, tmp_path):
    settings = run_settings(tmp_path, pipeline="centred-means", plugins=str(CENTRED))
    served(FakeGrid(plugged), settings)
    registry._unload("headstart_plugin_centred")
    registry._unload("headstart_plugin_fed_nesterov")
    with pytest.raises(HeadstartError, match=r"plugin: expected centred\.py .*; give --plugin"):
        Ledger.open(Path(settings.ledger), write=False)
    other = other_plugin(tmp_path / "other")
    with pytest.raises(HeadstartError, match=r"plugin: .*/other/centred\.py has changed"):
        served(FakeGrid(plugged), replace(settings, plugins=str(other)))
