"""`headstart deploy init`: a project that is whole, private where it must be, and Flower's own."""

from __future__ import annotations

import io
import json
import shlex
import shutil
import ssl
import subprocess
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.common.config import flatten_dict
from typer.testing import CliRunner

from headstart import HeadstartError
from headstart.cli.deploy import app
from headstart.deploy import scaffold
from headstart.deploy.flower.settings import NodeSettings, ServerSettings, paths, told
from headstart.deploy.private import kept_secret, write_private
from headstart.deploy.scaffold import Plan, add_node, filled, init
from headstart.privacy.keys import verifying_key
from headstart.registry import load_plugin

PLAN = Plan(("site-a", "site-b"), 64, "fl.example.org:9443", 9100, wanted=2, bound=4)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project") / "fed"
    init(folder, PLAN)
    return folder


def test_private_files_are_their_owners_alone(made):
    private = {"authority/ca.key", "server/server.key", "nodes/site-a/key", "nodes/site-b/key"}
    holding = {
        str(path.relative_to(made))
        for path in made.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    }
    assert holding == private
    for name in private:
        assert (made / name).stat().st_mode & 0o777 == 0o600
        assert (made / name).parent.stat().st_mode & 0o777 == 0o700


def test_what_a_run_and_a_node_are_told_is_what_the_two_halves_take(made):
    project = tomllib.loads((made / "app/pyproject.toml").read_text())
    config = flatten_dict(project["tool"]["flwr"]["app"]["config"])
    run = told(ServerSettings, config, "run")
    assert (run.pipeline, run.dimension, run.wanted, run.bound) == ("fed3r(ridge=gcv)", 64, 2, 4.0)
    default = ServerSettings(dimension=64, ledger="ledger", output="output")
    changed = {"pipeline", "wanted", "bound", "nodes", "peers", "private"}
    assert run.nodes.split() == ["site-a", "site-b"]
    for name in vars(default):
        assert name in changed or getattr(run, name) == getattr(default, name), name
    known = {key.partition(".")[0].replace("-", "_") for key in config}
    assert set(vars(default)) - known == {"caps"}  # everything can be told otherwise, run by run
    node = told(NodeSettings, tomllib.loads((made / "nodes/site-b/node.toml").read_text()), "node")
    assert (node.client, node.small) == ("site-b", False)


@pytest.mark.usefixtures("registered")
def test_a_project_names_the_plugins_it_was_made_with(tmp_path):
    path = Path(__file__).parents[1] / "plugin_files" / "centred.py"
    with pytest.raises(HeadstartError, match="expected a known name, got 'centred-means'"):
        Plan(("site-a",), 64, pipeline="centred-means")
    load_plugin(path)
    init(tmp_path / "fed", Plan(("site-a",), 64, pipeline="centred-means"))
    project = tomllib.loads((tmp_path / "fed/app/pyproject.toml").read_text())
    run = told(ServerSettings, flatten_dict(project["tool"]["flwr"]["app"]["config"]), "run")
    assert paths(run.plugins) == [str(path)]
    node = tomllib.loads((tmp_path / "fed/nodes/site-a/node.toml").read_text())
    assert "plugins" not in node  # which is for its owner to say


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_the_app_is_one_that_flower_builds_and_no_key_is_in_it(made):
    bundle = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(made / "app")))
    names = {name for name in bundle.namelist() if not name.startswith(".info")}
    assert names == {
        "pyproject.toml",
        "federation/__init__.py",
        "federation/client_app.py",
        "federation/server_app.py",
    }


