"""The configurations of a node and of a run are checked before anybody is asked."""

from __future__ import annotations

import numpy as np
import pytest

from headstart import HeadstartError
from headstart.deploy.flower.settings import NodeSettings, ServerSettings, told

from .fake_grid import FakeGrid, run_settings, served


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"client": "a"}, "data"),
        ({"data": "x"}, "client"),
        ({"client": "a", "data": "x"}, "folder"),
        ({"client": "a", "data": "x", "folder": "p", "train": "all"}, "train: expected one of"),
        ({"client": "a", "data": "x", "folder": "p", "calibrate": -1}, "a number of questions"),
        ({"client": "a", "data": "x", "colour": "red"}, "unknown key 'colour'"),
        ({"client": "a", "data": "x", "held-out": "half"}, "held-out: expected a float"),
        ({"client": "a", "data": "x", "small": 1}, "small: expected a bool"),
        ({"client": "a", "data": "x", "seed": True}, "seed: expected a int"),
        ({"client": "a", "data": "x", "small.too": 1}, "unknown key"),
    ],
)
def test_a_nodes_configuration_is_checked(values, said):
    with pytest.raises(HeadstartError, match=said):
        told(NodeSettings, values, "node")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dimension": 0}, "dimension"),
        ({"wanted": 0}, "wanted"),
        ({"deadline": 0.0}, "deadline"),
        ({"output": ""}, "output"),
        ({"pipeline": "Fed4R"}, "fed3r"),
        ({"patience": -1.0}, "patience"),
        ({"pipeline": "none + FedAvg-1(head)"}, "begins with a head"),
    ],
)
def test_a_runs_configuration_is_checked(tmp_path, changes, said):
    with pytest.raises(HeadstartError, match=said):
        served(FakeGrid([]), run_settings(tmp_path, **changes))


def test_test_samples_of_another_dimension_are_refused_before_anybody_is_asked(nodes, tmp_path):
    np.savez(tmp_path / "test.npz", features=np.ones((3, 5)), label=np.arange(3))
    with pytest.raises(HeadstartError, match="test-data: expected features of dimension 64, got 5"):
        served(FakeGrid(nodes), run_settings(tmp_path, test_data=str(tmp_path / "test.npz")))
    assert not any(node.heard for node in nodes)


def test_caps_and_words_of_a_run_come_flat(tmp_path):
    values = {"dimension": 3, "ledger": "a", "output": "b", "test-data": "c", "caps.site-a": 7}
    found = told(ServerSettings, values, "run")
    assert found.caps == {"site-a": 7}
    assert found.test_data == "c"
