"""Nodes that are members of masked groups, with signing keys of their own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from headstart.data.samples import ArraySamples
from headstart.deploy.admission import Contract
from headstart.errors import WireError
from headstart.federation.protocol import ClientData, perform
from headstart.privacy.keys import read_keys, verifying_key
from headstart.privacy.layout import Layout
from headstart.privacy.masked import task_of
from headstart.privacy.server import Server
from headstart.privacy.terms import Terms
from headstart.privacy.unit_sums import without_noise

from .fake_grid import EXACT, FakeGrid, federation, nodes_of, run_settings, served


def classes_file(tmp_path) -> str:
    path = tmp_path / "classes.txt"
    path.write_text("\n".join(map(str, range(10))))
    return str(path)


def signing(nodes, tmp_path) -> str:
    """Gives every node a key and the public ones of all; the file of the latter."""
    private = {node.name: bytes([at + 1]) * 32 for at, node in enumerate(nodes)}
    peers = tmp_path / "peers.json"
    known = {name: verifying_key(key).hex() for name, key in private.items()}
    peers.write_text(json.dumps(known))
    for node in nodes:
        key = Path(node.config["folder"]) / "sign.key"
        key.write_bytes(private[node.name])
        node.config |= {"sign": str(key), "peers": str(peers)}
    return str(peers)


def members(clients, tmp_path, *, signed=True, **config):
    """Nodes of these clients, and the settings of a secure run of them."""
    nodes = nodes_of(clients, tmp_path, **{"small": False, **config})
    told = {"secure": True, "class_list": classes_file(tmp_path), "wanted": len(nodes)}
    told |= {"peers": signing(nodes, tmp_path)} if signed else {}
    return nodes, told


def known(told):
    """The keys that the settings of a run name."""
    return read_keys(json.loads(Path(told["peers"]).read_text())) if "peers" in told else None


def run(nodes, tmp_path, **told):
    return served(FakeGrid(nodes), run_settings(tmp_path, **told))


class Hostile:
    """A server that asks members what it likes, a stage at a time."""

    def __init__(self, nodes, *, known=None, step=EXACT, dimension=64, classes=range(10), **how):
        contract = Contract("1", EXACT.params, dimension)
        self.federation = federation(nodes, deadline=5.0, contract=contract)
        self.step, self.broadcast = step, how.pop("broadcast", {})
        names = sorted(how.pop("names", self.federation.nodes))
        blank = ClientData(ArraySamples(np.zeros((0, dimension)), np.zeros(0, np.int64)))
        plain, noise = without_noise(step)
        layout = Layout.of(perform(plain, blank, self.broadcast), classes)
        told = {"signed": known is not None, "task": task_of(step, self.broadcast), "noise": noise}
        told |= {"threshold": len(names) * 2 // 3 + 1, "samples": 100_000}
        self.terms = Terms.plan(names, layout, **{**told, **how})
        self.server = Server(self.terms, known=known, least=2)
        self.asked = dict.fromkeys(names, b"")

    task = staticmethod(task_of)

    def ask(self, name, asked, *, terms=None, step=None, broadcast=None):
        """What a node says to a stage; its refusal, if it refuses."""
        words = self.broadcast if broadcast is None else broadcast
        terms = (terms or self.terms).to_bytes()
        ((_, found),) = self.federation.stage(step or self.step, words, terms, {name: asked}, 1)
        return found

    def stage(self, gone=()):
        """All but the gone answer, and the stage is closed."""
        for name, asked in self.asked.items():
            if name not in gone:
                found = self.ask(name, asked)
                if isinstance(found, WireError):
                    raise found
                self.server.receive(name, found)
        self.asked = self.server.close()
        return self

    def until(self, stage):
        while self.server.stage != stage:
            self.stage()
        return self

    def code(self, name, asked, **how):
        found = self.ask(name, asked, **how)
        return found.code if isinstance(found, WireError) else "answered"
