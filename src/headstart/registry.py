"""Names for things, one registry per kind: heads, methods, losses, networks, datasets,
partitioners, steps.

A registry is filled

    by listing the package       once, when a name is first looked up
    by a decorator               `@hs.register_head`, in any module that is imported
    by entry points              of installed distributions (group `headstart.heads`, …): named
                                 without being imported, imported when first looked up
    by plugin files              `--plugin my_file.py`: executed once per process

A plain object that nobody registered gets its qualified name (`my_module:MyHead`) for this process.
Names compare folded, and two different objects of one name are refused.

Loading a plugin executes its code: call `load_plugin` only with what the user who runs this process
has named, never with what came from somebody else (a run folder, a message of a server).
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import re
import sys
import threading
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from headstart.errors import HeadstartError

T = TypeVar("T")
NAME = re.compile(r"(?!.*-[0-9]{1,12}[kK]?\Z)[^\W\d_][\w.-]*\+?")  # "-50" at the end is rounds
QUALIFIED = re.compile(r"[\w.]+:[\w.]+")
PACKAGE = "package"  # the source of what is listed here
_LOCK = threading.RLock()
_SOURCE: ContextVar[str] = ContextVar("source", default="")  # of what is being registered now


@functools.lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """How names are compared: "Fed3R-RF" is "fed3r_rf", ℳ is m, "FedDr+" is "feddr-plus"."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return plain.replace("-", "").replace("_", "").replace("+", "plus")


def qualified(thing: Any) -> str:
    """`module:QualName`, where it was defined; of an instance, that of its type."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__.replace('<locals>.', '')}"


def not_loaded(name: str) -> str:
    """What to do about a qualified name that this process does not know."""
    module = name.partition(":")[0]
    return (
        f"is not loaded in this process; import {module}, or give the file that registers it "
        "as a plugin (--plugin)"
    )


def natural_name(thing: Any) -> str:
    """The name of a function or class, as the notation writes it: `my_method` is "my-method"."""
    return str(thing.__name__).replace("_", "-")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A name, where it comes from, where its object is defined, and how to get that object.

    `source`: "package", "module …", "entry point of …" or "plugin …".
    """

    name: str
    source: str
    place: str
    load: Callable[[], T] = field(repr=False, compare=False)
    thing: T | None = field(default=None, repr=False, compare=False)  # what is in memory already

    def __str__(self) -> str:
        return f"{self.place} ({self.source})"


