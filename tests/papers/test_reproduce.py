"""Every closed-form reproduction runs on small data and has the paper's numbers beside ours."""

import json
from functools import cache

import numpy as np
import pytest

from headstart.data.datasets import Dataset
from headstart.errors import DataError, HeadstartError
from headstart.federation.simulator import Simulator
from headstart.heads.fed3r import Fed3R
from headstart.heads.fedncm import FedNCM
from headstart.heads.random_features import Fed3RRandomFeatures
from headstart.papers import (
    best_training_free,
    catalogue,
    common,
    costs_table2,
    fedcof_figure9,
    reproduce,
    thesis_figure3_5,
    thesis_figure3_6,
    thesis_figure3_9,
    thesis_table3_5,
    thesis_table3_11,
)
from headstart.papers.table import find_row
from headstart.papers.validation import trial

NAMES = (
    "best-training-free",
    "costs-table2",
    "fedcof-figure5",
    "fedcof-figure8",
    "fedcof-figure9",
    "fedcof-table2",
    "fedcof-table3",
    "fedcof-table5",
    "fedcof-table9",
    "feddr-figure7",
    "feddr-table2",
    "feddr-table4",
    "feddr-table5",
    "feddrive-table5.2",
    "feddrive-table5.3",
    "feddrive-table5.4",
    "feddrive-table5.5",
    "feddrive-table5.6",
    "feddrive-table5.7",
    "feddrive-table5.8",
    "ladd-table5.10",
    "ladd-table5.11",
    "ladd-table5.12",
    "thesis-figure3.5",
    "thesis-figure3.6",
    "thesis-figure3.9",
    "thesis-table3.11",
    "thesis-table3.5",
    "thesis-table3.6",
)


