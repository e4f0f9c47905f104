"""A real federation on loopback: SuperLink with TLS and node keys, and nodes with their own data.

The project is the one that `headstart deploy init` writes, started by its own scripts, so that what
the guide says is what is tested. One story is told once; the tests ask what came of it.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headstart import Fed3R, LinearHead, registry
from headstart.cli.deploy import app
from headstart.data.datasets import Dataset
from headstart.deploy.flower import samples
from headstart.deploy.flower.settings import NodeSettings
from headstart.deploy.ledger import Ledger
from headstart.deploy.private import write_private
from headstart.federation import steps
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator, secret_of
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.run import simulate
from headstart.privacy.differential import Private
from headstart.privacy.masked import Masked
from headstart.privacy.plan import PrivacyPlan
from headstart.results import SeedResult

from ...privacy.parties import entropy

LONGEST = 400  # seconds that anything here may take before it is taken for dead
SITES = ("site-a", "site-b", "site-c", "site-d")
STEP = steps.measure(Fed3R(ridge="gcv"), exact=True, bound=1.0)
PLUGINS = [
    Path(__file__).parents[2] / "plugin_files" / name for name in ("centred.py", "fed_nesterov.py")
]
OWN = "centred-means + fed-nesterov-2(head)"  # a head and a training method of those files


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    told = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{told.get('PATH', '')}"
    quick = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2", "OMP_NUM_THREADS": "1"}
    return {**told, "PATH": path, **quick, **more}


class Started:
    """A script of the project with all that it starts, in a process group of its own."""

    def __init__(self, script: Path, *words: str, **more: str) -> None:
        self.log = script.with_name(f"{script.stem}-{free_port()}.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["sh", str(script), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment(**more),
                start_new_session=True,
            )

    def wait(self) -> int:
        return self.process.wait(LONGEST)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        self.process.wait(LONGEST)

    def said(self) -> str:
        return self.log.read_text(errors="replace")


class FleetOnly(BaseHTTPRequestHandler):
    """What nginx.conf does: the interface of nodes goes through, everything else is 403."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        passed = self.path.startswith("/v1/fleet/")
        self.server.seen.append((self.path, passed))
        status, headers, reply = 403, [], b""
        if passed:
            to = http.client.HTTPSConnection(*self.server.behind, context=self.server.trust)
            to.request("POST", self.path, body, dict(self.headers))
            answer = to.getresponse()
            status, headers, reply = answer.status, answer.getheaders(), answer.read()
            to.close()
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *told) -> None:
        pass


def proxy(certificates: Path, behind: tuple[str, int]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FleetOnly)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server.socket = own.wrap_socket(server.socket, server_side=True)
    server.trust = ssl.create_default_context(cafile=certificates / "ca.crt")
    server.behind, server.seen, server.daemon_threads = behind, [], True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def status(port: int, path: str, authority: Path) -> int:
    """Of a request without any credential."""
    trust = ssl.create_default_context(cafile=authority)
    to = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=30)
    to.request("POST", path, b"", {"Content-Type": "application/protobuf"})
    found = to.getresponse().status
    to.close()
    return found


def until(ready, what: str, *watched: Started) -> None:
    begun = time.monotonic()
    while not ready():
        assert time.monotonic() - begun < LONGEST, f"{what}: {[one.said() for one in watched]}"
        time.sleep(0.05)


