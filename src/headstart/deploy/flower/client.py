"""The client's half: one query, any step; the same work that a simulated client does.

    clientapp = "headstart.deploy.flower.client:app"

What a node has is in its own configuration (`node.toml`). Its secret, so that a retry sends the
same bytes, what it remembers of a training and which questions it has answered are in private
files: Flower's state of a node ends with the run.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from headstart import heads, threads
from headstart.data.cells import CellSamples
from headstart.data.samples import units
from headstart.deploy import agreement
from headstart.deploy.admission import UploadRejected, check_small_client
from headstart.deploy.flower.budget import KINDS, charged, content, jobs_of, mark, network_of
from headstart.deploy.flower.budget import Budget as Questions
from headstart.deploy.flower.messages import Question, Reply
from headstart.deploy.flower.samples import Samples, load_samples
from headstart.deploy.flower.settings import NodeSettings, paths, told
from headstart.deploy.private import kept_secret, private_folder
from headstart.errors import HeadstartError
from headstart.federation.disclosure import FEWEST
from headstart.federation.protocol import Arrays, ClientData, Step, perform, step_kind
from headstart.files import PRIVATE, write_bytes, write_text
from headstart.privacy.accountant import mu_of
from headstart.privacy.budget import Budget
from headstart.privacy.noise import Entropy
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise
from headstart.privacy.unit_sums import without_noise
from headstart.registry import digest_of, load_plugin, read_plugin
from headstart.statistics import wire
from headstart.statistics.base import Summable

log = logging.getLogger("flwr")
app = ClientApp()
_LONGEST, _NEWS = 4000, 1000  # characters of what a server says, and lines of it that are kept
_MEMORIES, _MEMORIES_FILE = "memories", "memories.safetensors"

_ADVICE = (
    "Ask for a secure sum or for noise, collect more samples, join with a colleague's site, or set "
    "small = true in node.toml, knowing what it shows"
)


@app.query()
def query(message: Message, context: Context) -> Message:
    return Message(content=answer(message, context).to_content(), reply_to=message)


def answer(message: Message, context: Context, entropy: Entropy = secrets.token_bytes) -> Reply:
    """What this client says to one question; a reason where it says nothing.

    `entropy`, of keys and noise, is there for an app that a test writes: no setting reaches it.
    """
    name, nonce = str(context.node_config.get("client", "")), ""
    try:
        question = Question.from_content(message.content)
        nonce = question.nonce
        node = told(NodeSettings, context.node_config, "node")
        if question.news is not None:
            hear(node, question.news)
        if question.step is None:
            return Reply(name, nonce=nonce)
        load_plugins(node, question.plugins)
        samples = own_samples(node)
        agreement.hold(
            own_folder(node),
            question.agreement,
            question.step,
            question.broadcast,
            samples.client,
            samples.extractor,
        )
        payload = work(question, question.step, samples.client, node, entropy)
        return Reply(name, payload, samples.extractor, nonce=nonce)
    except HeadstartError as error:
        log.error("headstart: %s", error)
        code = getattr(error, "code", "failed")
        return Reply(name, code=code, text=str(error), nonce=nonce)
    except Exception as error:  # its text may hold samples: it stays in this node's own log
        log.exception("headstart: the step failed")
        text = f"client: failed ({type(error).__name__})"
        return Reply(name, code="failed", text=text, nonce=nonce)


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
            raise UploadRejected(
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
    question: Question,
    step: Step,
    client: ClientData,
    node: NodeSettings,
    entropy: Entropy = secrets.token_bytes,
) -> bytes:
    """The bytes of the answer to a step; what the client is to remember is put in its folder."""
    may_train(step, node)
    noise = noise_of(step, node)
    may_be_seen(step, node, noise, masked=bool(question.terms))
    bounded = noise is not None and node.most_epsilon > 0
    may_send(step, client, node, protected=bool(question.terms) or bounded)
    folder = own_folder(node)
    memories = remembered(folder)
    before = memories.at(question)
    own = ClientData(client.samples, client.test, kept_secret(folder / "secret"), dict(before))
    asked = mark(question, step, own)

    def statistic() -> Summable:
        if kind := charged(step):  # on the disk before a number is computed
            budget = Questions(folder, {name: getattr(node, name) for name in KINDS})
            budget.spend(kind, asked)
        with threads.for_size(len(own.samples)):
            return perform(without_noise(step)[0] if question.terms else step, own, broadcast)

    broadcast = question.broadcast
    if question.terms:
        from headstart.deploy.flower import member  # needs the extra of secure sums

        return member.answered(
            question,
            step,
            node,
            folder,
            measured=statistic,
            samples=content(own),
            entropy=entropy,
            spend=lambda name, noise: charge_once(releases(folder, node), name, noise),
        )
    if noise is not None:
        return released(folder, node, asked, noise, statistic)
    found = statistic()
    data = encoded(found, question.precision)
    changed = any(before.get(key) is not array for key, array in own.memory.items())
    if question.training and (changed or memories.training != question.training):
        remember(memories.after(question, own.memory), folder)
    return data


def released(
    folder: Path, node: NodeSettings, name: str, noise: Noise, noisy: Callable[[], Summable]
) -> bytes:
    """A statistic with all its noise: drawn once, charged before, and then always the same."""
    record = releases(folder, node)
    kept = record.release(name)
    if kept is None:
        record.charge(name, noise.unit_mu)
        kept = noisy().to_bytes()
        record.keep(name, kept)
    return kept


def charge_once(record: Budget, name: str, noise: Noise) -> None:
    """Of a masked round, whose noise is drawn once; nothing of it is kept."""
    if name in record.charges:
        raise Abort("replay", "mask: its noise was charged already")
    record.charge(name, noise.unit_mu)


def releases(folder: Path, node: NodeSettings) -> Budget:
    """What was released over this node's samples, for ever; the owner says how much may be."""
    most = mu_of(node.most_epsilon, node.delta) if node.most_epsilon else math.inf
    return Budget(most, private_folder(folder / "releases"))


