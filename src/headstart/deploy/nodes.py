"""Who is who: a client's name belongs to a node's key, for as long as the ledger lives.

The operator registers a key under a name (`flwr supernode register site-a.pub NAME --name site-a`);
SuperLink lets only registered keys in, and says which name each has. A name that comes with
another key than before, or with two at once, is nobody's: it is refused, and said. Of a client
that the ledger has forgotten neither name nor key is kept, but a mark of the key: under another
name, too, that node stays out until the operator says otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headstart.deploy.names import normalized
from headstart.errors import HeadstartError
from headstart.files import write_text

if TYPE_CHECKING:
    from flwr.serverapp import Grid

NODES = "nodes.json"  # in the ledger's folder


@dataclass(frozen=True)
class Node:
    """One node that is online: its client's name, Flower's number for it, its key's SHA-256."""

    name: str
    id: int
    key: str


@dataclass(frozen=True)
class ClientFailure:
    """Why an answer is missing, for people and (the code) for programs.

    A client may have chosen the words: they are made a line that any log and file can hold.
    """

    client: str
    code: str
    text: str

    def __post_init__(self) -> None:
        for name in ("code", "text"):
            object.__setattr__(self, name, one_line(getattr(self, name)))


def one_line(text: str) -> str:
    """Without line ends, control characters and lone surrogates: their escapes stand for them."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text
    )


def online(grid: Grid) -> list[Node]:
    """The nodes that can be asked now; one without a name is called by its key."""
    found = []
    for info in grid.get_nodes():
        key = hashlib.sha256(info.public_key).hexdigest()
        found.append(Node(normalized(info.name) or f"node-{key[:12]}", info.node_id, key))
    return sorted(found, key=lambda node: (node.name, node.id))


@dataclass
class Registry:
    """Names and keys, and the extractor that made everybody's features; kept in a file.

    `mark`: what is kept of a forgotten client's key. `readmit`: the one name under which the
    operator lets such a key come again.
    """

    path: Path | None = None
    keys: dict[str, str] = field(default_factory=dict)
    extractor: dict[str, Any] | None = None
    begun: bool = False  # whether an upload has said what made its features
    gone: set[str] = field(default_factory=set)  # marks
    mark: Callable[[str], str] = str
    readmit: str = ""

    @classmethod
    def open(cls, path: Path, mark: Callable[[str], str] = str) -> Registry:
        if not path.exists():
            return cls(path, mark=mark)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            keys, gone = dict(told["keys"]), set(map(str, told.get("gone", ())))
            if not all(isinstance(key, str) for key in keys.values()):
                raise ValueError("expected a text for every key")
            return cls(path, keys, told.get("extractor"), bool(told.get("begun")), gone, mark)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise HeadstartError(f"nodes: cannot read {path}: {error}") from None

    def known(self, nodes: Iterable[Node]) -> tuple[list[Node], list[ClientFailure]]:
        """The nodes whose names are their own; new names are written down."""
        nodes = list(nodes)
        twice = {name for name, count in Counter(node.name for node in nodes).items() if count > 1}
        good, bad = [], []
        for node in nodes:
            if self.mark(node.key) in self.gone and node.name != self.readmit:
                text = f"{node.name}: the key of a client that was forgotten"
                bad.append(ClientFailure(node.name, "forgotten", text))
            elif node.name in twice:
                bad.append(
                    ClientFailure(node.name, "identity", f"{node.name}: two keys have this name")
                )
            elif self.keys.get(node.name, node.key) != node.key:
                text = f"{node.name}: another key than the one this name came with before"
                bad.append(ClientFailure(node.name, "identity", text))
            else:
                good.append(node)
        new = {node.name: node.key for node in good if node.name not in self.keys}
        back = self.gone & {self.mark(node.key) for node in good}
        if new or back:
            self.keys |= new
            self.gone -= back
            self.save()
        return good, bad

    def leave(self, forgotten: Callable[[str], bool]) -> None:
        """Without the names that the ledger has forgotten; their keys are known by a mark."""
        left = {name for name in self.keys if forgotten(name)}
        if left:
            self.gone |= {self.mark(self.keys.pop(name)) for name in left}
            self.save()

    def same_features(self, extractor: Mapping[str, Any] | None, *, begun: bool) -> bool:
        """Whether these features were made as all others were; the first upload says how.

        What one says binds nobody until it is in (`begun`: somebody is). It is written before
        that, so that a crash in between leaves no upload of which nobody knows.
        """
        if not begun:
            self.begun = True
            self.extractor = None if extractor is None else dict(extractor)
            self.save()
        return _identity(self.extractor) == _identity(extractor)

    def begin_again(self) -> None:
        """Nobody is in: what was said of features was said by those who were refused or left."""
        if self.begun:
            self.begun, self.extractor = False, None
            self.save()

    def save(self) -> None:
        if self.path is not None:
            told = {
                "keys": self.keys,
                "extractor": self.extractor,
                "begun": self.begun,
                "gone": sorted(self.gone),
            }
            write_text(self.path, json.dumps(told, indent=1, sort_keys=True))


def _identity(extractor: Mapping[str, Any] | None) -> Any:
    """The same network on the same weights, whatever its file is called."""
    return None if extractor is None else (extractor.get("identity"), extractor.get("text"))