def of_port(port: int) -> list[str]:
    """Processes that SuperLink at this port started: their command lines name it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if f"--runtime-api-address 127.0.0.1:{port} " in line]


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def being_read(pipe: Path) -> bool:
    """Whether somebody waits to read a named pipe."""
    try:
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@dataclass
class Story:
    root: Path
    data: dict
    test: object
    first: dict = field(default_factory=dict)  # results of the run in which a node is killed
    second: dict = field(default_factory=dict)  # of the run with a late node
    said: str = ""  # to the operator, by the latter
    plugged: dict = field(default_factory=dict)  # of the run with a user's own head and method
    secure: dict = field(default_factory=dict)  # of the masked run in which a node is killed
    private: dict = field(default_factory=dict)  # of the release whose noise its members draw
    events: list = field(default_factory=list)
    stranger: tuple = (None, "")
    statuses: dict = field(default_factory=dict)
    seen: list = field(default_factory=list)


def write_csv(path: Path, features, labels) -> None:
    """As the guide does it."""
    names = [*(f"pixel{i}" for i in range(features.shape[1])), "label"]
    rows, form = np.column_stack([features, labels]), ["%.4f"] * features.shape[1] + ["%d"]
    np.savetxt(path, rows, form, ",", header=",".join(names), comments="")


def project(root: Path, port: int) -> Story:
    """What an operator does: a project, and samples at each node in its own folder."""
    ready = prepare(
        make_config(
            {"data": "digits", "bound": 1.0, "partition": {"name": "iid", "clients": len(SITES)}}
        )
    )
    np.savez(root / "test.npz", features=ready.test.features, label=ready.test.labels)
    told = ["init", str(root / "fed"), "--dimension", "64", "--bound", "1.0"]
    (root / "classes.txt").write_text("\n".join(map(str, range(10))))
    told += ["--class-list", str(root / "classes.txt")]
    told += ["--address", f"127.0.0.1:{port}", "--test-data", str(root / "test.npz")]
    for name in (*SITES[:3], "stranger"):
        told += ["--node", name]
    made = CliRunner().invoke(app, told)
    assert made.exit_code == 0, made.output
    late = CliRunner().invoke(app, ["node", str(root / "fed"), SITES[3]])
    assert late.exit_code == 0, late.output
    data = dict(zip(SITES, ready.clients.values(), strict=True))
    for name, client in {**data, "stranger": data["site-a"]}.items():
        write_csv(
            root / "fed" / "nodes" / name / "samples.csv",
            client.samples.features,
            client.samples.labels,
        )
    for name in ("site-a", "site-b", "site-d"):  # the only code these nodes take from anywhere
        with open(root / "fed" / "nodes" / name / "node.toml", "a") as config:
            config.write(f'plugins = "{", ".join(map(str, PLUGINS))}"\n')
    (root / "fed/nodes/site-c/samples.csv").rename(root / "site-c.csv")
    os.mkfifo(root / "fed/nodes/site-c/samples.csv")  # from which nothing ever comes
    return Story(root / "fed", data, ready.test)


def keep_secrets(root: Path, names) -> None:
    """The secrets of a simulation, so that the shuffles are the same."""
    for name in names:
        private = root / "nodes" / name / "private"
        private.mkdir(mode=0o700)
        write_private(private / "secret", secret_of(0, name))


class Stage:
    """The processes of one project; all of them end with the block."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.port, self.running = root, port, []

    def start(self, script: str, *words: str, **more: str) -> Started:
        self.running.append(Started(self.root / script, *words, **more))
        return self.running[-1]

    def node(self, name: str, **more: str) -> Started:
        return self.start(f"nodes/{name}/start.sh", NODE_PORT=str(free_port()), **more)

    def run(self, *words: str) -> Started:
        return self.start("operator/run.sh", *words)

    def server(self, *names: str) -> Started:
        """SuperLink, which lets these nodes in."""
        link = self.start("server/start.sh")
        until(lambda: listens(self.port) or link.process.poll() is not None, "SuperLink", link)
        assert link.process.poll() is None, link.said()
        asked = [self.start("operator/register.sh", name) for name in names]
        assert not any(one.wait() for one in asked), [one.said() for one in asked]
        return link

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *told) -> None:
        for one in reversed(self.running):
            one.kill()
        until(lambda: not of_port(self.port), "SuperLink's own")  # they watch it, and end with it


