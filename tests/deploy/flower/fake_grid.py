"""A Grid in one process, for tests: nodes with contexts of their own, and faults by name.

Every message goes through Flower's own encoding, as between machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import make_message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from headstart import Fed3R
from headstart.deploy.admission import Contract
from headstart.deploy.flower import client
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.messages import Question, Reply
from headstart.deploy.flower.server import serve
from headstart.deploy.flower.settings import ServerSettings
from headstart.deploy.nodes import online
from headstart.federation import steps
from headstart.federation.simulator import Simulator, secret_of

EXACT = steps.measure(Fed3R(), exact=True, bound=1.0)


def carried(message: Message) -> Message:
    """The message as it arrives on another machine."""
    objects = {key: thing.deflate() for key, thing in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, objects)
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived


@dataclass
class FakeNode:
    """`fault`: "silent" never answers, "dead" is reported by Flower, a function spoils replies."""

    name: str
    config: dict
    key: bytes
    fault: str | Callable[[RecordDict], RecordDict] | None = None
    context: Context | None = None
    heard: list[Message] = field(default_factory=list)


class FakeGrid(Grid):
    def __init__(self, nodes: Iterable[FakeNode], *, newest_first: bool = False) -> None:
        self.nodes = {100 + at: node for at, node in enumerate(nodes)}
        self.newest_first = newest_first
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.replies: dict[str, Message] = {}
        for id_, node in self.nodes.items():
            node.context = Context(1, id_, node.config, RecordDict(), {})

    def add(self, node: FakeNode) -> None:
        id_ = 100 + len(self.nodes)
        node.context = Context(1, id_, node.config, RecordDict(), {})
        self.nodes[id_] = node

    def get_nodes(self):
        return [
            NodeInfo(node_id=id_, name=node.name, public_key=node.key)
            for id_, node in self.nodes.items()
        ]

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        id_, node = message.object_id, self.nodes[message.metadata.dst_node_id]
        arrived = carried(message)
        node.heard.append(arrived)
        if node.fault == "dead":
            reply = Message(Error(code=5, reason="Node Unavailable"), reply_to=arrived)
        elif node.fault == "silent":
            return id_
        else:
            reply = client.app(arrived, node.context)
            if callable(node.fault):
                reply = make_message(reply.metadata, content=node.fault(reply.content))
        self.replies[id_] = carried(reply)
        return id_

    def pull_messages(self, message_ids):
        ready = [id_ for id_ in message_ids if id_ in self.replies]
        if self.newest_first:
            ready.reverse()
        return [self.replies.pop(id_) for id_ in ready]

    # what Flower asks of a Grid and nobody here calls
    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError


def write_samples(path, client) -> str:
    """A client's samples as a node has them: a file of features, with its own test part."""
    parts = [(client.samples.features, client.samples.labels, "train")]
    if client.test is not None:
        parts.append((client.test.features, client.test.labels, "test"))
    np.savez(
        path,
        features=np.concatenate([z for z, _, _ in parts]),
        label=np.concatenate([y for _, y, _ in parts]),
        split=np.concatenate([np.full(len(y), said) for _, y, said in parts]),
    )
    return str(path)


def nodes_of(clients, folder, **config) -> list[FakeNode]:
    """A node a client: its data, and the secret that a simulation with seed 0 gives it."""
    found = []
    for name, data in clients.items():
        own = folder / name
        own.mkdir(mode=0o700)
        (own / "secret").write_bytes(secret_of(0, name))
        told = {
            "client": name,
            "data": write_samples(own / "samples.npz", data),
            "folder": str(own),
            "small": True,
            **config,
        }
        found.append(FakeNode(name, told, f"the public key of {name}".encode()))
    return found


def run_settings(tmp_path, **changes) -> ServerSettings:
    """What a run in this folder is told, of five nodes with the digits."""
    return ServerSettings(
        **{
            "pipeline": "fed3r",
            "dimension": 64,
            "bound": 1.0,
            "wanted": 5,
            "deadline": 0.5,
            "patience": 0.5,
            "ledger": str(tmp_path / "ledger"),
            "output": str(tmp_path / "out"),
            **changes,
        }
    )


def federation(nodes, **told):
    grid = FakeGrid(nodes, newest_first=told.pop("newest_first", False))
    names = {node.name: node.id for node in online(grid)}
    usual = {"deadline": 0.3, "poll": 0.01, "contract": Contract("1", EXACT.params, 64)}
    return FlowerFederation(grid, names, **{**usual, **told})


def solved(simulator):
    """The head of all clients, calibrated."""
    head = Fed3R().solve(simulator.total(EXACT).statistic)
    losses = simulator.total(steps.calibrate(), steps.with_head(head))
    return head.calibrated(losses.statistic.values)


def served(grid, told):
    return serve(grid, told, "run", poll=0.01)


def heard_of(node):
    """What the server last told a node of its upload."""
    lines = (Path(node.config["folder"]) / "receipts.jsonl").read_text().splitlines()
    return json.loads(lines[-1])


def asked_of(node):
    """The steps that a node was asked for."""
    told = (Question.from_content(message.content).step for message in node.heard)
    return [step.name for step in told if step is not None]


def digest(clients):
    return Simulator(clients).total(EXACT).statistic.digest()


def asked(nodes, question):
    """What a node says to a question."""
    content = question if isinstance(question, RecordDict) else question.to_content()
    over_grid = federation(nodes[:1])
    (id_,) = over_grid.grid.push_messages(
        [Message(content, dst_node_id=over_grid.nodes[nodes[0].name], message_type="query")]
    )
    (reply,) = over_grid.grid.pull_messages([id_])
    return Reply.from_content(reply.content, 10**6)
