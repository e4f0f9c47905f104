"""The events of a simulated run, as it happens: a line each in events.jsonl, for who watches.

Of a private run they say no more than its release: not what the head was like on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

from headstart import __version__
from headstart.errors import HeadstartError
from headstart.pipeline.config import RunConfig
from headstart.pipeline.folder import RunFolder, event_line
from headstart.progress import Progress
from headstart.results import Arrival, Point

PACE = 0.5  # seconds between two lines of how far the same work is
HELD = 0.2  # seconds for which points wait for others: a file is opened once for all of them


@dataclass
class RunEvents:
    """Writes the events of one run to its folder."""

    folder: RunFolder
    private: bool = False
    clock: Callable[[], float] = time.monotonic
    _shown: dict[str, float] = field(default_factory=dict, init=False)  # when, by work
    _points: list[str] = field(default_factory=list, init=False)
    _written: float = field(default=-HELD, init=False)

    def start(self, config: RunConfig, pipeline: str, clients: int) -> None:
        """Write what begins, or goes on."""
        self.folder.event(
            "start",
            headstart=__version__,
            pipeline=pipeline,
            seed=config.seed,
            clients=clients,
            masked=bool(config.federation.grouped),
            private=self.private,
        )

    def point(self, point: Point) -> None:
        """Note a point of the curve: accuracy and traffic after a round."""
        self._points.append(event_line("point", **point.values()))
        if self.clock() - self._written >= HELD:
            self.write()

    def write(self) -> None:
        """Write the points that wait."""
        if self._points:
            self.folder.append_events("\n".join(self._points))
            self._points.clear()
            self._written = self.clock()

    def arrived(self, arrival: Arrival) -> None:
        """Write how good the head of the uploads so far is."""
        if not self.private:  # a release comes once
            self.folder.event("solved", **asdict(arrival))

    def noting(self, progress: Progress) -> Progress:
        """Return `progress` that also writes how far it is, now and then."""

        def show(what: str, done: int, of: int) -> None:
            progress(what, done, of)
            now = self.clock()
            if done == of or now - self._shown.get(what, -PACE) >= PACE:
                self._shown[what] = now
                self.write()
                self.folder.event("progress", work=what, done=done, of=of)

        return show

    @contextmanager
    def stop_noted(self) -> Iterator[None]:
        """Write why a run ended before its end, where there is time to."""
        try:
            yield
            self.write()
        except BaseException as error:
            why = str(error) if isinstance(error, HeadstartError) else type(error).__name__
            with suppress(HeadstartError):
                self.write()
                self.folder.event("stopped", why=why)
            raise
