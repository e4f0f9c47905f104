"""Named points at which a process may die: tests end it at each of them, and nothing may be lost.

In normal use `reached` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

ACCEPT = {
    "received": "the message is in memory, nothing is checked",
    "checked": "it was admitted, nothing is written",
    "appending": "it has its place in the log",
    "half written": "its header is in the file, its payload is not",
    "written": "all of it is in the file, not yet on the disk",
    "durable": "it is on the disk, nobody knows",
    "counted": "it is in the total, not yet acknowledged",
}
SNAPSHOT = {
    "total saved": "the folded total is there, who is in it is not",
}
FORGET = {
    "tombstone": "the client is out, its bytes are still there",
    "snapshot purged": "no folded total has it any more",
    "segment aside": "the log without it is written next to the old one",
    "segment replaced": "the log is without it",
    "refusals purged": "so is the list of refusals",
    "nodes purged": "so is the list of nodes",
    "exports purged": "so are the exports",
    "heads solved": "so are the heads that the ledger wrote",
}
SECURE = {
    "remembered": "a stage is in the node's history, its secrets are those of the last one",
    "ready": "its secrets are there too, the answer has not left",
}
POINTS = {**ACCEPT, **SNAPSHOT, **FORGET}

hook: Callable[[str], None] | None = None


def reached(point: str) -> None:
    """Call the hook, if a test has set one, with the name of this point."""
    if hook is not None:
        hook(point)
