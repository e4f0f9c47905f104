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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.deploy.names import normalized
from headstart.errors import HeadstartError
from headstart.files import PRIVATE, write_text

if TYPE_CHECKING:
    from flwr.serverapp import Grid

NODES = "nodes.json"  # in the ledger's folder
GROUPS = "groups.json"  # there too: of which masked groups a sum was opened
LONGEST = 500  # characters of a line about a failure


@dataclass(frozen=True)
class Node:
    """One node that is online: its client's name, Flower's number for it, its key's SHA-256."""

    name: str
    id: int
    key: str


@dataclass(frozen=True)
class ClientFailure:
    """Why an answer is missing, for people and (the code) for programs.

    A client may have chosen the words: they are made one line, not too long, that any log and file
    can hold.
    """

    client: str
    code: str
    text: str

    def __post_init__(self) -> None:
        for name in ("code", "text"):
            object.__setattr__(self, name, one_line(getattr(self, name)))


def one_line(text: str) -> str:
    """Without line ends, control characters and lone surrogates (their escapes stand for them), and
    of at most `LONGEST` characters."""
    shown = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text[: LONGEST + 1]
    )
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def online(grid: Grid) -> list[Node]:
    """The nodes that can be asked now; one without a name is called by its key."""
    found = []
    for info in grid.get_nodes():
        key = hashlib.sha256(info.public_key).hexdigest()
        found.append(Node(normalized(info.name) or f"node-{key[:12]}", info.node_id, key))
    return sorted(found, key=lambda node: (node.name, node.id))


@dataclass
class Registry:
    """Names and keys, kept in a file.

    `mark`: what is kept of a forgotten client's key. `readmit`: the one name under which the
    operator lets such a key come again.
    """

    path: Path | None = None
    keys: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)  # marks
    mark: Callable[[str], str] = str
    readmit: str = ""

    @classmethod
    def open(cls, path: Path, mark: Callable[[str], str] = str) -> Registry:
        if not path.exists():
            return cls(path, mark=mark)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            keys, gone = dict(content["keys"]), set(map(str, content.get("gone", ())))
            if not all(isinstance(key, str) for key in keys.values()):
                raise ValueError("expected a text for every key")
            return cls(path, keys, gone, mark)
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

    def save(self) -> None:
        if self.path is not None:
            content = {"keys": self.keys, "gone": sorted(self.gone)}
            write_text(self.path, json.dumps(content, indent=1, sort_keys=True), PRIVATE)