def test_the_servers_certificate_is_good_for_its_names_and_no_others(made):
    """A TLS handshake in memory, as a node does it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made / "server/server.crt", made / "server/server.key")
    trust = ssl.create_default_context(cafile=made / "nodes/site-a/ca.crt")
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("fl.example.org", "localhost", "127.0.0.1"):
        shake(server, trust, name)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.com"):
        shake(server, trust, "example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, ssl.create_default_context(), "localhost")


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    two = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        done = 0
        for side in (one, two):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                done += 1
        if done == 2:
            return
    raise AssertionError("no handshake")


def test_node_keys_are_the_kind_that_flower_takes_each_its_own(made):
    publics = set()
    for name in PLAN.nodes:
        own = made / "nodes" / name
        private = load_ssh_private_key((own / "key").read_bytes(), None)
        assert isinstance(private.curve, ec.SECP384R1)
        public = load_ssh_public_key((own / "key.pub").read_bytes())
        assert public.public_numbers() == private.public_key().public_numbers()
        publics.add((own / "key.pub").read_bytes())
    assert len(publics) == 2


def test_the_world_may_reach_the_nodes_interface_alone(made):
    start = (made / "server/start.sh").read_text()
    assert "--host 127.0.0.1 --port 9100" in start
    assert "--enable-supernode-auth" in start
    assert "--insecure" not in start
    conf = (made / "server/nginx.conf").read_text()
    assert conf.count("location ") == 2
    assert "location /v1/fleet/ {" in conf
    assert "location / { return 403; }" in conf
    assert "listen 9443 ssl;" in conf
    assert "fl.example.org:9443" in (made / "nodes/site-a/start.sh").read_text()


def test_flower_has_no_other_interface_than_those_the_guide_names():
    """If a release of Flower adds one, the proxy still closes it, but the guide must name it."""
    from fastapi.routing import iter_route_contexts
    from flwr.superlink import main

    routes = [one.path for one in iter_route_contexts(main.create_app().routes)]
    kinds = {"/".join(path.split("/")[:3]) for path in routes}
    own = {"/openapi.json", "/docs", "/docs/oauth2-redirect", "/health"}
    assert kinds - own == {"/v1/control", "/v1/fleet", "/v1/runtime"}
    guide = (Path(__file__).parents[2] / "docs/deploy.md").read_text(encoding="utf-8")
    assert all(f"`{kind}/" in guide for kind in kinds - own)


def test_scripts_are_shell_and_units_say_where_they_are(made):
    for path in made.rglob("*.sh"):
        subprocess.run(["sh", "-n", str(path)], check=True)
    unit = (made / "nodes/site-a/headstart-node.service").read_text()
    assert f'ExecStart=/bin/sh "{made}/nodes/site-a/start.sh"' in unit
    for path in made.rglob("*"):
        if path.is_file():
            assert b"{{" not in path.read_bytes().replace(b"{{}}", b""), path


def test_nodes_know_each_others_signing_keys_from_their_own_files(tmp_path):
    init(tmp_path / "fed", Plan(("a", "b"), 8))
    add_node(tmp_path / "fed", "late")
    known = {}
    for name in ("a", "b", "late"):
        own = tmp_path / "fed/nodes" / name
        assert (own / "sign.key").stat().st_mode & 0o777 == 0o600
        known[name] = verifying_key((own / "sign.key").read_bytes()).hex()
    for place in ("server", "nodes/a", "nodes/b", "nodes/late"):
        assert json.loads((tmp_path / "fed" / place / "peers.json").read_text()) == known


def test_nodes_of_a_secure_federation_send_nothing_without_masks(tmp_path):
    (tmp_path / "mine.txt").write_text("1\n2\n")
    init(tmp_path / "fed", Plan(("a",), 8, class_list=str(tmp_path / "mine.txt"), secure=True))
    add_node(tmp_path / "fed", "late")
    for name in ("a", "late"):
        text = (tmp_path / f"fed/nodes/{name}/node.toml").read_text()
        assert told(NodeSettings, tomllib.loads(text), "node").trust == "secure-sum"
    with pytest.raises(HeadstartError, match="class-list: expected the agreed classes"):
        Plan(("a",), 8, secure=True)


def test_what_was_agreed_is_told_to_the_run_and_to_every_node(tmp_path):
    """Also to a node that is made later; the list of classes is the project's own copy."""
    (tmp_path / "mine.txt").write_text("cat\ndog\n")
    agreed = {"labels": "text", "class_list": str(tmp_path / "mine.txt"), "extractor": "squeezenet"}
    init(tmp_path / "fed", Plan(("a",), 8, **agreed))
    (tmp_path / "mine.txt").unlink()
    add_node(tmp_path / "fed", "late")
    project = tomllib.loads((tmp_path / "fed/app/pyproject.toml").read_text())
    run = told(ServerSettings, flatten_dict(project["tool"]["flwr"]["app"]["config"]), "run")
    assert (run.labels, run.class_list, run.extractor) == ("text", "classes.txt", "squeezenet")
    assert (tmp_path / "fed/server/classes.txt").read_text() == "cat\ndog\n"
    for name in ("a", "late"):
        text = (tmp_path / f"fed/nodes/{name}/node.toml").read_text()
        node = told(NodeSettings, tomllib.loads(text), "node")
        assert node == NodeSettings(
            client=name,
            data="samples.csv",
            folder="private",
            extractor="squeezenet",
            sign="sign.key",
            peers="peers.json",
        )


