"""Every head and every method gives what it gave: the baseline that changes of shape are held to.

`python scripts/golden.py tests/golden.json` makes it anew where a result is meant to change.
"""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAMPLES = {"digits": 0.01, "pictures": 0.16}  # accuracies that another CPU's rounding may move


@pytest.fixture(scope="module")
def golden():
    spec = importlib.util.spec_from_file_location("golden", ROOT / "scripts" / "golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_paths_give_what_they_gave(golden):
    before = json.loads((ROOT / "tests" / "golden.json").read_text(encoding="utf-8"))
    now = golden.record(bits=False)
    assert now.keys() == before.keys()
    for name, found in now.items():
        where, was = name.partition(":")[0], before[name]
        assert found.get("total") == was.get("total") or where == "pictures", name
        assert {key: found[key] for key in ("up", "down", "flops")} == {
            key: was[key] for key in ("up", "down", "flops")
        }, name
        for key in ("accuracy", "before", "after"):
            assert found[key] == pytest.approx(was[key], abs=SAMPLES[where]), (name, key)
