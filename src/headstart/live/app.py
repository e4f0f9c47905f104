"""The page as an ASGI application: three files, the events as they come, the reports. Only GET.

Scripts and styles come from here alone and stand in files of their own. A report has no scripts; it
is served so that it could run none.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headstart.live.sources import Feed, Source
from headstart.live.tail import read_whole

POLL = 0.25  # seconds between two reads of the files
QUIET = 15.0  # seconds after which an empty line keeps a connection open
READERS = 64  # pages at the same time
_REPORT_BYTES = 2**28
_TYPES = {"page.css": "text/css", "page.js": "text/javascript", "chart.js": "text/javascript"}
_OWN = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src "
    "'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_PORT = re.compile(r"(?<=[^:]):[0-9]*$")
_HEADERS = {
    "Content-Security-Policy": _OWN,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass
class Page:
    """What is shown, and to whom.

    `token`: the first part of every address, for who may look. `hosts`: names under which a
    browser may ask, so that no other site's name leads here; any, where a token is needed.
    """

    paths: Sequence[Path]
    token: str = ""
    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "::1"})
    poll: float = POLL
    readers: int = field(default=0, init=False)  # of events, now
    closing: bool = field(default=False, init=False)

    def app(self) -> ASGIApp:
        """The application."""
        prefix = "/{token}" if self.token else ""
        routes = [
            Route(f"{prefix}/", self._page),
            Route(f"{prefix}/events", self._events),
            Route(f"{prefix}/report/{{number:int}}", self._report),
            Route(f"{prefix}/{{name}}", self._file),
        ]
        inner = Starlette(routes=routes)

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            async def with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    headers = MutableHeaders(scope=message)
                    for name, value in _HEADERS.items():
                        headers.setdefault(name, value)
                await send(message)

            refused = self._refusal(scope) if scope["type"] == "http" else None
            await (inner if refused is None else refused)(scope, receive, with_headers)

        return guarded

    def _refusal(self, scope: Scope) -> Response | None:
        """Of another site's name, or another token."""
        said = scope["path"].removeprefix("/").split("/")[0]
        if self.token and not hmac.compare_digest(said.encode(), self.token.encode()):
            return PlainTextResponse("not found", 404)
        if not self.token and _host(scope) not in self.hosts:
            return PlainTextResponse("this page has another name", 421)
        return None

    async def _page(self, request: Request) -> Response:
        return Response(_static("page.html"), media_type="text/html")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _TYPES:
            return PlainTextResponse("not found", 404)
        return Response(_static(name), media_type=_TYPES[name])

    async def _report(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self.paths):
            return PlainTextResponse("not found", 404)
        html = await run_in_threadpool(_read_report, self.paths[number])
        if html is None:
            return PlainTextResponse("there is no report yet", 404)
        headers = {"Content-Security-Policy": _REPORT}
        return Response(html, media_type="text/html", headers=headers)

    async def _events(self, request: Request) -> Response:
        if self.readers >= READERS:
            return PlainTextResponse("too many pages are open", 503)
        return StreamingResponse(self.frames(), media_type="text/event-stream")

    async def frames(self) -> AsyncIterator[bytes]:
        """Server-sent events, from the beginning: a page that connects again begins again."""
        self.readers += 1
        try:
            feed, silent = Feed(self.paths), 0.0
            yield b"retry: 1000\nevent: hello\ndata: {}\n\n"
            while not self.closing:
                found = await run_in_threadpool(feed.poll)
                if found:
                    yield b"".join(_frame(message) for message in found)
                silent = 0.0 if found else silent + self.poll
                if silent >= QUIET:
                    silent = 0.0
                    yield b": still here\n\n"
                await asyncio.sleep(self.poll)
        finally:
            self.readers -= 1


def _host(scope: Scope) -> str:
    """The name that a browser asked for, without its port; "" where none, or several, are said.

    (Starlette's `request.url` has the server's own address in the place of a name that it finds
    malformed, such as one with `_`, which browsers ask for all the same.)
    """
    said = [value for key, value in scope["headers"] if key == b"host"]
    host = said[0].decode("latin-1").lower() if len(said) == 1 else ""
    return _PORT.sub("", host).removeprefix("[").removesuffix("]")


def _frame(message: object) -> bytes:
    return b"data: " + json.dumps(message, allow_nan=False).encode() + b"\n\n"


def _static(name: str) -> bytes:
    return (files(__package__) / "static" / name).read_bytes()


def _read_report(path: Path) -> bytes | None:
    source = Source(path)
    source.look()
    return read_whole(source.report, _REPORT_BYTES)
