"""The page's server: on loopback by default, and then behind a token."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headstart import optional
from headstart.errors import HeadstartError

PORT = 8765  # the first that is tried; if it is taken, any free one


def watch(paths: Sequence[Path], host: str, port: int | None, ready: Callable[[str], None]) -> None:
    """Serve the page until interrupted; `ready` receives its address."""
    optional.check("live", "watch")
    from headstart.live.app import Page

    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    with _listening(host, port) as listener:
        page = Page([Path(path) for path in paths], token)
        if not token:
            page.hosts |= {host}
        server = _server(page)
        ready(address(host, listener.getsockname()[1], token))
        with suppress(KeyboardInterrupt):
            server.run([listener])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address(host: str, port: int, token: str = "") -> str:
    """What one types into a browser; of a server that listens everywhere, this machine's name."""
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"{token}/" if token else "")


def has_screen() -> bool:
    """Whether a browser with windows can be opened here."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _listening(host: str, port: int | None) -> socket.socket:
    """A socket at the port said; where none was, at the usual one or at any that is free."""
    tried = [PORT, 0] if port is None else [port]
    for one in tried:
        try:
            return _bound(host, one)
        except (OSError, OverflowError) as error:
            if one == tried[-1]:
                raise HeadstartError(f"watch: cannot listen at {host}:{one}: {error}") from None
    raise AssertionError(tried)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError:
        made.close()
        raise
    return made


def _server(page: Any) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        """That lets open pages go when it is to end."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            page.closing = True
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        page.app(),
        log_level="critical",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    return Server(config)