def test_what_the_server_and_nodes_write_is_their_owners_alone(made):
    """Of SuperLink's own state as well, which it makes itself."""
    for place in ("server", "nodes/site-a"):
        script = (made / place / "start.sh").read_text()
        assert script.index("umask 077") < script.index("exec ")
        (unit,) = (made / place).glob("*.service")
        assert "UMask=0077" in unit.read_text()


def test_one_more_node_and_not_twice(made):
    place = add_node(made, "site-z")
    assert (place / "key").stat().st_mode & 0o777 == 0o600
    assert "9203" in (place / "start.sh").read_text()
    app = tomllib.loads((made / "app/pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"]["nodes"] == "site-a site-b site-z"  # a run that waits knows of it
    with pytest.raises(HeadstartError, match="is there already"):
        add_node(made, "site-z")
    with pytest.raises(HeadstartError, match="is none of"):
        add_node(made / "app", "site-y")


def test_a_node_that_was_carried_away_can_still_be_let_in(tmp_path):
    """The guide says: carry the folder, delete it here, register. Its public key stays."""
    init(tmp_path / "fed", PLAN)
    add_node(tmp_path / "fed", "late")
    for name in (*PLAN.nodes, "late"):
        key = (tmp_path / "fed/nodes" / name / "key.pub").read_bytes()
        shutil.rmtree(tmp_path / "fed/nodes" / name)
        assert (tmp_path / "fed/operator/keys" / f"{name}.pub").read_bytes() == key
    (tmp_path / "bin").mkdir()
    flwr = tmp_path / "bin/flwr"
    flwr.write_text('#!/bin/sh\ntest -f "$3" && echo "$@"\n')
    flwr.chmod(0o755)
    done = subprocess.run(
        ["sh", str(tmp_path / "fed/operator/register.sh"), "site-a", "late"],
        env={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["site-a", "late"]
    with pytest.raises(HeadstartError, match=r"site-a\.pub is there already"):
        add_node(tmp_path / "fed", "site-a")


def test_units_keep_what_a_node_caches_where_it_may_write(made):
    for place, unit in (("nodes/site-a", "headstart-node"), ("server", "headstart-server")):
        text = (made / place / f"{unit}.service").read_text()
        assert f'Environment="HEADSTART_CACHE={made}/{place}/cache"' in text
        assert f'ReadWritePaths="{made}/{place}"' in text


@pytest.fixture
def spaced(tmp_path):
    folder = tmp_path / "two words, 50%n" / "fed"
    init(folder, PLAN)
    return folder


def test_folders_may_have_spaces_and_percents(spaced):
    unit = (spaced / "server/headstart-server.service").read_text()
    said = str(spaced).replace("%", "%%")
    assert f'ReadWritePaths="{said}/server"' in unit
    assert f'ExecStart=/bin/sh "{said}/server/start.sh"' in unit
    assert f"WorkingDirectory={said}/server\n" in unit
    assert f'"{spaced}/server/server.key";' in (spaced / "server/nginx.conf").read_text()
    config = tomllib.loads((spaced / "operator/flwr/config.toml").read_text())
    assert config["superlink"]["headstart"]["root-certificates"] == f"{spaced}/server/ca.crt"
    first = scaffold.next_steps(spaced, ["a"])[0]
    assert shlex.split(first) == ["sh", f"{spaced}/server/start.sh"]


@pytest.mark.parametrize("sign", ["'", '"', "\\", "$", "\n"])
def test_folders_that_units_and_scripts_cannot_name_are_refused(tmp_path, sign):
    with pytest.raises(HeadstartError, match="output: expected a path without"):
        init(tmp_path / f"a{sign}b" / "fed", PLAN)
    assert list(tmp_path.iterdir()) == []


def test_the_guide_says_what_the_container_and_the_state_really_do():
    guide = (Path(__file__).parents[2] / "docs/deploy.md").read_text(encoding="utf-8")
    container = filled("Containerfile", {})
    assert ("--network host" in container) == ("`--network host`" in guide)
    assert "no network but the server" not in guide
    assert ("--database state.db" in filled("server.sh", {"listen": "", "port": ""})) == (
        "`server/state.db" in guide
    )


def test_a_project_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    folder = tmp_path / "fed"

    def broken(*told):
        raise HeadstartError("disk: full")

    monkeypatch.setattr(scaffold, "add_node", broken)
    with pytest.raises(HeadstartError, match="disk: full"):
        init(folder, PLAN)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    folder.mkdir()
    init(folder, PLAN)  # into an empty folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(HeadstartError, match="is there already"):
        init(folder, PLAN)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nodes": ()}, "at least one name"),
        ({"nodes": ("a b",)}, "letters, digits"),
        ({"nodes": ("../x",)}, "letters, digits"),
        ({"nodes": ("a", "a")}, "each once"),
        ({"dimension": 0}, "dimension: .*, got 0"),
        ({"wanted": -1}, "wanted: .*, got -1"),
        ({"address": "nowhere"}, "HOST:PORT"),
        ({"address": "x;y:1"}, "HOST:PORT"),
        ({"address": "host:99999"}, "port from 1"),
        ({"port": 70000}, "port from 1"),
        ({"deadline": 0}, "deadline"),
        ({"bound": -1.0}, "bound"),
        ({"pipeline": "Fed9R"}, "pipeline"),
        ({"labels": "colour"}, "labels: expected integer or text"),
        ({"class_list": "/nowhere/classes.txt"}, "class-list: cannot read"),
        ({"extractor": 'a"b'}, "extractor: expected a name or a path"),
    ],
)
def test_a_plan_is_checked(changes, said):
    values = {"nodes": ("a",), "dimension": 3, **changes}
    with pytest.raises(HeadstartError, match=said):
        Plan(**values)


@pytest.mark.parametrize("address", ["[::1]:9100", "127.0.0.1:9100", "localhost:9100"])
def test_on_one_machine_no_proxy_is_needed(tmp_path, address):
    init(tmp_path / "fed", Plan(("a",), 3, address))
    assert not (tmp_path / "fed/server/nginx.conf").exists()
    assert address in (tmp_path / "fed/nodes/a/start.sh").read_text()
    own, there = ("::1", "[::1]:9100") if "::" in address else ("127.0.0.1", "127.0.0.1:9100")
    assert f"--host {own} --port 9100" in (tmp_path / "fed/server/start.sh").read_text()
    config = tomllib.loads((tmp_path / "fed/operator/flwr/config.toml").read_text())
    assert config["superlink"]["headstart"]["address"] == there


def test_the_command_says_what_comes_next(tmp_path):
    folder = tmp_path / "fed"
    told = ["init", str(folder), "--node", "a", "--node", "b", "--dimension", "8"]
    done = CliRunner().invoke(app, told)
    assert done.exit_code == 0, done.output
    for script in ("server/start.sh", "operator/register.sh a b", "nodes/b/start.sh"):
        assert f"sh {folder}/{script}" in done.output.replace("\n", "")
    more = CliRunner().invoke(app, ["node", str(folder), "c"])
    assert more.exit_code == 0, more.output
    assert (folder / "nodes/c/key.pub").exists()


def test_a_template_without_a_value_is_an_error():
    with pytest.raises(KeyError):
        filled("node.toml", {"name": "a"})


def test_private_files_are_written_once_and_secrets_are_secrets(tmp_path):
    write_private(tmp_path / "one", b"x")
    with pytest.raises(HeadstartError, match="there already"):
        write_private(tmp_path / "one", b"y")
    assert (tmp_path / "one").read_bytes() == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    with pytest.raises(HeadstartError, match="expected 32 bytes"):
        kept_secret(tmp_path / "one")
    with pytest.raises(HeadstartError, match="cannot read"):
        kept_secret(tmp_path / "no" / "folder")
    assert kept_secret(tmp_path / "two") == kept_secret(tmp_path / "two")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("place", ["made", "spaced"])
def test_units_are_ones_that_systemd_takes(place, request):
    for unit in request.getfixturevalue(place).rglob("*.service"):
        done = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
        )
        about = [line for line in done.stderr.splitlines() if unit.name in line]
        wrong = ("Unknown", "Failed to", "not absolute", "ignoring", "Invalid")
        assert not [line for line in about if any(word in line for word in wrong)]