def blobs(name="blobs", n=480, d=6, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = 3 * rng.normal(size=(classes, d))
    features = np.abs(centres[labels] + rng.normal(size=(n, d))).astype(np.float32)
    domains = np.array(["art", "photo", "sketch"])[rng.integers(0, 3, n)]
    return Dataset(name, features, labels, domains=domains, test=np.arange(n) % 6 == 5)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Nothing large: few random features, tiny client sizes, a small dimension."""
    folder = tmp_path_factory.mktemp("data") / "client_sizes"
    folder.mkdir()
    for profile in costs_table2.PROFILES.values():
        (folder / profile.file).write_text("num_images\n1\n5\n5\n400\n", encoding="utf-8")
    heads = {
        name: Fed3RRandomFeatures(30, 3.0) if "RF" in name else head
        for name, head in thesis_table3_5.HEADS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        for module, clients in ((best_training_free, 8), (common, 12), (thesis_table3_11, 10)):
            patch.setattr(module, "CLIENTS", clients)
        patch.setattr(thesis_figure3_6, "CLIENTS", 20)
        patch.setattr(thesis_figure3_6, "SIZE", 2)
        patch.setattr(thesis_figure3_9, "CLIENTS", 50)
        patch.setattr(fedcof_figure9, "EPSILONS", (0.1, 0.9))
        patch.setattr(best_training_free, "SEARCH", 20)
        patch.setattr(best_training_free, "FINAL", 40)
        patch.setattr(thesis_figure3_5, "DIMENSIONS", (10, 200))
        patch.setattr(thesis_table3_5, "HEADS", heads)
        patch.setattr(costs_table2, "DIMENSION", 16)
        patch.setenv("HEADSTART_DATA", str(folder.parent))
        yield


@pytest.fixture(scope="module")
def features():
    return {name: blobs(name) for name in ("cifar100", "cub200", "pacs")}


@pytest.fixture(scope="module")
def ran(features, small):
    """Each table once, with the progress it reported."""

    @cache
    def run(name):
        reported = []
        table = reproduce(name, features, seeds=1, progress=lambda *what: reported.append(what))
        return table, reported

    return run


def test_the_catalogue_is_the_listing():
    assert tuple(catalogue()) == NAMES
    for name, one in catalogue().items():
        assert one.command == f"headstart reproduce {name}"
        assert one.title
        assert one.paper


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("feddr", "ladd"))])
def test_each_runs_and_gives_finite_numbers(name, ran):
    table, reported = ran(name)
    assert table.rows
    assert reported
    assert all(done <= of for _, done, of in reported)
    assert all(np.isfinite(row.ours).all() and len(row.ours) == 1 for row in table.rows)
    assert all(0 <= row.mean <= 100 for row in table.rows if row.unit == "%")
    keys = [(row.what, row.setting, row.unit) for row in table.rows]
    assert len(set(keys)) == len(keys)
    assert table.conclusion
    assert table.conclusion in table.markdown()
    assert "nan" not in table.markdown()
    json.loads(table.json())


@pytest.mark.parametrize(
    ("name", "what", "setting", "paper"),
    [
        ("fedcof-table3", "Fed3R", "cub200", 58.6),
        ("fedcof-table3", "FedCOF", "cifar100", 63.5),
        ("fedcof-table3", "FedCOF oracle, sent", "cifar100", 18823.5),
        ("fedcof-table3", "FedNCM, formula", "cub200", 12.0),
        ("fedcof-table2", "within-class scatter", "cub200", 53.7),
        ("fedcof-table5", "FedCOF, 10 means", "a domain per client", 78.8),
        ("fedcof-table9", "γ = 0.01", "cub200", 51.07),
        ("fedcof-figure5", "a second mean, 10 clients", "cub200", 2.6),
        ("thesis-table3.5", "Fed3R-RF(10k)", "cifar100", 67.5),
        ("thesis-table3.6", "75% seen", "K = 9275, κ = 10", 1286),
        ("thesis-table3.11", "B, not normalized", "cifar100", 44.7),
        ("thesis-figure3.6", "α = 0, round 10", "cifar100", 63.2),
        ("thesis-figure3.9", "κ = 10, with replacement: rounds", "cub200", 50),
        ("costs-table2", "Fed3R", "iNaturalist Users-120k", 30.7),
        ("best-training-free", "chosen by validation", "cub200", 63.1),
    ],
)
def test_the_paper_is_beside_it(name, what, setting, paper, ran):
    table, _ = ran(name)
    assert find_row(table.rows, what, setting).paper == paper


@pytest.mark.parametrize("name", ["thesis-figure3.6", "thesis-figure3.9"])
def test_every_split_and_plan_ends_in_the_same_bits(name, ran):
    table, _ = ran(name)
    assert [row.ours for row in table.rows if row.unit == "totals"] == [(1.0,), (1.0,)]
    assert "NOT" not in table.conclusion
    for data in ("cifar100", "cub200"):
        rows = [row for row in table.rows if row.setting == data]
        ends = {row.ours for row in rows if row.what.endswith(("round 10", "at the end"))}
        assert len(ends) == 1


def test_seeds_are_columns(features, small):
    table = reproduce("fedcof-table3", {"cub200": features["cub200"]}, seeds=2)
    row = find_row(table.rows, "FedCOF", "cub200")
    assert len(row.ours) == 2
    assert row.mean == pytest.approx(sum(row.ours) / 2)
    assert table.command == "headstart reproduce fedcof-table3 --seeds 2"
    assert table.missing == ("cifar100",)
    sums = [find_row(table.rows, name, "cub200").ours for name in ("Fed3R", "FedNCM")]
    assert all(max(ours) - min(ours) < 1.3 for ours in sums)  # one sample of 80, by float32


def test_mistakes_are_errors(features):
    with pytest.raises(HeadstartError, match="fedcof-table3"):
        reproduce("fedcof-table99", features)
    with pytest.raises(HeadstartError, match="cifar100 or cub200"):
        reproduce("fedcof-table3", {"pacs": features["pacs"]})
    with pytest.raises(HeadstartError, match="seeds"):
        reproduce("fedcof-table3", features, seeds=0)
    bare = Dataset(
        "pacs", features["pacs"].features, features["pacs"].labels, test=features["pacs"].test
    )
    with pytest.raises(DataError, match="domain"):
        reproduce("fedcof-table5", {"pacs": bare})


def test_client_sizes_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))
    with pytest.raises(DataError, match="HEADSTART_DATA"):
        reproduce("costs-table2", {})


@pytest.mark.parametrize("n", [1, 3, 8, 9, 40])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_message_is_as_long_as_said(n, precision):
    rng = np.random.default_rng(n)
    z, y = rng.normal(size=(n, 8)), np.arange(n) % 3
    own = min(n, 3)
    for head, expected in (
        (Fed3R(), costs_table2.moments_bytes(min(n, 8), own, 8, precision)),
        (FedNCM(), costs_table2.sums_bytes(own, 8)),
    ):
        sent = head.measure(z, y).to_bytes(
            precision if expected != costs_table2.sums_bytes(own, 8) else None
        )
        assert len(sent) == expected


def test_classes_held_have_the_published_mean():
    sizes = np.array([1, 1, 2, 5, 13, 40, 100, 400])
    own = costs_table2.classes_held(sizes, 8.0)
    assert own.mean() == pytest.approx(8.0, abs=0.5)
    assert (own <= sizes).all()
    assert own[0] == 1
    assert (np.diff(own) >= 0).all()


def test_variants_keep_half_of_the_samples():
    labels = np.arange(2000) % 20
    for variant, shares in thesis_table3_11.VARIANTS.items():
        kept = thesis_table3_11.imbalanced(labels, shares, seed=1)
        assert len(kept) == 1000, variant
        counts = np.bincount(labels[kept])
        assert sorted(set(counts)) == [round(100 * share) for share in shares]


def test_validation_counts_what_clients_hold_out():
    from headstart.data.partition import dirichlet

    data = blobs(n=600).train_part()
    split = dirichlet(data.labels, 10, alpha=0.5, seed=0)
    clients = trial(data, split, 0.2, seed=0)
    total = clients.total(Fed3R())
    models = [Fed3R(ridge=ridge).solve(total) for ridge in (0.01, 1e9)]
    rates = clients.accuracies(models)
    held = [client for client in clients.kept.data.values() if len(client.test.labels)]
    z = np.concatenate([client.test.features for client in held])
    y = np.concatenate([client.test.labels for client in held])
    assert rates == pytest.approx([100 * model.accuracy(z, y) for model in models])
    assert clients.whole(Fed3R(), total).samples == len(data)
    assert isinstance(clients.rest, Simulator)


def test_the_test_part_is_not_looked_at_when_choosing(features, ran):
    """Other test labels, the same choice."""
    data = features["cub200"]
    labels = data.labels.copy()
    labels[data.test] = np.random.default_rng(0).permutation(labels[data.test])
    other = Dataset(data.name, data.features, labels, test=data.test)
    tables = (
        ran("best-training-free")[0],
        reproduce("best-training-free", {"cub200": other}, seeds=1),
    )
    notes = [find_row(table.rows, best_training_free.CHOSEN, "cub200").note for table in tables]
    assert notes[0] == notes[1] != ""
