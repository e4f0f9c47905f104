"""Names for things: from a package, a decorator, an entry point, a plugin file."""

import json
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from headstart import registry
from headstart.errors import HeadstartError
from headstart.registry import Registry, folded


def ours():
    """As a package would list it."""


def fed_sum():
    """Ours as well."""


def checked(name, thing):
    if not callable(thing):
        raise HeadstartError(f"{name}: expected a function, got {thing!r}")


@pytest.fixture
def things():
    calls = []

    def package():
        calls.append(1)
        return {"ours": ours, "fed-sum": fed_sum}

    made = Registry("thing", "headstart.tests.things", package, check=checked)
    made.calls = calls
    yield made
    registry._REGISTRIES.remove(made)


@pytest.fixture
def plugin(tmp_path):
    """Write a plugin file that knows the registry of this test."""

    def write(text, name="mine.py", folder=tmp_path):
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(text)
        return path

    yield write
    for name, one in list(registry._PLUGINS.items()):
        if one.path.is_relative_to(tmp_path):
            registry._unload(name)


# -- the package -----------------------------------------------------------------------------------


def test_a_package_is_listed_once_and_when_it_is_first_asked_for(things):
    assert not things.calls
    assert things["ours"] is ours
    assert list(things) == ["fed-sum", "ours"]
    assert len(things) == 2
    assert dict(things) == {"fed-sum": fed_sum, "ours": ours}
    assert len(things.calls) == 1


def test_what_a_module_registers_is_imported_when_it_is_first_looked_up():
    brought = []

    def bring():
        brought.append(1)
        late.add(fed_sum, place="headstart.late:fed_sum")

    known = {"ours": ours}
    late = Registry("thing", "headstart.tests.late", known.copy, later={"fed-sum": bring})
    try:
        assert list(late) == ["fed-sum", "ours"]
        assert late.entry("FedSum").thing is None
        assert not brought
        assert late["fed-sum"] is late["fed-sum"] is fed_sum
        assert brought == [1]
        assert {entry.source for entry in late.entries()} == {"package"}
        with pytest.raises(HeadstartError, match="expected one 'fed-sum', got two"):
            late.add(ours, name="fed-sum", place="elsewhere:ours")
    finally:
        registry._REGISTRIES.remove(late)


@pytest.mark.parametrize("name", ["fed-sum", "FedSum", "FED_SUM", "fedsum"])
def test_names_compare_as_the_notation_folds_them(things, name):
    assert things[name] is fed_sum
    assert name in things
    assert things.entry(name).name == "fed-sum"


def test_folding():
    assert folded("Fed3R-RF") == folded("fed3r_rf") == "fed3rrf"
    assert folded("FedDr+") == folded("feddr-plus")


