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
from headstart.deploy.door import Refused, check_small_client
from headstart.deploy.flower.messages import Answer, Question
from headstart.deploy.flower.samples import Samples, load_samples
from headstart.deploy.flower.settings import NodeSettings, paths, told
from headstart.deploy.private import SECRET_BYTES, kept_secret, private_folder
from headstart.deploy.steps import made_ready
from headstart.errors import HeadstartError
from headstart.federation.protocol import ClientData, Step, perform
from headstart.files import write_text
from headstart.registry import digest_of, load_plugin, read_plugin
from headstart.statistics.base import Summable

log = logging.getLogger("flwr")
app = ClientApp()
_MEMORY, _OWN, _TRAINING = "headstart.memory", "headstart.own", "headstart.training"

_NUMBERS = ("calibrate", "personal", "home")  # answered with losses and hits, not with features
_SHOWS = {
    "update": "a row of an update is a sum of features",
    "gradient": "a row of a gradient is a sum of features",
    "channels": "the colours of so few images are told to all clients",
}
_ADVICE = (
    "Over Flower there are no secure sums yet: collect more samples, join with a colleague's site, "
    "or set small = true in node.toml, knowing what it shows"
)


@app.query()
def query(message: Message, context: Context) -> Message:
    return Message(content=answer(message, context).to_content(), reply_to=message)


def answer(message: Message, context: Context) -> Answer:
    """What this client says to one question; a reason where it says nothing."""
    name, nonce = str(context.node_config.get("client", "")), ""
    try:
        question = Question.from_content(message.content)
        nonce = question.nonce
        node = told(NodeSettings, context.node_config, "node")
        if question.news is not None:
            hear(node, question.news)
        if question.step is None:
            return Answer(name, nonce=nonce)
        load_plugins(node, question.plugins)
        samples = own_samples(node)
        payload = work(question, question.step, samples.client, node, context)
        return Answer(name, payload, samples.extractor, nonce=nonce)
    except HeadstartError as error:
        log.error("headstart: %s", error)
        code = getattr(error, "code", "failed")
        return Answer(name, code=code, text=str(error), nonce=nonce)
    except Exception as error:  # its text may hold samples: it stays in this node's own log
        log.exception("headstart: the step failed")
        text = f"client: failed ({type(error).__name__})"
        return Answer(name, code="failed", text=text, nonce=nonce)


def load_plugins(node: NodeSettings, wanted: Mapping[str, str]) -> None:
    """Load the files of this node's own configuration, if the server's bytes are among them."""
    try:
        own = {path: digest_of(read_plugin(path)) for path in paths(node.plugins)}
    except HeadstartError as error:
        raise _untold("plugins", error) from None
    for name, digest in wanted.items():
        if digest not in own.values():
            same = [other for path, other in own.items() if Path(path).name == name]
            got = f"another (SHA-256 {same[0][:12]}…)" if same else "none"
            raise Refused(
                "plugin",
                f"plugins: expected the server's {name} (SHA-256 {digest[:12]}…), "
                f"got {got} in node.toml",
            )
    try:
        for path in own:
            load_plugin(path)
    except HeadstartError as error:
        raise _untold("plugins", error) from None


def _untold(what: str, error: HeadstartError) -> HeadstartError:
    """An error that quotes what is on this node stays in the node's own log."""
    log.error("headstart: %s", error)
    return HeadstartError(f"{what}: cannot be used; the log of this node says why")


def own_samples(node: NodeSettings) -> Samples:
    try:
        return load_samples(node)
    except HeadstartError as error:
        raise _untold("data", error) from None


def work(
    question: Question, step: Step, client: ClientData, node: NodeSettings, context: Context
) -> bytes:
    """The bytes of the answer to a step; what the client is to remember is put in its state."""
    made_ready(step)
    may_send(step, client, node)
    own = ClientData(
        client.features,
        client.labels,
        client.test_features,
        client.test_labels,
        secret(node, context),
        memory(question.training, context),
    )
    with threads.for_size(len(own.labels)):
        found = perform(step, own, question.broadcast)
        data = encoded(found, question.precision)
    if own.memory:
        kept = {key: Array(array) for key, array in own.memory.items()}
        context.state[_MEMORY] = ArrayRecord(kept)
    return data


def encoded(found: Summable, precision: str | None) -> bytes:
    """Exact statistics travel whole."""
    return found.to_bytes(None if getattr(found, "lattice", None) else precision)


def may_send(step: Step, client: ClientData, node: NodeSettings) -> None:
    """R13: sums of few samples show them; the owner decides, and the default is no."""
    if step.name in _NUMBERS:
        return
    told = step.params
    shown = check_small_client(
        client.labels,
        heads.make(told["head"], dict(told["settings"])) if "head" in told else None,
        client.features.shape[1],
        send_anyway=node.small,
        shows=_SHOWS.get(step.name, ""),
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


def memory(training: str, context: Context) -> dict[str, NDArray[Any]]:
    """What the client remembers of this training; another one's is put away."""
    state = context.state
    known = state.config_records.get(_TRAINING)
    if known is None or known["name"] != training:
        state[_TRAINING] = ConfigRecord({"name": training})
        state.pop(_MEMORY, None)
    kept = state.array_records.get(_MEMORY)
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
