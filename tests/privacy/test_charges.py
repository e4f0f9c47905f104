"""The budget of private releases: no damage to it is free, and two who charge it are in turn."""

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headstart import HeadstartError
from headstart.privacy.budget import Budget
from headstart.privacy.refusals import Abort

from .private_runs import NCM, TRUSTS, planned, private

DAMAGE = {
    "nan": '{"mu2": NaN}',
    "infinite": '{"mu2": Infinity}',
    "negative": '{"mu2": -1.0}',
    "nothing": '{"mu2": 0.0}',
    "true": '{"mu2": true}',
    "text": '{"mu2": "0.25"}',
    "cut": '{"mu2": 0.',
    "empty": "",
    "bytes": "\udcff",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_charge_is_one_line_and_nothing_is_released(tmp_path, damage):
    Budget(1.0, tmp_path).charge("mean-1", 0.5)
    (file,) = tmp_path.glob("*.json")
    spoiled = DAMAGE[damage].encode(errors="surrogateescape")
    file.write_bytes(spoiled)
    budget = Budget(1.0, tmp_path)
    for ask in (
        lambda: budget.charge("gram-1", 0.1),
        lambda: budget.check(0.1),
        lambda: budget.release("mean-1"),
        lambda: budget.keep("mean-1", b"release"),
    ):
        with pytest.raises(HeadstartError, match="damaged") as told:
            ask()
        assert "\n" not in str(told.value)
    assert file.read_bytes() == spoiled
    assert [path.name for path in tmp_path.glob("*.json")] == ["mean-1.json"]


@pytest.mark.parametrize("mu", [float("nan"), -0.5, 0.0, float("inf")])
def test_no_release_of_such_a_size_is_charged(tmp_path, mu):
    with pytest.raises(HeadstartError, match="μ"):
        Budget(1.0, tmp_path).charge("mean-1", mu)
    assert not list(tmp_path.glob("*.json"))


PROGRAM = """
import pathlib, sys
from headstart.privacy.budget import Budget
budget, start, who = Budget(1.0, pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), sys.argv[3]
print("ready", flush=True)
while not start.exists():
    pass
for number in range(20):
    try:
        budget.charge(f"{who}-{number}", 0.5)
        print("charged", flush=True)
    except ValueError as error:
        assert "left" in str(error), error
"""


def test_two_processes_charge_one_after_the_other(tmp_path):
    """Four releases of μ = 0.5 fill a budget of 1, whoever of four asks for them."""
    folder, start = tmp_path / "budget", tmp_path / "start"
    many = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(start), f"process{k}"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for k in range(4)
    ]
    for one in many:
        assert one.stdout.readline() == "ready\n"
    start.touch()
    said = [one.communicate(timeout=60)[0] for one in many]
    assert [one.returncode for one in many] == [0] * 4
    assert sum(text.count("charged") for text in said) == 4
    assert Budget(1.0, folder).spent == pytest.approx(1.0)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("trust", TRUSTS)
def test_of_those_who_ask_at_once_one_draws_noise(tmp_path, trust, kept):
    """The others have its release, or none; nobody has another one, and it is charged once."""
    many, plan = 4, planned(trust=trust)
    shared = Budget(plan.mu)
    start = threading.Barrier(many)

    def ask(number):
        one = private(trust, budget=Budget(plan.mu, tmp_path) if kept else shared)
        start.wait()
        try:
            return one.total(NCM).statistic.digest()
        except HeadstartError as error:
            return str(error)

    with ThreadPoolExecutor(many) as pool:
        found = set(pool.map(ask, range(many)))
    refused = {text for text in found if re.search("cut short|a new request|is left", text)}
    assert len(found - refused) <= 1
    assert (Budget(plan.mu, tmp_path) if kept else shared).spent <= plan.mu * (1 + 1e-9)


def test_the_check_and_the_charge_are_one(tmp_path, monkeypatch):
    """Another's charge between the two would be one too many: nobody else gets in."""
    first, second = Budget(1.0, tmp_path), Budget(1.0, tmp_path)
    check = Budget.check
    inside = []

    def checked(self, mu):
        check(self, mu)
        if self is first:
            program = (
                "import fcntl, os, sys\n"
                "handle = os.open(sys.argv[1], os.O_RDWR)\n"
                "try: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                "except BlockingIOError: print('held')\n"
            )
            run = [sys.executable, "-c", program, str(tmp_path / "budget.lock")]
            inside.append(subprocess.run(run, capture_output=True, text=True, check=True).stdout)

    monkeypatch.setattr(Budget, "check", checked)
    first.charge("mean-1", 0.9)
    assert inside == ["held\n"]
    with pytest.raises(Abort, match="left"):
        second.charge("mean-2", 0.9)
    assert json.loads((tmp_path / "mean-1.json").read_bytes())["mu2"] == pytest.approx(0.81)