class Registry(Mapping[str, T]):
    """The things of one kind by name.

    kind     what errors call it
    group    of the entry points
    package  lists what this package brings
    named    the name that an object says it has
    check    refuses, with a `HeadstartError`, a (name, object) that is none of this kind
    later    names of this package whose modules register them when they are imported: what imports
             the module, called when the name is first looked up
    """

    def __init__(
        self,
        kind: str,
        group: str,
        package: Callable[[], Mapping[str, T]],
        *,
        named: Callable[[T], str] = natural_name,
        check: Callable[[str, T], None] = lambda name, thing: None,
        later: Mapping[str, Callable[[], object]] = MappingProxyType({}),
    ) -> None:
        self.kind, self.group = kind, group
        self._package, self._named, self._check, self._later = package, named, check, later
        self._entries: dict[str, Entry[T]] | None = None
        _REGISTRIES.append(self)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    # -- looking up ----------------------------------------------------------------------------

    def __getitem__(self, name: str) -> T:
        return self.entry(name).load()

    def get(self, name: str, default: Any = None) -> Any:
        match = self._known().get(folded(name))
        return default if match is None else match.load()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and folded(name) in self._known()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(entry.name for entry in self._known().values()))

    def __len__(self) -> int:
        return len(self._known())

    def entry(self, name: str, argument: str = "") -> Entry[T]:
        """The entry of a name, or an error (about this argument) that lists what there is."""
        match = self._known().get(folded(name))
        if match is None:
            raise HeadstartError(self._unknown(name, argument or self.kind))
        return match

    def entries(self) -> list[Entry[T]]:
        """All of them, by name; those of entry points are not loaded by this."""
        return [self.entry(name) for name in self]

    def name_of(self, thing: T) -> str:
        """The name of an object; one that nobody registered gets its qualified name."""
        entries = self._known()
        natural = entries.get(folded(self._named(thing)))
        if natural and natural.place == qualified(thing) and natural.load() is thing:
            return natural.name
        for entry in entries.values():
            if entry.thing is thing:
                return entry.name
        name = qualified(thing)
        if not QUALIFIED.fullmatch(name):
            raise HeadstartError(
                f"{self.kind}: expected something with a name of its own, got {name}"
            )
        self.add(thing, name=name)
        return name

    def _unknown(self, name: str, what: str) -> str:
        if QUALIFIED.fullmatch(name):
            return f"{what}: {name!r} {not_loaded(name)}"
        close = difflib.get_close_matches(name.casefold(), list(self), n=1)
        elsewhere = " (one of your own: import its module, or load its file with --plugin)"
        hint = f"; did you mean {close[0]!r}?" if close else elsewhere
        return f"{what}: expected one of {', '.join(self)}, got {name!r}{hint}"

    # -- filling -------------------------------------------------------------------------------

    def add(self, thing: T, *, name: str | None = None, place: str | None = None) -> T:
        """Register an object under a name (None: its own); it is returned, as decorators do."""
        name = self._named(thing) if name is None else name
        if not NAME.fullmatch(name) and not QUALIFIED.fullmatch(name):
            raise HeadstartError(
                f"{self.kind}: expected a name of letters, digits, '.', '-' and '_' that begins "
                f"with a letter and does not end in '-' and a number, got {name!r}"
            )
        self._check(name, thing)
        place = place or qualified(thing)
        source = _SOURCE.get() or f"module {place.partition(':')[0]}"
        new = Entry(name, source, place, lambda: thing, thing)
        with _LOCK:
            entries = self._known()
            old = entries.get(folded(name))
            if old and old.thing is not thing and not _supersedes(new, old):
                raise HeadstartError(self._twice(name, old, new))
            awaited = old is not None and old.thing is None
            entries[folded(name)] = replace(new, source=old.source) if old and awaited else new
        return thing

    def _known(self) -> dict[str, Entry[T]]:
        """Folded name → entry; the package and the names of entry points are listed once."""
        if self._entries is None:
            with _LOCK:
                if self._entries is None:
                    self._entries = self._listed()
        return self._entries

    def _listed(self) -> dict[str, Entry[T]]:
        def entry(name: str, thing: T) -> Entry[T]:
            return Entry(name, PACKAGE, qualified(thing), lambda: thing, thing)

        entries = {folded(name): entry(name, thing) for name, thing in self._package().items()}
        entries |= {folded(name): self._awaited(name, bring) for name, bring in self._later.items()}
        for offered in self._entry_points():
            old = entries.get(folded(offered.name))
            entries[folded(offered.name)] = self._refused(old, offered) if old else offered
        return entries

    def _awaited(self, name: str, bring: Callable[[], object]) -> Entry[T]:
        """In the place of what a module of this package registers, until it is imported."""

        def load() -> T:
            bring()
            thing = self._known()[folded(name)].thing
            assert thing is not None, f"{self.kind} {name}: its module does not register it"
            return thing

        return Entry(name, PACKAGE, __name__, load)

    def _entry_points(self) -> Iterator[Entry[T]]:
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group):
            about = f"{point.dist.name} {point.dist.version}" if point.dist else "an installation"
            source = f"entry point of {about}"
            yield Entry(point.name, source, point.value, self._loader(point, source))

    def _loader(self, point: Any, source: str) -> Callable[[], T]:
        """Import an entry point when it is first looked up, and only then."""

        def load() -> T:
            try:
                with _registering(source):
                    thing: T = point.load()
                decorated = self._known()[folded(point.name)].thing
                if decorated is not None:  # by its own module, as it was imported
                    return decorated
                self._check(point.name, thing)
            except (Exception, SystemExit) as error:
                raise HeadstartError(
                    f"{self.kind}: cannot load {point.name!r}, the {source}: {_one_line(error)}"
                ) from None
            entry = Entry(point.name, source, point.value, lambda: thing, thing)
            with _LOCK:
                self._known()[folded(point.name)] = entry
            return thing

        return load

    def _refused(self, old: Entry[T], new: Entry[T]) -> Entry[T]:
        """In the place of two: an entry that says so when it is looked up."""

        def load() -> T:
            raise HeadstartError(self._twice(new.name, old, new))

        return Entry(old.name, f"{old.source}, {new.source}", old.place, load)

    def _twice(self, name: str, old: Entry[T], new: Entry[T]) -> str:
        return f"{self.kind}: expected one {name!r}, got two: {old} and {new}"

    def _drop(self, source: str) -> None:
        """Forget what came from there."""
        entries = self._entries or {}
        for key in [key for key, entry in entries.items() if entry.source == source]:
            del entries[key]


_REGISTRIES: list[Registry[Any]] = []


def _supersedes(new: Entry[Any], old: Entry[Any]) -> bool:
    """A definition that is run again (a cell of a notebook), or an entry point's own module."""
    if old.thing is None:
        return _top(old) == _top(new)
    return old.place == new.place and old.source == new.source != PACKAGE


def _top(entry: Entry[Any]) -> str:
    """The top-level package that an object is defined in."""
    return entry.place.partition(":")[0].partition(".")[0]


@contextmanager
def _registering(source: str) -> Iterator[None]:
    token = _SOURCE.set(source)
    try:
        yield
    finally:
        _SOURCE.reset(token)