def online(nodes: list[Started], *watched: Started) -> None:
    until(lambda: all("SuperNode ID" in one.said() for one in nodes), "nodes", *nodes, *watched)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    port = free_port()
    told = project(tmp_path_factory.mktemp("live"), port)
    root, output = told.root, told.root / "server/output"
    keep_secrets(root, SITES)
    with Stage(root, port) as stage, ExitStack() as later:
        node, run = stage.node, stage.run
        link = stage.server(*SITES)
        validator = proxy(root / "server", ("127.0.0.1", port))
        later.callback(validator.server_close)
        later.callback(validator.shutdown)
        near = validator.server_address[1]
        there = [
            node("site-a"),
            node("site-b", SUPERLINK=f"127.0.0.1:{near}"),  # through the proxy, as from outside
            (slow := node("site-c")),
        ]
        stranger = node("stranger")
        online(there, link)
        # A node is killed in the middle of its work: it waits for samples that never come.
        first = run("-c", "wanted=2 patience=1.0")
        pipe = root / "nodes/site-c/samples.csv"
        until(lambda: being_read(pipe), "site-c at work", slow, first, link)
        slow.kill()
        told.first = finished(1, first, output, link)
        # A late node comes; only who is missing is asked.
        told.stranger = (stranger.wait(), stranger.said())
        late = node("site-d")
        second = run("-c", "wanted=3 patience=1.0")
        told.second = finished(2, second, output, link, late)
        told.said = last_words(second, link)
        authority = root / "server/ca.crt"
        for name in ("list-runs", "start-run"):
            path = f"/v1/control/{name}"
            told.statuses[name] = (status(port, path, authority), status(near, path, authority))
        told.seen = list(validator.seen)
        told.events = events(output)
        told.plugged = run_of_plugins(stage, link)
        told.secure, told.private = masked_runs(stage, link)
        yield told


def run_of_plugins(stage: Stage, link: Started) -> SeedResult:
    """A head and a method that the package does not have, in a ledger of their own."""
    own = stage.root / "own"
    files = ",".join(map(str, PLUGINS))
    run = stage.run(
        "-c",
        f'pipeline="{OWN}" plugins="{files}" ledger="{own / "ledger"}" output="{own / "output"}"'
        " wanted=3 patience=1.0 cohort=3",
    )
    return finished(1, run, own / "output", link)


# A node whose noise a test knows, as `entropy` of its name; no setting of ours can say this.
SEEDED = """
import hashlib
import itertools

from flwr.app import Message
from flwr.clientapp import ClientApp
from headstart.deploy.flower.client import answer

app = ClientApp()

@app.query()
def query(message, context):
    name, numbers = context.node_config["client"], itertools.count()

    def entropy(size):
        text = f"headstart test entropy {name} {next(numbers)}"
        return hashlib.shake_256(text.encode()).digest(size)

    said = answer(message, context, entropy)
    return Message(content=said.to_content(), reply_to=message)
"""


def masked_runs(stage: Stage, link: Started) -> tuple[SeedResult, SeedResult]:
    """Noise under masks of four nodes; then one of them is killed before their sum is unmasked."""
    root = stage.root
    made = CliRunner().invoke(app, ["node", str(root), "site-e"])
    assert made.exit_code == 0, made.output
    shutil.copy(root.parent / "site-c.csv", root / "nodes/site-e/samples.csv")
    asked = stage.start("operator/register.sh", "site-e")
    assert not asked.wait(), asked.said()
    last = stage.node("site-e")
    online([last], link)
    told = "patience=1.0"
    place = {name: root / name for name in ("secure", "private")}
    words = {name: f'ledger="{at / "ledger"}" output="{at}"' for name, at in place.items()}
    half = root / "app/federation/client_app.py"
    ours = half.read_text()
    half.write_text(SEEDED)
    noise = 'private.epsilon=8.0 private.samples=1500 private.trust="secure-sum"'
    noise += ' private.mean=false pipeline="fed3r"'
    run = stage.run("-c", f"{noise} wanted=4 {told} {words['private']}")
    private = finished(1, run, place["private"], link)
    half.write_text(ours)
    # The same four again: without a budget of its own a node is in no other group, noise or not.
    run = stage.run("-c", f"secure=true wanted=4 {told} {words['secure']}")
    until(lambda: asked_for("confirm", place["secure"]), "vectors", run, link, last)
    last.kill()
    return finished(1, run, place["secure"], link), private


def asked_for(stage: str, output: Path) -> bool:
    return any(event.get("stage") == stage for event in events(output))


def events(output: Path) -> list[dict]:
    path = output / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def finished(number: int, run: Started, output: Path, *watched: Started) -> SeedResult:
    """The results of the run of this number, once it has ended; on a busy machine the command that
    started it may give up waiting before that."""

    def ended() -> bool:
        return sum(event["event"] == "finished" for event in events(output)) == number

    until(lambda: ended() or run.process.poll() == 0, f"run {number}", run, *watched)
    assert ended(), "\n".join(one.said() for one in (run, *watched))
    return SeedResult.from_json((output / "results.json").read_text())