def test_threads_that_ask_at_once_all_find_everything(things):
    found, start = [], threading.Barrier(8)

    def ask():
        start.wait()
        found.append(things["fedsum"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [fed_sum] * 8
    assert len(things.calls) == 1


def test_an_unknown_name_is_answered_with_the_known_ones(things):
    assert things.get("nonsense") is None
    assert "nonsense" not in things
    assert 3 not in things
    with pytest.raises(
        HeadstartError, match=r"^thing: expected one of fed-sum, ours, got 'xyz' \(.*--plugin"
    ):
        _ = things["xyz"]
    with pytest.raises(HeadstartError, match="got 'fedsun'; did you mean 'fed-sum'"):
        _ = things["fedsun"]


# -- registered in the process ---------------------------------------------------------------------


def test_what_is_registered_has_the_name_of_its_function(things):
    def my_own():
        """Mine."""

    assert things.add(my_own) is my_own
    assert things["MyOwn"] is my_own
    assert things.entry("my-own").source == f"module {__name__}"
    assert things.entry("ours").source == "package"
    assert things.name_of(my_own) == "my-own"
    assert things.add(my_own) is my_own  # again: no second thing


def test_two_things_of_one_name_are_refused_and_both_places_named(things):
    def other():
        pass

    with pytest.raises(HeadstartError) as caught:
        things.add(other, name="Fed_Sum")
    said = str(caught.value)
    assert said.startswith("thing: expected one 'Fed_Sum', got two: ")
    assert f"{__name__}:fed_sum (package)" in said
    assert f"{__name__}:test_two_things" in said
    assert "\n" not in said
    assert things["fed-sum"] is fed_sum


def test_a_cell_that_is_run_again_replaces_what_it_defined(things):
    def define(result):
        def mine():
            return result

        return mine

    things.add(define(1))
    things.add(define(2))
    assert things["mine"]() == 2


@pytest.mark.parametrize("name", ["", "-x", "a b", "fedavg-50", "1st", "a(b", "x=1", "a:b:c"])
def test_a_name_that_the_notation_cannot_say_is_refused(things, name):
    with pytest.raises(HeadstartError, match="thing: expected a name of letters"):
        things.add(ours, name=name)


def test_what_is_no_such_thing_is_refused(things):
    with pytest.raises(HeadstartError, match="three: expected a function, got 3"):
        things.add(3, name="three")
    assert "three" not in things


@dataclass(frozen=True)
class Loose:
    """A plain class that nobody registered."""

    def __call__(self): ...


def test_a_plain_object_gets_its_qualified_name_for_this_process(things):
    assert f"{__name__}:Loose" not in things
    assert things.name_of(Loose) == f"{__name__}:Loose"
    assert things[f"{__name__}:Loose"] is Loose
    assert things.name_of(Loose) == f"{__name__}:Loose"
    assert things.name_of(ours) == "ours"
    with pytest.raises(HeadstartError, match="thing: expected something with a name of its own"):
        things.name_of(lambda: 0)


def test_a_qualified_name_that_is_not_here_says_what_to_load(things):
    with pytest.raises(HeadstartError) as caught:
        _ = things["my_module:MyThing"]
    said = str(caught.value)
    assert said.startswith("thing: 'my_module:MyThing' is not loaded in this process; ")
    assert "import my_module" in said
    assert "--plugin" in said


# -- entry points ----------------------------------------------------------------------------------


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Install a distribution of one module and its entry points, for this test."""

    def install(name, module, source, points, version="1.0"):
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "\n".join(f"{key} = {value}" for key, value in points.items())
        (info / "entry_points.txt").write_text(f"[headstart.tests.things]\n{lines}\n")
        (tmp_path / f"{module}.py").write_text(source)

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield install
    for module in set(sys.modules) - before:
        del sys.modules[module]


def test_an_entry_point_is_named_without_being_imported(things, distribution):
    distribution(
        "their-dist", "theirs_a", "def far_thing(): return 7", {"far": "theirs_a:far_thing"}
    )
    assert list(things) == ["far", "fed-sum", "ours"]
    assert "Far" in things
    assert things.entry("far").source == "entry point of their-dist 1.0"
    assert "theirs_a" not in sys.modules
    assert things["far"]() == 7
    assert things.name_of(things["far"]) == "far"


def test_a_broken_entry_point_names_its_distribution_and_stops_nobody_else(things, distribution):
    points = {"gone": "theirs_b:gone", "bad": "theirs_b:number", "good": "theirs_b:good"}
    distribution("their-dist", "theirs_b", "number = 3\ndef good(): return 1", points)
    distribution(
        "worse-dist", "theirs_c", "raise OSError('first\\nsecond')", {"worse": "theirs_c:x"}
    )
    assert things["good"]() == 1
    for name, text in (("gone", "their-dist 1.0"), ("worse", "worse-dist 1.0"), ("bad", "got 3")):
        with pytest.raises(HeadstartError, match=text) as caught:
            _ = things[name]
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"thing: cannot load {name!r}")
    assert things["ours"] is ours
    assert len(list(things.entries())) == 6


def test_entry_points_of_one_name_are_refused_and_the_packages_stays(things, distribution):
    distribution("one-dist", "theirs_d", "def x(): ...", {"x": "theirs_d:x", "Ours": "theirs_d:x"})
    distribution("two-dist", "theirs_e", "def x(): ...", {"X": "theirs_e:x"})
    with pytest.raises(HeadstartError) as caught:
        _ = things["x"]
    assert "one-dist 1.0" in str(caught.value)
    assert "two-dist 1.0" in str(caught.value)
    with pytest.raises(HeadstartError, match=r"expected one 'Ours', got two: .*package.*one-dist"):
        _ = things["ours"]
    assert things["fed-sum"] is fed_sum


def test_an_entry_point_whose_module_registers_the_same_thing_is_one_thing(things, distribution):
    source = (
        "from headstart import registry\n"
        "[things] = [r for r in registry._REGISTRIES if r.kind == 'thing']\n"
        "@things.add\n"
        "def both(): return 5\n"
    )
    distribution("their-dist", "theirs_f", source, {"both": "theirs_f:both"})
    assert things["both"]() == 5
    assert list(things) == ["both", "fed-sum", "ours"]


# -- plugin files ----------------------------------------------------------------------------------

HEADER = (
    "from headstart import registry\n"
    "[things] = [r for r in registry._REGISTRIES if r.kind == 'thing']\n"
)
MINE = HEADER + "@things.add\ndef mine(): return 1\n"


def test_a_plugin_file_is_loaded_once_and_known_by_its_digest(things, plugin):
    import hashlib

    path = plugin(MINE)
    loaded = registry.load_plugin(path)
    assert things["mine"]() == 1
    assert things.entry("mine").source == f"plugin {path}"
    assert loaded.path == path.resolve()
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.names == ("thing mine",)
    assert things["mine"].__module__ == "headstart_plugin_mine"
    first = things["mine"]
    assert registry.load_plugin(str(path)) is loaded
    assert things["mine"] is first
    assert loaded in registry.plugins()


def test_a_plugin_file_that_changed_while_it_was_loaded_is_refused(things, plugin):
    path = plugin(MINE)
    registry.load_plugin(path)
    plugin(MINE + "# more\n")
    with pytest.raises(HeadstartError, match=r"^plugin: .*mine\.py has changed since .* loaded"):
        registry.load_plugin(path)
    with pytest.raises(HeadstartError, match=r"^plugin: .*other/mine\.py .* rename"):
        registry.load_plugin(plugin(MINE + "# else\n", folder=path.parent / "other"))
    copy = plugin(MINE, folder=path.parent / "copy")
    assert registry.load_plugin(copy).path == path.resolve()  # the same bytes are the same plugin


BROKEN = {
    "syntax": ("def (", r"line 1: SyntaxError"),
    "error": ("\n\n1 / 0", r"line 3: ZeroDivisionError: division by zero"),
    "deep": (MINE + "import json\njson.loads('[')", r"line 6: JSONDecodeError"),
    "exit": ("raise SystemExit(3)", r"line 1: SystemExit"),
    "taken": (HEADER + "@things.add\ndef ours(): ...", r"expected one 'ours', got two: .*"),
    "nothing": ("x = 3", r"expected something that it registers"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_one_line_and_leaves_nothing_behind(things, plugin, case):
    text, said = BROKEN[case]
    with pytest.raises(HeadstartError, match=said) as caught:
        registry.load_plugin(plugin(text))
    assert str(caught.value).startswith("plugin: ")
    assert "mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(things) == ["fed-sum", "ours"]
    assert "headstart_plugin_mine" not in sys.modules
    plugin(MINE)
    registry.load_plugin(plugin(MINE))
    assert things["mine"]() == 1


def test_what_is_no_plugin_file_is_named(tmp_path):
    for path in (tmp_path / "gone.py", tmp_path):
        with pytest.raises(HeadstartError, match=r"^plugin: expected a \.py file, "):
            registry.load_plugin(path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(HeadstartError, match=r"^plugin: expected a \.py file, got .*notes\.txt$"):
        registry.load_plugin(tmp_path / "notes.txt")


def test_a_plugin_travels_as_its_source(things, plugin):
    path = plugin(MINE)
    loaded = registry.load_plugin(path)
    registry._unload("headstart_plugin_mine")
    assert "mine" not in things
    path.unlink()
    assert registry.restore_plugin(loaded) == loaded
    assert things["mine"]() == 1


def test_plugins_that_must_be_there_are_named(things, plugin):
    path = plugin(MINE)
    with pytest.raises(HeadstartError, match=r"^plugin: expected .*mine\.py .*; give --plugin "):
        registry.require_plugins({str(path): "0" * 64})
    loaded = registry.load_plugin(path)
    registry.require_plugins({str(path): loaded.sha256})
    registry.require_plugins({"/elsewhere/mine.py": loaded.sha256})  # the bytes count
    with pytest.raises(HeadstartError, match=r"mine\.py has changed: its SHA-256 was 000000000000"):
        registry.require_plugins({str(path): "0" * 64})


def test_the_registry_itself_is_light():
    code = "import sys, json, headstart.registry; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(out.stdout))
    assert "headstart.registry" in loaded
    assert not loaded & {"numpy", "torch", "scipy", "matplotlib", "importlib.metadata"}