def _one_line(error: BaseException) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


# -- plugin files ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plugin:
    """A file of a user's own code that this process has executed.

    `names`: what it registered, each "kind name".
    """

    path: Path
    sha256: str
    names: tuple[str, ...] = ()
    source: bytes = field(default=b"", repr=False)


_PLUGINS: dict[str, Plugin] = {}  # by the name of their module


def plugins() -> tuple[Plugin, ...]:
    """The plugin files of this process, in the order in which they were loaded."""
    return tuple(_PLUGINS.values())


def load_plugin(path: str | Path) -> Plugin:
    """Execute a file that registers things; the same bytes are executed once per process.

    A file that cannot be executed or registers nothing is refused, and leaves nothing behind.
    """
    place = Path(path).expanduser().resolve()
    return _loaded(place, read_plugin(place))


def restore_plugin(plugin: Plugin) -> Plugin:
    """The same plugin in another process of the same user, where its file may not be."""
    return _loaded(plugin.path, plugin.source)


def read_plugin(path: str | Path) -> bytes:
    """The bytes of a plugin file, not executed."""
    place = Path(path).expanduser()
    if place.suffix != ".py":
        raise HeadstartError(f"plugin: expected a .py file, got {path}")
    try:
        return place.read_bytes()
    except OSError as error:
        raise HeadstartError(
            f"plugin: expected a .py file, cannot read {path}: {error.strerror}"
        ) from None


def digest_of(source: bytes) -> str:
    """The SHA-256 by which a plugin file is known."""
    return hashlib.sha256(source).hexdigest()


def require_plugins(files: Mapping[str, str]) -> None:
    """Refuse to go on without these plugins (path → SHA-256); the error says what to load."""
    for path, digest in files.items():
        if any(plugin.sha256 == digest for plugin in plugins()):
            continue
        here = _PLUGINS.get(_module_name(Path(path)))
        if here:
            raise HeadstartError(
                f"plugin: {here.path} has changed: its SHA-256 was {digest[:12]}…, "
                f"it is {here.sha256[:12]}… now"
            )
        raise HeadstartError(
            f"plugin: expected {path} (SHA-256 {digest[:12]}…) to be loaded, got none; "
            f"give --plugin {path}"
        )


def _module_name(path: Path) -> str:
    """Stable: the same in every process, wherever the file lies."""
    return "headstart_plugin_" + re.sub(r"\W", "_", path.stem)


def _loaded(path: Path, source: bytes) -> Plugin:
    name, digest = _module_name(path), digest_of(source)
    with _LOCK:
        loaded = _PLUGINS.get(name)
        if loaded is None:
            _PLUGINS[name] = _executed(name, path, source)
            return _PLUGINS[name]
    if loaded.sha256 == digest:
        return loaded
    if loaded.path == path:
        raise HeadstartError(f"plugin: {path} has changed since this process loaded it; start anew")
    raise HeadstartError(f"plugin: {path} has the name of {loaded.path}; rename one of them")


def _executed(name: str, path: Path, source: bytes) -> Plugin:
    """Run the very bytes whose digest is kept, as a module of this name."""
    origin = f"plugin {path}"
    loader = _loader_of(name, path, source)
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _registering(origin):
            loader.exec_module(module)
        names = tuple(_names_from(origin))
        if not names:
            raise HeadstartError(
                "expected something that it registers (@headstart.register_head, …), got nothing"
            )
    except (Exception, SystemExit) as error:
        _forget(name, origin)
        raise HeadstartError(f"plugin: cannot load {path}: {_where(error, path)}") from None
    return Plugin(path, digest_of(source), names, source)


def _loader_of(name: str, path: Path, source: bytes) -> SourceFileLoader:
    class Kept(SourceFileLoader):
        """Of the bytes that were read, whatever the file or a cache of bytecode holds by now."""

        def get_data(self, path: Any) -> bytes:
            return source

        def path_stats(self, path: Any) -> Any:
            raise OSError("no cache")

    return Kept(name, str(path))


def _names_from(origin: str) -> Iterable[str]:
    for registry in _REGISTRIES:
        for entry in (registry._entries or {}).values():
            if entry.source == origin:
                yield f"{registry.kind} {entry.name}"


def _where(error: BaseException, path: Path) -> str:
    """What went wrong, at which line of the file; our own errors stand alone."""
    if isinstance(error, HeadstartError):
        return " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [
        at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(path)
    ]
    return f"line {lines[-1]}: {_one_line(error)}" if lines else _one_line(error)


def _unload(name: str) -> None:
    """Take a plugin out of this process again."""
    plugin = _PLUGINS.pop(name)
    _forget(name, f"plugin {plugin.path}")


def _forget(name: str, origin: str) -> None:
    sys.modules.pop(name, None)
    for registry in _REGISTRIES:
        registry._drop(origin)
