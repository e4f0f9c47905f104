"""A node's private files, damaged: one line to its owner, nothing answered, nothing overwritten."""

import json

import numpy as np
import pytest

from headstart.deploy.admission import UploadRejected
from headstart.deploy.flower import client as node_half
from headstart.deploy.flower.budget import FILE, KINDS, Budget
from headstart.deploy.flower.client import Memories, remembered
from headstart.errors import HeadstartError
from headstart.statistics import wire

MARK = "a" * 64
COUNTS = {
    "nan": '{"version": 1, "asked": {"measure": NaN}}',
    "a number": '{"version": 1, "asked": {"measure": -3}}',
    "text for a list": '{"version": 1, "asked": {"measure": "abc"}}',
    "an object for a list": '{"version": 1, "asked": {"measure": {"a": 1}}}',
    "no marks": '{"version": 1, "asked": {"measure": [null, 3]}}',
    "a mark twice": json.dumps({"version": 1, "asked": {"measure": [MARK, MARK]}}),
    "another kind": json.dumps({"version": 1, "asked": {"measur": [MARK]}}),
    "true for a version": '{"version": true, "asked": {}}',
    "a list": "[]",
    "nothing": "",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("damage", COUNTS)
def test_a_damaged_count_is_one_line_and_stays_as_it_is(tmp_path, damage):
    budget = Budget(tmp_path, dict.fromkeys(KINDS, 8))
    (tmp_path / FILE).write_text(COUNTS[damage])
    with pytest.raises(HeadstartError, match="damaged") as told:
        budget.spend("measure", MARK)
    assert "\n" not in str(told.value)
    assert not isinstance(told.value, UploadRejected)
    with pytest.raises(HeadstartError, match="damaged"):
        budget.left()
    assert (tmp_path / FILE).read_text() == COUNTS[damage]


def memories_file(about, **arrays):
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    return wire.encode("memories", {"about": np.frombuffer(text, np.uint8), **arrays})


ABOUT = {"training": "1/a", "turn": 2, "before_turn": 1}
MEMORIES = {
    "nothing": b"",
    "cut": memories_file(ABOUT, **{"now/model": np.ones(3)})[:-4],
    "without about": wire.encode("memories", {"now/model": np.ones(3)}),
    "about that is no JSON": memories_file(b"{"),
    "about that is a list": memories_file([]),
    "a key too few": memories_file({"training": "1/a", "turn": 2}),
    "a key too many": memories_file({**ABOUT, "now": {}}),
    "turns that are text": memories_file({**ABOUT, "turn": "2"}),
    "turns below 0": memories_file({**ABOUT, "turn": -2}),
    "a training that is none": memories_file({**ABOUT, "training": None}),
    "another place": memories_file(ABOUT, **{"later/model": np.ones(3)}),
    "no place": memories_file(ABOUT, model=np.ones(3)),
}


@pytest.mark.parametrize("damage", MEMORIES)
def test_damaged_memories_are_one_line(tmp_path, damage):
    path = tmp_path / node_half._MEMORIES_FILE
    path.write_bytes(MEMORIES[damage])
    with pytest.raises(HeadstartError, match=r"^memories: .*damaged") as told:
        remembered(tmp_path)
    assert "\n" not in str(told.value)
    assert path.read_bytes() == MEMORIES[damage]


def test_memories_come_back_as_they_were(tmp_path):
    node_half.remember(Memories("1/a", 2, 1, {"model": np.ones(3)}, {}), tmp_path)
    found = remembered(tmp_path)
    assert (found.training, found.turn, found.before_turn) == ("1/a", 2, 1)
    assert np.array_equal(found.now["model"], np.ones(3))
    assert not found.before
