"""Head fine-tuning here, and the same job in Flower's own simulation, in one run.

100 clients of digits' size, 10 per round. Both sides run the same client step and the same server
loop; what differs is who carries the messages. Flower's engine is started once; its start is shown
apart and not counted. Needs the extras `flower` and `ray`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from headstart.deploy.flower.messages import Question, Reply, packed
from headstart.federation.protocol import (
    Answer,
    Arrays,
    Step,
    added,
    broadcast_bytes,
    perform,
    step_kind,
)
from headstart.federation.simulator import Simulator, secret_of
from headstart.gradient.engine import Training
from headstart.gradient.loop import Plan, begin, rounds
from headstart.gradient.models import Spec, build, initial
from headstart.gradient.steps import Job
from rounds import CLIENTS, COHORT, federation

DIMENSION, CLASSES, MEAN = 64, 10, 14
JOB = Job("fedavg", Spec(CLASSES, DIMENSION), Training(rate=0.01))


def train(clients: Any, count: int) -> tuple[float, np.ndarray]:
    """Seconds per round, and the head."""
    state = begin(JOB, initial(build(JOB.spec), None, 0))
    began = time.perf_counter()
    *_, end = rounds(JOB, Plan(count, COHORT), clients, np.arange(CLASSES), state)
    return (time.perf_counter() - began) / count, end.params["head.weight"]


def client_app() -> ClientApp:
    app, held = ClientApp(), federation(DIMENSION, CLASSES, MEAN, CLIENTS).data

    @app.query()
    def query(message: Message, context: Context) -> Message:
        name = str(context.node_config["partition-id"])
        asked = Question.from_content(message.content)
        assert asked.step is not None
        own = replace(held[name], secret=secret_of(0, name))
        found = perform(asked.step, own, asked.broadcast)
        return Message(content=Reply(name, found.to_bytes()).to_content(), reply_to=message)

    return app


@dataclass
class OverGrid:
    """As little as a federation needs, so that the messages are all there is to time."""

    grid: Grid
    nodes: dict[str, int] = field(default_factory=dict)

    @property
    def clients(self) -> Sequence[str]:
        return tuple(self.nodes)

    def answers(self, step: Step, broadcast: Arrays, cohort: Sequence[str]) -> Iterator[Answer]:
        arrays, question = packed(broadcast), Question(step)
        waiting = set(
            self.grid.push_messages(
                [
                    Message(
                        content=question.to_content(arrays),
                        message_type=MessageType.QUERY,
                        dst_node_id=self.nodes[name],
                    )
                    for name in cohort
                ]
            )
        )
        kind, down = step_kind(step.name).answer_type(step), sum(broadcast_bytes(step, broadcast))
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                found = Reply.from_content(reply.content, 2**30)
                statistic, up = kind.from_bytes(found.payload), len(found.payload)
                yield Answer((found.client,), statistic, up, down, found.payload)
            time.sleep(0.001)

    def total(self, step: Step, broadcast: Arrays, cohort: Sequence[str]) -> Answer:
        return added(self.answers(step, broadcast, cohort))


def in_flower(count: int) -> tuple[float, float]:
    """Seconds per round in Flower's simulation, and seconds until the first round was through."""
    app, found = ServerApp(), {}
    began = time.perf_counter()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < CLIENTS:
            time.sleep(0.05)
        over = OverGrid(grid, {str(at): node for at, node in enumerate(grid.get_node_ids())})
        train(over, 1)
        found["start"] = time.perf_counter() - began
        found["round"], _ = train(over, count)

    options = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(app, client_app(), CLIENTS, backend_config=options)
    return found["round"], found["start"]


def best(side: Simulator, count: int) -> float:
    return min(train(side, count)[0] for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    held = federation(DIMENSION, CLASSES, MEAN, CLIENTS)
    sides = {
        "together": Simulator(held.data),
        "one at a time": Simulator(held.data, together=False),
    }
    ours = {
        name: min(train(side, args.rounds)[0] for _ in range(3)) for name, side in sides.items()
    }
    theirs, start = in_flower(args.rounds)
    print(f"a round of {COHORT} of {CLIENTS} clients (d = {DIMENSION}, C = {CLASSES}):")
    for name, seconds in ours.items():
        print(f"  here, {name}: {1e3 * seconds:.2f} ms; Flower / here = {theirs / seconds:.0f}")
    print(f"  Flower's simulation: {1e3 * theirs:.1f} ms (its start, not counted: {start:.1f} s)")


if __name__ == "__main__":
    main()