def last_words(run: Started, link: Started) -> str:
    """The line that says it is done, in the log that the operator follows or in the server's."""
    until(lambda: "headstart: done" in run.said() + link.said(), "the last line", run, link)
    lines = (run.said() + link.said()).splitlines()
    return next(line for line in lines if "headstart: done" in line)


def simulated(story, *names):
    return Simulator({name: story.data[name] for name in names})


def test_the_total_is_the_simulators_bit_for_bit(story):
    names = ("site-a", "site-b", "site-d")
    simulator = simulated(story, *names)
    assert story.second.head.digest == simulator.total(STEP).statistic.digest()
    with Ledger.open(story.root / "server/ledger", write=False) as ledger:
        assert ledger.total().digest() == story.second.head.digest
        assert sorted(ledger.members()) == sorted(names)


def test_a_node_killed_in_the_middle_of_a_run_is_survived(story):
    assert sorted(story.first.split.clients) == ["site-a", "site-b"]
    assert (
        story.first.head.digest
        == simulated(story, "site-a", "site-b").total(STEP).statistic.digest()
    )
    assert [(t.client, t.code) for t in story.first.failures] == [("site-c", "missing")]


def test_a_late_node_is_added_and_only_the_missing_are_asked(story):
    starts = [at for at, event in enumerate(story.events) if event["event"] == "start"]
    uploads = [
        sorted(event["client"] for event in part if event["event"] == "upload")
        for part in (story.events[: starts[1]], story.events[starts[1] :])
    ]
    assert uploads == [["site-a", "site-b"], ["site-d"]]
    assert [each.clients for each in story.second.head.arrivals] == [1, 2, 3]


def test_the_operator_is_told_where_the_model_is_and_who_is_not_in_it(story):
    model = story.root / "server/output/model.safetensors"
    assert f"{model} is the model of 3 clients, without site-c and stranger" in story.said


def test_a_key_that_is_not_registered_is_refused(story):
    code, said = story.stranger
    assert code != 0
    assert "305" in said
    assert "stranger" not in story.second.split.clients
    assert not (story.root / "nodes/stranger/private").exists()  # it was never asked


def test_the_model_is_that_of_the_simulator_and_its_accuracy_is_told(story):
    model = LinearHead.load(story.root / "server/output/model.safetensors")
    simulator = simulated(story, "site-a", "site-b", "site-d")
    head = Fed3R(ridge="gcv").solve(simulator.total(STEP).statistic)
    assert np.array_equal(model.weights, head.weights)
    losses = simulator.total(steps.calibrate(), steps.with_head(head))
    assert model.temperature == pytest.approx(head.calibrated(losses.statistic.values).temperature)
    accuracy = head.accuracy(story.test.features, story.test.labels)
    assert story.second.head.arrivals[-1].accuracy == pytest.approx(accuracy)
    assert accuracy > 0.9
    assert "As clients arrive" in (story.root / "server/output/report.html").read_text()


@pytest.mark.usefixtures("registered")
def test_a_head_and_a_method_of_plugin_files_give_the_simulators_model(story):
    for path in PLUGINS:
        registry.load_plugin(path)
    names = ("site-a", "site-b", "site-d")
    assert [(point.phase, point.round) for point in story.plugged.curve] == [(0, 0), (1, 1), (1, 2)]
    assert sorted(story.plugged.split.clients) == sorted(names)
    ready = simulated_run({name: story.data[name] for name in names}, story.test)
    _, state, _ = simulate(ready, parsed(OWN))
    model = LinearHead.load(story.root / "own/output/model.safetensors")
    assert np.array_equal(model.weights, state.params["head.weight"].astype(np.float64))


def test_a_node_killed_before_the_sum_is_unmasked_is_in_it(story):
    """The server has the sum of all four, bit for bit, and nothing of any of them."""
    assert story.secure.head.digest == simulated(story, *SITES).total(STEP).statistic.digest()
    assert {(t.client, t.code) for t in story.secure.failures} >= {("site-e", "missing")}
    assert {t.client for t in story.secure.failures} == {"site-e"}
    with Ledger.open(story.root / "secure/ledger", write=False) as ledger:
        (entry,) = ledger.entries()
    assert entry.clients == ("site-a", "site-b", "site-d", "site-e")
    for name in entry.clients[:3]:
        own = story.root / "nodes" / name / "private/secure"
        history = json.loads(json.loads((own / "history.json").read_text())["history"])
        assert len(history["rounds"]) == 2  # the secrets of rounds that were summed are gone
        assert not any((own / f"{one}.safetensors").exists() for one in history["rounds"])


