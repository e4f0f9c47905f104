"""A ready Flower project in a folder: app, certificates, node keys, commands, units, a container.

The folder appears whole or not at all; private files are their owner's to read from the first byte.
"""

from __future__ import annotations

import ipaddress
import json
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

from headstart.deploy.admission import KINDS
from headstart.deploy.private import SECRET_BYTES, write_private
from headstart.errors import HeadstartError
from headstart.files import write_bytes, write_text
from headstart.optional import require
from headstart.pipeline.config import parsed
from headstart.registry import plugins

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NODE_PORT = 9201  # of the first node; its own interface, on its own loopback
_STATE = "deploy.json"
_CLASSES = "classes.txt"  # in server/
PEERS = "peers.json"  # in server/ and at every node: the signing keys' public halves
_NODES = re.compile(r'^(nodes = "([^"\n]*))"', re.MULTILINE)
_APP = '"""{what}"""\n\nfrom headstart.deploy.flower.{half} import app\n\n__all__ = ["app"]\n'


@dataclass(frozen=True)
class Plan:
    """What a federation is to be.

    nodes      names of the first ones; others can be made later
    address    HOST:PORT at which nodes reach the server
    port       of SuperLink, on the server's loopback (0: that of the address)
    pipeline, dimension, wanted, deadline, bound, test_data: settings of a run
    labels     what all labels are: "integer" or "text"
    class_list a text file of the agreed classes, one per line, which is copied (none: any classes)
    extractor  the network that makes everybody's features (none: samples are features)
    secure     whether only sums of groups are seen; the classes must be agreed
    """

    nodes: tuple[str, ...]
    dimension: int
    address: str = "127.0.0.1:9100"
    port: int = 0
    pipeline: str = "fed3r(ridge=gcv)"
    wanted: int = 0
    deadline: float = 600.0
    bound: float = 16.0
    test_data: str = ""
    labels: str = "integer"
    class_list: str = ""
    extractor: str = ""
    secure: bool = False

    def __post_init__(self) -> None:
        if not self.nodes:
            raise HeadstartError("node: expected at least one name, got none")
        for name in self.nodes:
            check_name(name)
        if len(set(self.nodes)) < len(self.nodes):
            raise HeadstartError(f"node: expected names, each once, got {', '.join(self.nodes)}")
        for name, least in (("dimension", 1), ("wanted", 0)):
            if getattr(self, name) < least:
                raise HeadstartError(
                    f"{name}: expected a number of at least {least}, got {getattr(self, name)}"
                )
        if not 0 < self.deadline < 1e6:
            raise HeadstartError(f"deadline: expected seconds, got {self.deadline!r}")
        if not 0 < self.bound < 1e100:
            raise HeadstartError(f"bound: expected a number above 0, got {self.bound!r}")
        if self.labels not in KINDS:
            raise HeadstartError(f"labels: expected {' or '.join(KINDS)}, got {self.labels!r}")
        if self.secure and not self.class_list:
            raise HeadstartError("class-list: expected the agreed classes of a secure sum")
        if not self.extractor.isprintable() or set('"\\') & set(self.extractor):
            raise HeadstartError(f"extractor: expected a name or a path, got {self.extractor!r}")
        _ = self.host, self.public_port, self.own_port, parsed(self.pipeline), self.classes

    @property
    def classes(self) -> bytes:
        """The file of the agreed classes."""
        try:
            return Path(self.class_list).expanduser().read_bytes() if self.class_list else b""
        except OSError as error:
            raise HeadstartError(
                f"class-list: cannot read {self.class_list}: {error.strerror}"
            ) from None

    @property
    def host(self) -> str:
        host = self.address.rpartition(":")[0].strip("[]")
        if not _is_address(host) and not _HOST.fullmatch(host):
            raise HeadstartError(f"address: expected HOST:PORT, got {self.address!r}")
        return host

    @property
    def public_port(self) -> int:
        return _port("address", self.address.rpartition(":")[2])

    @property
    def own_port(self) -> int:
        return _port("port", str(self.port)) if self.port else self.public_port

    @property
    def local(self) -> bool:
        """Whether everything is on one machine, and no proxy is needed."""
        return self.host == "localhost" or self.listen == self.host

    @property
    def listen(self) -> str:
        """Where SuperLink listens: at the address if that is loopback, else behind a proxy."""
        own = _is_address(self.host) and ipaddress.ip_address(self.host).is_loopback
        return self.host if own else "127.0.0.1"