def own_folder(node: NodeSettings) -> Path:
    return private_folder(Path(node.folder).expanduser())


def encoded(found: Summable, precision: str | None) -> bytes:
    """Exact statistics travel whole."""
    return found.to_bytes(None if getattr(found, "lattice", None) else precision)


def may_train(step: Step, node: NodeSettings) -> None:
    """Refuse (`train`) to look through a network that a server sends, unless its part was agreed.

    Whoever chooses the network chooses what of each sample its answers show.
    """
    if not network_of(step):
        return
    part = "model" if any(job["train"] == "model" for job in jobs_of(step)) else "extractor"
    if node.train not in ("model", part):
        raise UploadRejected(
            "train",
            f"train: this node agreed that the {node.train} trains, got a question through a "
            f"network of the server's ({part}). Its owner sets train in node.toml",
        )


def noise_of(step: Step, node: NodeSettings) -> Noise | None:
    """The noise that a step asks this node for; refused (`noise`) where the owner wants more."""
    if "noise" not in step.params:
        return None
    noise = Noise.from_plain(step.params["noise"])
    if step.name != "unit-sums":
        raise UploadRejected("noise", f"noise: it is made for unit-sums, not for {step.name}")
    other = "image" if noise.rows is not None or "image" in step.params else ""
    unit = other or ("client" if noise.clip else "sample")
    if unit != node.unit:
        raise UploadRejected("noise", f"unit: this node expects {node.unit}, got {unit}")
    if noise.colluding is not None and noise.colluding < node.colluding:
        raise UploadRejected(
            "noise", f"colluding: expected at least {node.colluding}, got {noise.colluding}"
        )
    least = 1 / noise.unit_mu
    if least < node.least_noise * (1 - 1e-9):
        raise UploadRejected(
            "noise",
            f"noise: expected {node.least_noise:g} times what one {node.unit} moves, or more, got "
            f"{least:.4g}. Its owner sets least-noise in node.toml",
        )
    return noise


def may_be_seen(step: Step, node: NodeSettings, noise: Noise | None, *, masked: bool) -> None:
    """Refuse (`trust`, `noise`) what would show more than the owner trusts anybody with."""
    if masked and step.silent:
        raise UploadRejected("trust", "secure: expected a step that nobody is silent in")
    if noise is None and node.most_epsilon:
        raise UploadRejected(
            "noise",
            f"noise: expected noise on all that leaves this node, got {step.name} without. Its "
            "owner sets most-epsilon in node.toml",
        )
    if noise is not None and noise.colluding is not None and not masked:
        raise UploadRejected("noise", "noise: expected a masked group for a share of it")
    # Noise without a budget protects nobody: draws average, and hardly any noise is none.
    whole = noise is not None and noise.colluding is None and node.most_epsilon > 0
    if whole or node.trust == "server" or (masked and node.trust == "secure-sum"):
        return
    raise UploadRejected(
        "trust",
        f"trust: this node trusts {node.trust}, got {step.name} "
        f"{'in a masked sum' if masked else 'as it is'}. Its owner sets trust in node.toml",
    )


