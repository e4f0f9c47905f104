"""The page over HTTP: who may read it, what a browser may do with it, and that it only reads."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from headstart.live import serve
from tests.live.helpers import Web, page, write_event

pytest.importorskip("starlette")
from headstart.live.app import READERS, Page


@pytest.fixture
def run(tmp_path):
    write_event(tmp_path / "run", "start", pipeline="<script>alert(1)</script>", clients=2)
    (tmp_path / "run" / "report.html").write_text("<h1>Report</h1>")
    return tmp_path / "run"


def client(shown, host="127.0.0.1"):
    return Web(shown.app(), host)


def first_frames(shown, number):
    """The first frames of the stream of events, as a browser gets them."""

    async def read():
        stream = shown.frames()
        found = [(await anext(stream)).decode() for _ in range(number)]
        await stream.aclose()
        return found

    return asyncio.run(asyncio.wait_for(read(), 30))


def test_every_answer_has_a_strict_policy(run):
    web = client(Page([run]))
    for path in ("/", "/page.js", "/chart.js", "/page.css", "/report/0", "/nothing"):
        headers = web.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none';")
        assert "http" not in policy  # nothing from elsewhere
        assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in web.get("/").headers["content-security-policy"]
    assert "script-src" not in web.get("/report/0").headers["content-security-policy"]


def test_the_page_has_no_script_or_style_of_its_own_and_names_no_other_place(run):
    web = client(Page([run]))
    html = web.get("/").text
    assert re.findall(r"<script[^>]*>", html) == [
        '<script src="chart.js" defer>',
        '<script src="page.js" defer>',
    ]
    assert not re.search(r"<style|style=|onload=|//", html.replace("<!doctype", ""))
    for name in ("page.js", "chart.js"):
        text = web.get(f"/{name}").text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"innerHTML|insertAdjacentHTML|eval\(|https?:", text)


def test_it_only_reads(run):
    before = sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*"))
    shown = Page([run], poll=0.01)
    web = client(shown)
    for path in ("/", "/events", "/report/0", "/page.js"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert web.request(method, path).status_code == 405
    assert web.get("/report/0").text == "<h1>Report</h1>"
    for path in ("/report/1", "/report/-1", "/../run", "/page.html", "/%2e%2e/app.py"):
        assert web.get(path).status_code == 404
    first_frames(shown, 2)
    assert sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*")) == before


def test_another_sites_name_does_not_lead_here(run):
    web = client(Page([run]), host="evil.example")
    assert web.get("/").status_code == 421
    assert web.get("/report/0").status_code == 421
    web = client(Page([run]), host="localhost")
    assert web.get("/").status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("a_b.evil.example:8765", "a!b.evil.example", "x@127.0.0.1", "localhost.evil.example"),
        *("127.0.0.1.evil.example", "localhost:1:2", "evil.example#localhost", "localhost/"),
        *("[", ""),
    ],
)
def test_a_name_that_is_none_is_another_sites_and_not_this_pages(run, host):
    """Browsers ask for names with `_` too; what is malformed is not the server's own address."""
    web = client(Page([run]), host=host)
    for path in ("/", "/events", "/report/0", "/page.js"):
        assert web.get(path).status_code == 421, path


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8765", "LOCALHOST", "[::1]:8765", "[::1]", "localhost:"]
)
def test_names_of_this_machine_lead_here(run, host):
    assert client(Page([run]), host=host).get("/").status_code == 200


def test_with_a_token_nothing_is_there_without_it(run):
    web = client(Page([run], token="abc"), host="10.0.0.7")
    for path in ("/", "/events", "/report/0", "/ab/", "/abcd/", "/page.js", "/ü/"):
        answer = web.get(path)
        assert (answer.status_code, answer.text) == (404, "not found")
    assert web.get("/abc/").status_code == 200
    assert web.get("/abc/page.js").status_code == 200
    assert web.get("/abc/report/0").status_code == 200


def test_only_loopback_needs_no_token(run, monkeypatch):
    made = []
    monkeypatch.setattr(serve, "_server", lambda page: made.append(page) or _Nothing())
    for host, local in (("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)):
        addresses = []
        serve.watch([run], host, 0, addresses.append)
        assert bool(made[-1].token) is not local
        assert addresses[0].endswith(f"/{made[-1].token}/" if not local else "/")
    assert len(made[-1].token) >= 32
    assert serve.is_loopback("::1")
    assert not serve.is_loopback("example.org")


class _Nothing:
    def run(self, sockets):
        pass


def test_events_begin_again_for_everybody_who_comes(run):
    shown = Page([run], poll=0.01)
    hello, update = first_frames(shown, 2)
    assert "event: hello" in hello
    assert first_frames(shown, 2)[1].splitlines()[0].startswith("data: ")
    message = json.loads(update.splitlines()[0].removeprefix("data: "))
    assert message["facts"]["pipeline"] == "<script>alert(1)</script>"  # put in as text
    assert shown.readers == 0


def test_too_many_pages_are_refused(run):
    shown = Page([run])
    shown.readers = READERS
    web = client(shown)
    assert web.get("/events").status_code == 503


def test_the_command_serves_what_is_written_meanwhile(run):
    with page(run) as address, urllib.request.urlopen(f"{address}events", timeout=30) as stream:
        lines = (line.decode() for line in stream if line.startswith(b'data: {"view'))
        assert '"running"' in next(lines)
        write_event(run, "finished", accuracy=0.5)
        assert '"finished"' in next(lines)


def test_run_with_watch_shows_its_page_and_ends_with_it(tmp_path):
    words = ["run", "Fed3R", "--data", "digits", "partition.clients=3", "--out", "run", "--watch"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headstart", *words],
        cwd=tmp_path,
        env={**os.environ, "DISPLAY": "", "WAYLAND_DISPLAY": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said = ""
        while "stays until Ctrl-C" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert "http://127.0.0.1:" in out
    assert process.returncode == 0, err
    assert (tmp_path / "run" / "report.html").exists()
