"""A Ray cluster gives the simulator's results, in exact mode bit for bit, for any workers."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart import HeadstartError, heads, registry
from headstart.data.samples import ArraySamples
from headstart.errors import DataError
from headstart.federation import steps
from headstart.federation.protocol import ClientData, tallies
from headstart.federation.ray import RayFederation
from headstart.federation.simulator import Simulator
from headstart.pipeline.sources import Source, folders

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def clients(count=7, dimension=5, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    held = {}
    for at in range(count):
        size = int(rng.integers(3, 30))
        y = rng.integers(0, classes, size)
        z = rng.normal(size=(size, dimension)).astype(np.float32) + y[:, None]
        held[f"c{at}"] = ClientData(ArraySamples(z, y), ArraySamples(z[:2], y[:2]))
    return held


@pytest.fixture(scope="module")
def two(cluster):
    """Two workers: a process each, so tests share them."""
    return RayFederation(clients(), workers=2)


@pytest.mark.parametrize("name", ["fed3r", "fedncm", "fedcof", "lda"])
def test_exact_totals_have_the_simulators_digest(two, name):
    step = steps.measure(heads.make(name, {}), exact=name != "fedcof")
    plain = Simulator(clients())
    for some in (None, ["c5", "c1"]):
        found, expected = (one.total(step, cohort=some) for one in (two, plain))
        assert found.statistic.digest() == expected.statistic.digest()
        assert sorted(found.clients) == sorted(expected.clients)
        assert (found.up, found.down) == (expected.up, expected.down)


def test_the_number_of_workers_does_not_matter(two):
    step = steps.measure(heads.make("fed3r", {}), exact=True)
    alone = RayFederation(clients(), workers=1)
    assert alone.total(step).statistic.digest() == two.total(step).statistic.digest()


def test_float_totals_agree_to_rounding(two):
    head = heads.make("fed3r", {})
    step = steps.measure(head)
    sides = (Simulator(clients()), two)
    one, other = (head.solve(side.total(step).statistic).weights for side in sides)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_evaluation_is_each_clients_own(two):
    head = heads.make("fed3r", {})
    plain = Simulator(clients())
    solved = head.solve(plain.total(steps.measure(head)).statistic)
    broadcast = steps.with_head(replace(solved, temperature=0.5))
    left, right = (tallies(side, steps.personal(), broadcast) for side in (plain, two))
    assert list(left) == list(right)
    for name, values in left.items():
        np.testing.assert_array_equal(values, right[name])


def _rounds(method, federation):
    """The head after three rounds from the same start."""
    from headstart.gradient.engine import Training
    from headstart.gradient.loop import Plan, begin, rounds
    from headstart.gradient.models import Spec, build, initial
    from headstart.gradient.steps import Job

    job = Job(method, Spec(3, 5), Training(rate=0.1, batch=8))
    federation.begin_training("")
    start = begin(job, initial(build(job.spec), None, 0))
    *_, end = rounds(job, Plan(rounds=3, clients=4), federation, np.arange(3), start)
    return end.params["head.weight"]


def test_training_remembers_on_the_workers(two):
    """Scaffold keeps a control variate with each client: two rounds need what the first left."""
    first = _rounds("scaffold", two)
    np.testing.assert_allclose(first, _rounds("scaffold", Simulator(clients())), atol=1e-6)
    np.testing.assert_array_equal(first, _rounds("scaffold", two))  # memories are put away


@pytest.mark.usefixtures("registered")
def test_workers_load_the_plugins_of_the_process_that_starts_them(cluster, tmp_path):
    files = Path(__file__).parents[1] / "plugin_files"
    for name in ("centred.py", "fed_nesterov.py"):
        place = Path(shutil.copy(files / name, tmp_path))
        registry.load_plugin(place)
        place.unlink()  # a worker may be on another machine
    step = steps.measure(heads.make("centred-means"), exact=True)
    ours, alone = RayFederation(clients(), workers=2), Simulator(clients())
    assert ours.total(step).statistic.digest() == alone.total(step).statistic.digest()
    trained = [_rounds("fed-nesterov", federation) for federation in (ours, Simulator(clients()))]
    np.testing.assert_allclose(*trained, atol=1e-6)


def test_workers_extract_their_own_images(cluster, tmp_path, monkeypatch):
    from PIL import Image

    rng = np.random.default_rng(0)
    for client in ("anna", "ben", "carl"):
        for at in range(6):
            place = tmp_path / "data" / client / f"class{at % 2}" / f"{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(9, 8, 3), dtype=np.uint8)).save(place)
    held = folders(tmp_path / "data", "pixels-8")
    step = steps.measure(heads.make("fedncm", {}), exact=True, bound=16.0)
    ours = RayFederation(held, workers=2)
    alone = Simulator({name: source() for name, source in held.items()})
    assert ours.clients == ("anna", "ben", "carl")
    assert ours.total(step).statistic.digest() == alone.total(step).statistic.digest()


def test_mistakes_are_named(two, tmp_path):
    with pytest.raises(DataError, match="at least one client"):
        RayFederation({})
    with pytest.raises(DataError, match="known clients, got zoe"):
        two.total(steps.measure(heads.make("fedncm", {})), cohort=["zoe"])
    missing = RayFederation({"a": Source(str(tmp_path / "none.npz"))})
    with pytest.raises(HeadstartError, match=r"none\.npz"):
        missing.total(steps.measure(heads.make("fedncm", {})))
    with pytest.raises(DataError, match="got nothing"):
        folders(tmp_path)
    with pytest.raises(DataError, match=r"expected a folder of clients, got .*gone"):
        folders(tmp_path / "gone")
    for name in ("a.csv", "a.npz"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match="two of 'a'"):
        folders(tmp_path)


def test_a_folders_name_is_its_clients(tmp_path):
    for name in ("site.1", "site.2"):
        (tmp_path / name).mkdir()
    assert list(folders(tmp_path)) == ["site.1", "site.2"]


def test_a_cluster_must_be_started(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(HeadstartError, match=r"ray\.init"):
        RayFederation(clients())
