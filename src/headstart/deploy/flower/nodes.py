"""Who is who: a client's name belongs to a node's key, for as long as the ledger lives.

The operator registers a key under a name (`flwr supernode register site-a.pub NAME --name site-a`);
SuperLink lets only registered keys in, and says which name each has. A name that comes with
another key than before, or with two at once, is nobody's: it is refused, and said.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from headstart.errors import HeadstartError
from headstart.files import write_text


@dataclass(frozen=True)
class Node:
    """One node that is online: its client's name, Flower's number for it, its key's SHA-256."""

    name: str
    id: int
    key: str


@dataclass(frozen=True)
class Trouble:
    """Why an answer is missing, for people and (the code) for programs."""

    client: str
    code: str
    text: str


def online(grid: Grid) -> list[Node]:
    """The nodes that can be asked now; one without a name is called by its key."""
    found = []
    for info in grid.get_nodes():
        key = hashlib.sha256(info.public_key).hexdigest()
        found.append(Node(info.name or f"node-{key[:12]}", info.node_id, key))
    return sorted(found, key=lambda node: (node.name, node.id))


@dataclass
class Registry:
    """Names and keys, and the extractor that made everybody's features; kept in a file."""

    path: Path | None = None
    keys: dict[str, str] = field(default_factory=dict)
    extractor: dict[str, Any] | None = None
    begun: bool = False  # whether an upload has said what made its features

    @classmethod
    def open(cls, path: Path) -> Registry:
        if not path.exists():
            return cls(path)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, dict(told["keys"]), told["extractor"], bool(told["begun"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HeadstartError(f"nodes: cannot read {path}: {error}") from None

    def known(self, nodes: Iterable[Node]) -> tuple[list[Node], list[Trouble]]:
        """The nodes whose names are their own; new names are written down."""
        nodes = list(nodes)
        twice = {name for name, count in Counter(node.name for node in nodes).items() if count > 1}
        good, bad = [], []
        for node in nodes:
            if node.name in twice:
                bad.append(Trouble(node.name, "identity", f"{node.name}: two keys have this name"))
            elif self.keys.get(node.name, node.key) != node.key:
                text = f"{node.name}: another key than the one this name came with before"
                bad.append(Trouble(node.name, "identity", text))
            else:
                good.append(node)
        new = {node.name: node.key for node in good if node.name not in self.keys}
        if new:
            self.keys |= new
            self.save()
        return good, bad

    def leave(self, forgotten: Callable[[str], bool]) -> None:
        """Without the names that the ledger has forgotten."""
        kept = {name: key for name, key in self.keys.items() if not forgotten(name)}
        if kept != self.keys:
            self.keys = kept
            self.save()

    def same_features(self, extractor: Mapping[str, Any] | None) -> bool:
        """Whether these features were made as all others were; the first upload says how."""
        if not self.begun:
            self.begun = True
            self.extractor = None if extractor is None else dict(extractor)
            self.save()
        return _identity(self.extractor) == _identity(extractor)

    def save(self) -> None:
        if self.path is not None:
            told = {"keys": self.keys, "extractor": self.extractor, "begun": self.begun}
            write_text(self.path, json.dumps(told, indent=1, sort_keys=True))


def _identity(extractor: Mapping[str, Any] | None) -> Any:
    """The same network on the same weights, whatever its file is called."""
    return None if extractor is None else (extractor.get("identity"), extractor.get("text"))
