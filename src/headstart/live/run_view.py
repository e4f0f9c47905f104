"""One run, from its events: `poll` gives what is new, never all of it again.

A second run in the same folder, or one that goes on after it was stopped, begins with another
`start`: what was refused or silent before is open again, who is in stays in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError
from headstart.live.tail import Tail, read_whole
from headstart.live.values import number, seconds, text, whole
from headstart.privacy.budget import Budget

Row = dict[str, Any]
_CONFIG_BYTES = 2**20
_POINT = ("phase", "round", "accuracy", "up", "down")
_ARRIVAL = ("clients", "up", "accuracy", "classes")


@dataclass
class RunView:
    """A run folder, or the output of a deployed run.

    `expected`: names that should come (asked for anew each time); `hidden`: whose names no page
    may show, and `forgotten` how many they are: when that changes, all is sent again.
    """

    path: Path
    name: str
    expected: Callable[[], Collection[str]] = tuple
    hidden: Callable[[str], bool] = lambda client: False
    forgotten: Callable[[], int] = int
    kind: str = "run"

    def __post_init__(self) -> None:
        self._tail = Tail(self.path / "events.jsonl")
        self._without = 0
        self._begin()

    def _begin(self) -> None:
        self.facts: Row = {"status": "waiting"}
        self.status: dict[str, str] = {}  # of each client: in, refused, silent
        self._work: tuple[str, float, float] = ("", 0.0, 0.0)  # what, done when first seen, when
        self._counts = dict.fromkeys(("in", "refused", "silent"), 0)
        self._private: Row | None = None

    def poll(self) -> Row | None:
        """What is new, or None; `reset` says to throw away what was sent before."""
        without = self.forgotten()
        if without != self._without:
            self._tail = Tail(self._tail.path)
        again, events = self._tail.new()
        again = again or without != self._without
        self._without = without
        if again:
            self._begin()
        new = News()
        for event in events:
            self._fold(event, new)
        for client in self.expected():
            if client not in self.status:
                self._client(new, client, "silent", "no answer yet", None)
        if not (again or events or new.clients):
            return None
        facts = {**self.facts, **self._counts, "epsilon": self._epsilon()}
        return {"reset": again, "facts": facts, **new.plain()}

    def _fold(self, event: Row, new: News) -> None:
        when, what = seconds(event.get("time")), str(event.get("event"))
        self.facts["last"] = when or self.facts.get("last")
        read = getattr(self, f"_on_{what}", None)
        if read is not None:
            read(event, when, new)

    # -- events --------------------------------------------------------------------------------

    def _on_start(self, event: Row, when: float | None, new: News) -> None:
        wanted, deadline = whole(event.get("wanted")), number(event.get("deadline"))
        self.facts = {
            "status": "running",
            "started": when,
            "last": when,
            "pipeline": text(event.get("pipeline")),
            "seed": whole(event.get("seed")),
            "clients": whole(event.get("clients")) or wanted,
            "private": event.get("private") is True,
            "masked": event.get("masked") is True,
            "until": when + deadline if when and deadline else None,
        }
        for client in [name for name, state in self.status.items() if state != "in"]:
            self._counts[self.status.pop(client)] -= 1
            new.clients[client] = {"client": client, "state": "open"}

    def _on_upload(self, event: Row, when: float | None, new: News) -> None:
        size = whole(event.get("bytes"))
        if self._client(new, event.get("client"), "in", "", when, bytes=size) and size:
            self.facts["up"] = (self.facts.get("up") or 0) + size

    def _on_failure(self, event: Row, when: float | None, new: News) -> None:
        code = text(event.get("code"))
        state = "silent" if code in ("missing", "unreachable") else "refused"
        self._client(new, event.get("client"), state, text(event.get("text")) or code, when)

    def _on_silent(self, event: Row, when: float | None, new: News) -> None:
        self._client(new, event.get("client"), "silent", text(event.get("why")), when)

    def _on_solved(self, event: Row, when: float | None, new: News) -> None:
        row = [number(event.get(key)) for key in _ARRIVAL]
        new.arrivals.append(row)
        self._known(accuracy=row[2], up=row[1], arrived=row[0])

    def _on_point(self, event: Row, when: float | None, new: News) -> None:
        row = [number(event.get(key)) for key in _POINT]
        new.points.append(row)
        self._known(phase=row[0], round=row[1], accuracy=row[2], up=row[3], down=row[4])

    def _on_progress(self, event: Row, when: float | None, new: News) -> None:
        work, done, of = text(event.get("work")), number(event.get("done")), whole(event.get("of"))
        if done is None or of is None or when is None:
            return
        if work != self._work[0] or done < self._work[1]:
            self._work = (work, done, when)
        _, first, since = self._work
        pace = (done - first) / (when - since) if when > since else 0.0
        left = (of - done) / pace if pace > 0 and done < of else None
        self.facts |= {"work": work, "done": done, "of": of, "left": number(left)}

    def _on_collected(self, event: Row, when: float | None, new: News) -> None:
        self.facts["until"] = None
        self._known(arrived=whole(event.get("members")))

    def _on_stopped(self, event: Row, when: float | None, new: News) -> None:
        self.facts |= {"status": "stopped", "why": text(event.get("why")), "left": None}

    def _on_finished(self, event: Row, when: float | None, new: News) -> None:
        self.facts |= {"status": "finished", "ended": when, "left": None, "until": None}
        self._known(accuracy=number(event.get("accuracy")))

    # -- what they add up to -------------------------------------------------------------------

    def _known(self, **facts: Any) -> None:
        self.facts |= {key: value for key, value in facts.items() if value is not None}

    def _client(
        self, new: News, name: Any, state: str, why: str, when: float | None, **more: Any
    ) -> bool:
        """Note where a client stands; return whether that is news."""
        client = text(name)
        if not client or self.hidden(client):
            return False
        before = self.status.get(client)
        if before == "in" and state != "in":
            return False  # a later step it did not answer, or another node with its name
        if before is not None:
            self._counts[before] -= 1
        self._counts[state] += 1
        self.status[client] = state
        row = {"client": client, "state": state, "why": why, "time": when, **more}
        new.clients[client] = row
        return before != state

    def _epsilon(self) -> Row | None:
        """What a private run has spent of what it may; from the charges in its folder."""
        if not self.facts.get("private"):
            return None
        if self._private is None:
            self._private = _promised(self.path)
        with suppress(HeadstartError):
            delta = number(self._private.get("delta")) or 1e-5
            spent = Budget(0.0, self.path / "budget").epsilon(delta)
            return {"spent": spent, "of": number(self._private.get("epsilon")), "delta": delta}
        return None


@dataclass
class News:
    """What one poll found."""

    points: list[list[float | None]] = field(default_factory=list)
    arrivals: list[list[float | None]] = field(default_factory=list)
    clients: dict[str, Row] = field(default_factory=dict)

    def plain(self) -> Row:
        return {
            "now": time.time(),
            "points": self.points,
            "arrivals": self.arrivals,
            "clients": list(self.clients.values()),
        }


def _promised(path: Path) -> Row:
    """The settings of privacy that a run was begun with."""
    import yaml

    from headstart.pipeline.config import parse_yaml

    held = read_whole(path / "config.yaml", _CONFIG_BYTES) or b""
    with suppress(yaml.YAMLError, ValueError, RecursionError, AttributeError):
        private = parse_yaml(held.decode()).get("private")
        return private if isinstance(private, dict) else {}
    return {}
