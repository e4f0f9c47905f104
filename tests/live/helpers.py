"""Folders as runs and deployments leave them while they go on, and a browser to look at them."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass

from headstart.deploy.admission import UploadRejected
from headstart.deploy.ledger import Ledger
from headstart.pipeline.folder import event_line
from tests.deploy.ledger_world import ROUND, contract_of, upload_of

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync force-color-profile=srgb"
)


def write_event(folder, what, **facts):
    """Add an event to the folder of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "events.jsonl", "a", encoding="utf-8") as file:
        file.write(event_line(what, **facts) + "\n")


def received(feed):
    """The messages of one poll, by the name of their view; reports by their number."""
    return {message.get("name", ""): message for message in feed.poll() if "view" in message}


def deployment(folder, nodes="ann bob cid dan"):
    """As much of what `headstart deploy init` makes as a page reads; its server's folder."""
    (folder / "app").mkdir(parents=True)
    config = f'[tool.flwr.app.config]\nnodes = "{nodes}"\nledger = "ledger"\noutput = "output"\n'
    (folder / "app" / "pyproject.toml").write_text(config)
    (folder / "server").mkdir()
    return folder / "server"


def fill(path, *clients, refused=()):
    """A ledger with these uploads; those of `refused` have another dimension."""
    with Ledger.create(path, contract_of()) as ledger:
        for at, client in enumerate(clients, 1):
            ledger.accept(client, ROUND, "key", upload_of(at))
        for client in refused:
            refuse(ledger, client)


def refuse(ledger, client):
    try:
        ledger.accept(client, ROUND, "key", upload_of(1, d=3))
    except UploadRejected:
        return
    raise AssertionError(f"{client} was let in")


@contextmanager
def page(*paths, port=0, more=(), killed=False):
    """`headstart watch` in a process of its own; its address. `killed`: it ends by SIGKILL."""
    words = [sys.executable, "-m", "headstart", "watch", *map(str, paths), "--port", str(port)]
    process = subprocess.Popen([*words, *more], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().split()[0]
    finally:
        (process.kill if killed else process.terminate)()
        process.stdout.close()
        process.wait(20)


@contextmanager
def chromium(width=1200, height=900):
    """The system's Chromium, driven."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS.split(), f"window-size={width},{height}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(DRIVER, env={**os.environ, "SE_AVOID_STATS": "true"})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


def text_of(driver):
    return driver.execute_script("return document.body.innerText")


def seen(driver, pattern, seconds=30.0):
    """Wait until the page's text has this; the whole text."""
    until = time.monotonic() + seconds
    while not re.search(pattern, text := text_of(driver)):
        assert time.monotonic() < until, f"expected {pattern!r} in:\n{text}"
        time.sleep(0.05)
    return text


@dataclass(frozen=True)
class Answer:
    status_code: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class Web:
    """An application asked in this process, one request at a time."""

    app: Callable[..., Awaitable[None]]
    host: str = "127.0.0.1"

    def get(self, path):
        return self.request("GET", path)

    def request(self, method, path):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        asyncio.run(self.app(self._scope(method, path), receive, send))
        headers = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return Answer(sent[0]["status"], headers, body.decode())

    def _scope(self, method, path):
        about = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"}
        where = {"scheme": "http", "server": (self.host, 80), "root_path": ""}
        asked = {"path": urllib.parse.unquote(path), "raw_path": path.encode(), "query_string": b""}
        return {
            **about,
            **where,
            **asked,
            "method": method,
            "headers": [(b"host", self.host.encode())],
        }
