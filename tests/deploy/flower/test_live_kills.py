"""A node is killed at every stage of a live secure sum; every round has fresh nodes and data."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from headstart import Fed3R
from headstart.cli.deploy import app
from headstart.data.samples import ArraySamples
from headstart.deploy.ledger import Ledger
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator

from . import test_live
from .test_live import Stage, asked_for, finished, free_port, online, until, write_csv

STAGES = ("advertise", "share", "mask", "confirm", "unmask")
STEP = steps.measure(Fed3R(ridge="gcv"), exact=True, bound=1.0)


def fresh(root, stage, number):
    """Four new nodes with data of their own."""
    rng, found = np.random.default_rng(number), {}
    for k in range(4):
        name = f"{stage}-{k}"
        if number:
            made = CliRunner().invoke(app, ["node", str(root), name])
            assert made.exit_code == 0, made.output
        x, y = np.round(rng.uniform(size=(30 + k, 8)), 4), np.arange(30 + k) % 3
        write_csv(root / "nodes" / name / "samples.csv", x, y)
        found[name] = ClientData(ArraySamples(x.astype(np.float32), y))
    return found


@pytest.mark.long
def test_a_node_may_be_killed_at_every_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(test_live, "LONGEST", 1800)  # ten messages to every node, on any machine
    port, root = free_port(), tmp_path / "fed"
    (tmp_path / "classes.txt").write_text("0\n1\n2")
    told = ["init", str(root), "--dimension", "8", "--bound", "1.0", "--secure"]
    told += ["--address", f"127.0.0.1:{port}", "--class-list", str(tmp_path / "classes.txt")]
    for k in range(4):
        told += ["--node", f"{STAGES[0]}-{k}"]
    made = CliRunner().invoke(app, told)
    assert made.exit_code == 0, made.output
    with Stage(root, port) as stage:
        data = fresh(root, STAGES[0], 0)
        link = stage.server(*data)
        for number, at in enumerate(STAGES):
            if number:
                data = fresh(root, at, number)
                asked = [stage.start("operator/register.sh", name) for name in data]
                assert not any(one.wait() for one in asked), [one.said() for one in asked]
            nodes = [stage.node(name) for name in data]
            online(nodes, link)
            output = root / at
            place = f'ledger="{output / "ledger"}" output="{output}" nodes="{" ".join(data)}"'
            run = stage.run("-c", f"{place} wanted=4 patience=2.0")
            until(lambda a=at, o=output: asked_for(a, o), at, run, link, *nodes)
            nodes[3].kill()
            result = finished(1, run, output, link)
            for one in nodes[:3]:
                one.kill()
            check(result, output, data, gone=list(data)[3], before=number <= 2)


def check(result, output, data, *, gone, before):
    """Without the vector of the node that was killed, or with it; the simulator's digest."""
    stayed = {name: client for name, client in data.items() if name != gone or not before}
    expected = Simulator(stayed).total(STEP).statistic.digest()
    assert result.head.digest == expected, gone
    with Ledger.open(output / "ledger", write=False) as ledger:
        (entry,) = ledger.entries()
    assert sorted(entry.clients) == sorted(stayed)
    assert gone in {failure.client for failure in result.failures}