def test_noise_of_the_members_gives_the_simulators_release(story):
    names = {"site-a": "site-a", "site-b": "site-b", "site-d": "site-d", "site-e": "site-c"}
    members = Simulator({name: story.data[whose] for name, whose in names.items()})
    masked = Masked(members, 4, range(10), entropy=entropy)  # the noise is that of their names
    told = {"samples": 1500, "trust": "secure-sum", "mean": False, "dimension": 64}
    plan = PrivacyPlan(8.0, 1e-5, range(10), **told)
    release = Private(masked, plan).total(steps.measure(Fed3R(), exact=True)).statistic
    assert story.private.head.digest == release.digest()
    assert story.private.privacy.trust == "secure-sum"


def test_every_node_keeps_a_receipt_and_a_secret_for_itself(story):
    with Ledger.open(story.root / "server/ledger", write=False) as ledger:
        members = ledger.members()
    for name in ("site-a", "site-b", "site-d"):
        own = story.root / "nodes" / name / "private"
        first, *_ = (own / "receipts.jsonl").read_text().splitlines()
        assert json.loads(first)["receipt"]["digest"] == members[name]
        assert (own / "secret").stat().st_mode & 0o777 == 0o600


def test_nodes_need_the_fleet_interface_only_and_a_proxy_closes_the_others(story):
    """Without it whoever reaches SuperLink may use its control interface, as the guide says."""
    directly, through = zip(*story.statuses.values(), strict=True)
    assert set(through) == {403}
    assert not set(directly) & {401, 403}
    assert {path for path, passed in story.seen if passed} >= {"/v1/fleet/pull-messages"}
    assert {path for path, passed in story.seen if not passed} == {
        "/v1/control/list-runs",
        "/v1/control/start-run",
    }


@pytest.mark.long
def test_all_four_phases_run_over_flower(tmp_path):
    """A head, fine-tuning, partial and full personalization, each round a message to every node."""
    port = free_port()
    told = project(tmp_path, port)
    names = ("site-a", "site-b", "site-d")
    keep_secrets(told.root, names)
    for name in names:
        with open(told.root / "nodes" / name / "node.toml", "a") as config:
            config.write("held-out = 0.25\n")
    text = "Fed3R(ridge=0.01) + FedAvg-2(head) + Ditto-1 + FP-1(head)"
    with Stage(told.root, port) as stage:
        link = stage.server(*names)
        nodes = [stage.node(name) for name in names]
        online(nodes, link)
        run = stage.run("-c", f'pipeline="{text}" wanted=3 personal=true cohort=3')
        results = finished(1, run, told.root / "server/output", link, *nodes)
    assert [(point.phase, point.round) for point in results.curve] == [
        (0, 0), (1, 1), (1, 2), (2, 1), (3, 1),
    ]  # fmt: skip
    assert results.personal.clients == names
    alone = {name: own_parts(told.data[name], name) for name in names}
    expected, state, _ = simulate(simulated_run(alone, told.test), parsed(text))
    ours = LinearHead.load(told.root / "server/output/model.safetensors")
    assert np.array_equal(ours.weights, state.params["head.weight"].astype(np.float64))
    assert results.personal == expected.personal
    accuracies = [point.accuracy for point in results.curve]
    assert accuracies == pytest.approx([point.accuracy for point in expected.curve])


def own_parts(client, name):
    """The client as its node has it: a quarter held out, by the node's own seed."""
    node = NodeSettings(client=name, data="-", folder="-", held_out=0.25)
    train, test = samples._parts(
        Dataset(name, client.samples.features, client.samples.labels), node
    )
    return ClientData(train.samples, test.samples)


def simulated_run(clients, test):
    told = {"data": "digits", "bound": 1.0, "held_out": 0.5, "cohort": len(clients)}
    ready = prepare(make_config({**told, "partition": {"name": "iid", "clients": len(clients)}}))
    return replace(ready, test=test, federation=Simulator(clients, together=False), clients=clients)