def may_send(
    step: Step, client: ClientData, node: NodeSettings, *, protected: bool = False
) -> None:
    """Sums of few samples show them; the owner decides, and the default is no.

    `protected`: they go into a sum of others too, or carry noise.
    """
    kind = step_kind(step.name)
    shows = kind.discloses
    if not shows or step.silent or protected:
        return
    tested = 0 if client.test is None else units(client.test)
    if kind.tests and 0 < tested < FEWEST and not node.small:
        raise UploadRejected(
            "small",
            f"client: not sent, since it tests on {tested} samples (fewer than {FEWEST}) and "
            f"{shows}. {_ADVICE}",
        )
    asked = step.params
    shown = check_small_client(
        client.samples.labels,
        heads.make(asked["head"], dict(asked["settings"])) if "head" in asked else None,
        client.samples.shape[0],
        send_anyway=node.small,
        shows="" if "head" in asked else shows,
        advice=_ADVICE,
        images=units(client.samples) if isinstance(client.samples, CellSamples) else None,
    )
    for leak in shown:
        log.warning("headstart: what is sent shows %s", leak.text)


@dataclass(frozen=True, eq=False)
class Memories:
    """What a node remembers of a training: after its answer of one turn, and before that answer.

    Where the server has not heard that answer (it was lost, or the server died and goes on from a
    checkpoint), the client goes back to what was before it.
    """

    training: str = ""
    turn: int = 0
    before_turn: int = 0
    now: Arrays = field(default_factory=dict)
    before: Arrays = field(default_factory=dict)

    def at(self, question: Question) -> Arrays:
        """The memories that a question finds; those of another training are put away."""
        if self.training != question.training and not question.last:
            return {}
        if self.training == question.training and question.last >= self.before_turn:
            return self.now if question.last >= self.turn else self.before
        raise HeadstartError(
            f"training: expected to go on after question {question.last}, of which this client "
            "remembers nothing any more; begin a new training"
        )

    def after(self, question: Question, now: Arrays) -> Memories:
        """With what the answer to a question leaves."""
        known = question.training == self.training
        turn = (self.turn if question.last >= self.turn else self.before_turn) if known else 0
        return Memories(question.training, question.turn, turn, now, self.at(question))

    def to_bytes(self) -> bytes:
        about = {"training": self.training, "turn": self.turn, "before_turn": self.before_turn}
        arrays = {
            f"{place}/{name}": np.ascontiguousarray(array)
            for place in ("now", "before")
            for name, array in getattr(self, place).items()
        }
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        return wire.encode(_MEMORIES, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Memories:
        """The inverse of `to_bytes`; `ValueError` or `KeyError` where it is something else."""
        arrays = wire.decode_file(data, _MEMORIES)
        about = json.loads(arrays.pop("about").tobytes())
        places: dict[str, dict[str, NDArray[Any]]] = {"now": {}, "before": {}}
        for key, array in arrays.items():
            place, _, name = key.partition("/")
            places[place][name] = array
        turn, before_turn = about["turn"], about["before_turn"]
        known = isinstance(about["training"], str) and len(about) == 3
        if not known or not all(type(one) is int and one >= 0 for one in (turn, before_turn)):
            raise ValueError(about)
        return cls(about["training"], turn, before_turn, places["now"], places["before"])


def remembered(folder: Path) -> Memories:
    path = folder / _MEMORIES_FILE
    try:
        return Memories.from_bytes(path.read_bytes()) if path.exists() else Memories()
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise HeadstartError(
            f"memories: {_MEMORIES_FILE} in the private folder is damaged; its owner restores it, "
            "or removes it and begins a new training"
        ) from None


def remember(memories: Memories, folder: Path) -> None:
    write_bytes(folder / _MEMORIES_FILE, memories.to_bytes(), PRIVATE)


def hear(node: NodeSettings, news: Mapping[str, Any]) -> None:
    """What became of the last upload: to the log and, as a line, to the node's own file."""
    said = json.dumps(dict(news), sort_keys=True)
    if len(said) > _LONGEST:
        said = json.dumps({"cut": said[:_LONGEST]})
    log.info("headstart: the server says %s", said)
    path = own_folder(node) / "receipts.jsonl"
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if said not in before:  # a server that says much does not fill a node's disk
        write_text(path, "".join(f"{line}\n" for line in [*before, said][-_NEWS:]), PRIVATE)