def check_name(name: str) -> None:
    """Refuse a node's name with other than letters, digits, '.', '_' and '-'."""
    if not _NAME.fullmatch(name):
        raise HeadstartError(
            f"node: expected a name of letters, digits, '.', '_' and '-', got {name!r}"
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def check_folder(path: Path) -> Path:
    """A path as units, scripts and configurations can name it; spaces are no trouble."""
    if not str(path).isprintable() or set("\"'\\$") & set(str(path)):
        raise HeadstartError(
            "output: expected a path without quotes, backslashes, '$' and line ends, "
            f"got {str(path)!r}"
        )
    return path


def _port(name: str, text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise HeadstartError(f"{name}: expected a port from 1 to 65535, got {text!r}")
    return int(text)


# -- the folder ------------------------------------------------------------------------------------


def init(folder: Path, plan: Plan) -> None:
    """Write the project into a new folder."""
    folder = check_folder(folder.resolve())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HeadstartError(f"output: {folder} is there already; name a new folder")
    require("cryptography", "flower")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise HeadstartError(f"output: cannot make {folder}: {error.strerror}") from None
    try:
        _write(aside, folder, plan)
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(root: Path, final: Path, plan: Plan) -> None:
    """Into `root`, for a project that will be at `final`."""
    from headstart.deploy.certificates import certified

    for name in ("app/federation", "server", "operator/flwr", "nodes", "authority"):
        (root / name).mkdir(parents=True, mode=0o755)
    (root / "authority").chmod(0o700)
    (root / "server").chmod(0o700)
    hosts = list(dict.fromkeys([plan.host, "localhost", "127.0.0.1"]))
    keys = certified(hosts)
    write_private(root / "authority" / "ca.key", keys.authority.private)
    write_private(root / "server" / "server.key", keys.server.private)
    write_bytes(root / "server" / "server.crt", keys.server.public)
    write_bytes(root / "server" / "ca.crt", keys.authority.public)
    if plan.class_list:
        write_bytes(root / "server" / _CLASSES, plan.classes)
    about = _words(plan, final)
    written = {
        "app/pyproject.toml": "pyproject.toml",
        "server/start.sh": "server.sh",
        "server/headstart-server.service": "server.service",
        "operator/register.sh": "register.sh",
        "operator/run.sh": "run.sh",
        "operator/flwr/config.toml": "flwr.toml",
        "Containerfile": "Containerfile",
        "README.md": "README.md",
    }
    if not plan.local:
        written["server/nginx.conf"] = "nginx.conf"
    for place, template in written.items():
        write_text(root / place, filled(template, about))
    write_text(root / "app/federation/__init__.py", "")
    for half, what in (("server", "The server's half."), ("client", "The client's half.")):
        write_text(root / f"app/federation/{half}_app.py", _APP.format(what=what, half=half))
    state: dict[str, Any] = {"address": plan.address, "nodes": [], "extractor": plan.extractor}
    state["secure"] = plan.secure
    write_text(root / _STATE, json.dumps(state))
    for name in plan.nodes:
        add_node(root, name, final)


def _words(plan: Plan, final: Path) -> dict[str, Any]:
    starts = "\n".join(f"sh nodes/{name}/start.sh" for name in plan.nodes)
    proxy = " `server/nginx.conf` is what may face\nthe world." if not plan.local else ""
    return {
        "pipeline": json.dumps(plan.pipeline, ensure_ascii=False),
        "dimension": plan.dimension,
        "wanted": plan.wanted or len(plan.nodes),
        "deadline": float(plan.deadline),
        "bound": float(plan.bound),
        "labels": json.dumps(plan.labels),
        "secure": json.dumps(plan.secure),
        "class_list": json.dumps(_CLASSES if plan.class_list else ""),
        "extractor": json.dumps(plan.extractor, ensure_ascii=False),
        "test_data": json.dumps(plan.test_data, ensure_ascii=False),
        "plugins": json.dumps(", ".join(str(one.path) for one in plugins()), ensure_ascii=False),
        "listen": plan.listen,
        "port": plan.own_port,
        "reach": f"[{plan.listen}]" if ":" in plan.listen else plan.listen,
        "public_port": plan.public_port,
        "host": plan.host,
        "folder": final / "server",
        **_unit(final / "server"),
        "authority": final / "server" / "ca.crt",
        "names": " ".join(plan.nodes),
        "starts": starts,
        "proxy": proxy,
    }


def _unit(folder: Path) -> dict[str, str]:
    """The values in a unit of systemd, to which '%' is an escape."""
    values = {"unit_folder": folder, "unit_path": Path(sys.executable).parent}
    return {name: str(path).replace("%", "%%") for name, path in values.items()}


def add_node(root: Path, name: str, final: Path | None = None) -> Path:
    """One more node: its key, its configuration, its commands.

    The public half of its key stays with the operator, who registers it.
    """
    require("cryptography", "flower")
    from headstart.deploy.certificates import node_key

    check_name(name)
    state = _read_state(root)
    place = root / "nodes" / name
    public = root / "operator" / "keys" / f"{name}.pub"
    for there in (place, public):
        if there.exists():
            raise HeadstartError(f"node: {there} is there already; name another")
    key = node_key(name)
    about = {
        "name": name,
        "address": state["address"],
        "node_port": _NODE_PORT + len(state["nodes"]),
        "data": "samples.csv",
        "extractor": _named(state["extractor"]),
        "trust": json.dumps("secure-sum" if state["secure"] else "server"),
        **_unit(check_folder((final or root).resolve() / "nodes" / name)),
    }
    aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=root / "nodes"))  # mode 0700
    try:
        write_private(aside / "key", key.private)
        public_key = signing_key(aside / "sign.key")
        write_bytes(aside / "key.pub", key.public)
        write_bytes(aside / "ca.crt", (root / "server" / "ca.crt").read_bytes())
        write_text(aside / "node.toml", filled("node.toml", about))
        write_text(aside / "start.sh", filled("node.sh", about))
        write_text(aside / "headstart-node.service", filled("node.service", about))
        public.parent.mkdir(exist_ok=True)
        write_bytes(public, key.public)
        aside.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _introduce(root, name, public_key)
    _expect(root / "app" / "pyproject.toml", name)
    write_text(root / _STATE, json.dumps({**state, "nodes": [*state["nodes"], name]}))
    return place


