"""The client's half: one query, any step; the same work that a simulated client does.

    clientapp = "headstart.deploy.flower.client:app"

What a node has is in its own configuration (`node.toml`), what it remembers of a training in
Flower's state of this node, and its secret in a private file, so that a retry sends the same bytes.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from headstart import heads, threads
from headstart.deploy.door import check_small_client
from headstart.deploy.flower.messages import Question, Reply
from headstart.deploy.flower.samples import Samples, load_samples
from headstart.deploy.flower.settings import NodeSettings, told
from headstart.deploy.private import SECRET_BYTES, kept_secret, private_folder
from headstart.errors import HeadstartError
from headstart.federation.protocol import ClientData, Step, perform, step_kind
from headstart.files import write_text
from headstart.statistics.base import Summable

log = logging.getLogger("flwr")
app = ClientApp()
_MEMORY, _BEFORE = "headstart.memory", "headstart.before"
_OWN, _TRAINING = "headstart.own", "headstart.training"

_ADVICE = (
    "Over Flower there are no secure sums yet: collect more samples, join with a colleague's site, "
    "or set small = true in node.toml, knowing what it shows"
)


@app.query()
def query(message: Message, context: Context) -> Message:
    return Message(content=answer(message, context).to_content(), reply_to=message)


def answer(message: Message, context: Context) -> Reply:
    """What this client says to one question; a reason where it says nothing."""
    name, nonce = str(context.node_config.get("client", "")), ""
    try:
        question = Question.from_content(message.content)
        nonce = question.nonce
        node = told(NodeSettings, context.node_config, "node")
        if question.news is not None:
            hear(node, question.news)
        if question.step is None:
            return Reply(name, nonce=nonce)
        samples = own_samples(node)
        payload = work(question, question.step, samples.client, node, context)
        return Reply(name, payload, samples.extractor, nonce=nonce)
    except HeadstartError as error:
        log.error("headstart: %s", error)
        code = getattr(error, "code", "failed")
        return Reply(name, code=code, text=str(error), nonce=nonce)
    except Exception as error:  # its text may hold samples: it stays in this node's own log
        log.exception("headstart: the step failed")
        text = f"client: failed ({type(error).__name__})"
        return Reply(name, code="failed", text=text, nonce=nonce)


def own_samples(node: NodeSettings) -> Samples:
    """Errors of a reader quote what they read: they stay in this node's own log."""
    try:
        return load_samples(node)
    except HeadstartError as error:
        log.error("headstart: %s", error)
        raise HeadstartError("data: cannot be used; the log of this node says why") from None


def work(
    question: Question, step: Step, client: ClientData, node: NodeSettings, context: Context
) -> bytes:
    """The bytes of the answer to a step; what the client is to remember is put in its state."""
    may_send(step, client, node)
    memories = Memories(context)
    remembered = memories.at(question)
    own = ClientData(
        client.features,
        client.labels,
        client.test_features,
        client.test_labels,
        secret(node, context),
        dict(remembered),
    )
    with threads.for_size(len(own.labels)):
        found = perform(step, own, question.broadcast)
        data = encoded(found, question.precision)
    if any(remembered.get(key) is not array for key, array in own.memory.items()):
        memories.keep(question, remembered, own.memory)
    return data


def encoded(found: Summable, precision: str | None) -> bytes:
    """Exact statistics travel whole."""
    return found.to_bytes(None if getattr(found, "lattice", None) else precision)


def may_send(step: Step, client: ClientData, node: NodeSettings) -> None:
    """Sums of few samples show them; the owner decides, and the default is no."""
    shows = step_kind(step.name).discloses
    if not shows or step.silent:
        return
    asked = step.params
    shown = check_small_client(
        client.labels,
        heads.make(asked["head"], dict(asked["settings"])) if "head" in asked else None,
        client.features.shape[1],
        send_anyway=node.small,
        shows="" if "head" in asked else shows,
        advice=_ADVICE,
    )
    for leak in shown:
        log.warning("headstart: what is sent shows %s", leak.text)


def secret(node: NodeSettings, context: Context) -> bytes:
    """This node's own: in its private folder, or in its state for as long as the node runs."""
    if node.folder:
        return kept_secret(private_folder(Path(node.folder).expanduser()) / "secret")
    if _OWN not in context.state.config_records:
        context.state[_OWN] = ConfigRecord({"secret": secrets.token_bytes(SECRET_BYTES)})
    return bytes(context.state.config_records[_OWN]["secret"])  # type: ignore[arg-type]


Memory = Mapping[str, NDArray[Any]]


class Memories:
    """What this node remembers of a training: after its last answer, and before it.

    A server that died goes on from a checkpoint and asks its last question again: the client then
    answers it from what it remembered before.
    """

    def __init__(self, context: Context) -> None:
        self.state = context.state

    def at(self, question: Question) -> dict[str, NDArray[Any]]:
        """The memories that a question finds; another training's are put away."""
        known = self.state.config_records.get(_TRAINING)
        if known is None or known["name"] != question.training:
            self.state[_TRAINING] = ConfigRecord(
                {"name": question.training, "turn": 0, "before": 0}
            )
            for place in (_MEMORY, _BEFORE):
                self.state.pop(place, None)
            return {}
        if question.turn > int(known["turn"]):  # type: ignore[arg-type]
            return self._read(_MEMORY)
        if question.turn > int(known["before"]):  # type: ignore[arg-type]
            return self._read(_BEFORE)
        raise HeadstartError(
            f"training: expected a question after number {known['before']!r}, got number "
            f"{question.turn}: what this client remembered then is gone"
        )

    def keep(
        self,
        question: Question,
        before: Mapping[str, NDArray[Any]],
        now: Mapping[str, NDArray[Any]],
    ) -> None:
        """Remember what an answer changed, and what was before it."""
        known = self.state.config_records[_TRAINING]
        again = question.turn <= int(known["turn"])  # type: ignore[arg-type]
        earlier = known["before"] if again else known["turn"]
        self.state[_TRAINING] = ConfigRecord(
            {"name": question.training, "turn": question.turn, "before": earlier}
        )
        self.state[_BEFORE] = ArrayRecord({key: Array(array) for key, array in before.items()})
        self.state[_MEMORY] = ArrayRecord({key: Array(array) for key, array in now.items()})

    def _read(self, place: str) -> dict[str, NDArray[Any]]:
        kept = self.state.array_records.get(place)
        return {} if kept is None else {key: array.numpy() for key, array in kept.items()}


def hear(node: NodeSettings, news: Mapping[str, Any]) -> None:
    """What became of the last upload: to the log and, as a line, to the node's own file."""
    said = json.dumps(dict(news), sort_keys=True)
    log.info("headstart: the server says %s", said)
    if not node.folder:
        return
    path = private_folder(Path(node.folder).expanduser()) / "receipts.jsonl"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if said not in before.splitlines():
        write_text(path, f"{before}{said}\n")