def signing_key(path: Path) -> str:
    """A new key of a node, with which it signs in secure sums; its public half."""
    require("cryptography", "flower")
    from headstart.privacy.keys import verifying_key

    key = secrets.token_bytes(SECRET_BYTES)
    write_private(path, key)
    return verifying_key(key).hex()


def _introduce(root: Path, name: str, key: str) -> None:
    """Its public key, to the server and to all nodes whose folders are still here."""
    server = root / "server" / PEERS
    known = json.loads(server.read_text(encoding="utf-8")) if server.exists() else {}
    text = json.dumps({**known, name: key}, indent=1, sort_keys=True)
    for place in (server, *(node / PEERS for node in (root / "nodes").iterdir() if node.is_dir())):
        write_text(place, f"{text}\n")


def _named(extractor: str) -> str:
    """The line of node.toml that names what makes features; a comment where nothing was agreed."""
    known = json.dumps(extractor or "mobilenet_v2", ensure_ascii=False)
    return f"{'' if extractor else '# '}extractor = {known}"


def _expect(app: Path, name: str) -> None:
    """The name, among those that a run waits for; without such a setting, left as it is."""
    if app.exists():
        text = app.read_text(encoding="utf-8")
        write_text(app, _NODES.sub(lambda found: f'{found[1]}{" " * bool(found[2])}{name}"', text))


def _read_state(root: Path) -> dict[str, Any]:
    try:
        state = json.loads((root / _STATE).read_text(encoding="utf-8"))
        extractor = str(state.get("extractor", ""))
        return {
            "address": str(state["address"]),
            "nodes": list(state["nodes"]),
            "extractor": extractor,
            "secure": bool(state.get("secure", False)),
        }
    except (OSError, ValueError, KeyError, TypeError):
        raise HeadstartError(
            f"folder: {root} is none of `headstart deploy init` (no {_STATE} in it)"
        ) from None


def filled(template: str, values: dict[str, Any]) -> str:
    """A template of this package with its {{names}} filled in; one without a value is an error."""
    text = (files("headstart.deploy") / "templates" / f"{template}.txt").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: str(values[found[1]]), text)


def next_steps(folder: Path, nodes: Sequence[str]) -> list[str]:
    """What to type, in order."""
    return [
        f"sh {quote(f'{folder}/server/start.sh')}",
        f"sh {quote(f'{folder}/operator/register.sh')} {' '.join(nodes)}",
        *(f"sh {quote(f'{folder}/nodes/{name}/start.sh')}" for name in nodes),
        f"sh {quote(f'{folder}/operator/run.sh')}",
    ]
