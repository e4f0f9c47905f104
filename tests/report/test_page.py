"""The page: what it always says, what it shows when, safe and the same bytes every time."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart import HeadstartError
from headstart.report import page, write_report
from headstart.results import (
    Confusion,
    DataSummary,
    Point,
    Pooled,
    RunResult,
    SeedResult,
    SplitSummary,
)

from .helpers import (
    ALL,
    HOSTILE,
    LONG,
    ONCE,
    OWN,
    ROUNDS,
    alone,
    bare,
    cells,
    check,
    fitted,
    headings,
    point,
    seeded,
)

ALWAYS = ["What was run", "Pipelines and what they cost", "Who holds what", "How it was run"]
FULL = [
    "What was run",
    "Pipelines and what they cost",
    "As clients arrive",
    "Who holds what",
    "The choice of λ",
    "Where it errs",
    "Who gains, who loses",
    "The same bits",
    "What these statistics reveal",
    "What did not come",
    "How it was run",
]
COMPARED = [
    "What was run",
    "Pipelines and what they cost",
    "Accuracy and its price",
    "The cost of a target accuracy",
    "Who holds what",
    "Who gains, who loses",
    "How it was run",
]


@pytest.fixture(scope="module")
def full() -> str:
    return page(alone(fitted(), fitted("FedNCM", 0.8)))


@pytest.fixture(scope="module")
def compared() -> str:
    return page(ALL)


@pytest.fixture(scope="module")
def seeds() -> str:
    return page([seeded(ONCE), seeded(ROUNDS, (0.0, 0.02, 0.01)), seeded(LONG)])


# -- what it always says ---------------------------------------------------------------------------


def test_the_title_and_the_first_sentence_say_what_was_compared(full, compared, seeds):
    assert "<title>Fed3R, FedNCM on toy: 6 clients, Dirichlet 0.1</title>" in full
    words = check(compared).words
    assert "Fed3R, FedAvg-20(ψ) and Fed3R + FedAvg-3(ψ) + FedAlt-2 + FP-25(ψ) on toy: " in words
    assert "40 samples at 4 clients (Dirichlet 0.1), tested on 20 samples" in words
    assert "Dirichlet 0.1, 3 seeds</title>" in seeds
    many = alone(*(bare(f"a + FedAvg-{n}(lr=0.{n})") for n in range(1, 30)))
    assert re.search(r"and \d+ more pipelines on toy: ", check(page(many)).words)
    assert "<title>Mine</title>" in page(ALL, title="Mine")


def test_every_page_says_data_split_seed_and_what_was_held_out(full, compared, seeds):
    for source in (full, compared, seeds):
        words = check(source).words
        assert "toy: 40 training samples, 20 test samples, 3 classes, dimension 4" in words
        assert "d1" * 32 in words or "d0" * 32 in words
        assert "dirichlet: clients = " in words
        assert "alpha = 0.1" in words
    assert "20 test samples that no client holds (0.2 of the data); 0.3 of each client" in full
    assert "the data&#39;s own test part" in compared
    assert "The first is the model." in full
    assert "Seed 0, 1, 2; each changes partition, cohorts, initialization" in check(seeds).words
    assert "with other seeds another" in seeds


def test_settings_that_differ_and_those_that_are_shared():
    told = {"exact": True, "cohort": 10, "inner": {"rate": 0.1}, "unset": None, "writers": []}
    other = {**told, "cohort": 5, "inner": {"rate": 0.2}, "unset": 3}
    source = page(alone(bare("a", settings=told), bare("b", settings=other)))
    assert cells(source, "a", "How it was run") == ["10", "0.1", "–"]
    assert cells(source, "b", "How it was run") == ["5", "0.2", "3"]
    assert re.search(r'<th scope="col">inner.rate</th><th scope="col">unset</th>', source)
    assert "<code>exact = yes</code>" in source
    same = page(alone(bare("a", settings=told), bare("b", settings=told)))
    assert "<code>exact = yes, cohort = 10, inner.rate = 0.1</code>" in same
    assert "ridge = gcv, normalize = yes, noise = none" in page(alone(fitted()))


def test_results_on_other_data_and_splits_say_which_is_whose():
    shards = SplitSummary("shards", {"clients": 4, "shards_per_client": 2}, tuple("wxyz"))
    other = bare("b", data=DataSummary("other", 7, 3, 2, ("a", "b")), split=shards)
    words = check(page(alone(bare("a"), other))).words
    assert "on toy or other: 4 clients, Dirichlet 0.1 or shards (shards_per_client 2)" in words
    assert "other: 7 training samples, 3 test samples, 2 classes, dimension 2 (b)" in words
    assert words.count("split clients") == 0
    assert words.index("Dirichlet split") < words.index("Shards split")


@pytest.mark.parametrize(
    ("pipelines", "labels", "shared"),
    [
        (
            ['none + FedAvg-9(f, drops="3,5", lr=0.1)', 'ETF + FedDr+-9(drops="3,5", lr=1)'],
            ["none + FedAvg-9(f, lr=0.1)", "ETF + FedDr+-9(lr=1)"],
            'drops="3,5"',
        ),
        (["a + b-2(lr=1)", "c + b-2(lr=1)"], ["a + b-2", "c + b-2"], "lr=1"),
        (["a + b-2(lr=1)", "c + b-2"], ["a + b-2(lr=1)", "c + b-2"], ""),  # the other has its own
        (["a + b-2(lr=1)", "c + d+-2(lr=2)"], ["a + b-2(lr=1)", "c + d+-2(lr=2)"], ""),
        (["a(x=1)", "b(x=1)"], ["a(x=1)", "b(x=1)"], ""),  # nothing trains
        (["a + b-2(lr=1)"], ["a + b-2(lr=1)"], ""),
        (
            ["ft(b-2(lr=1, m=2), r=3)", "b-2(lr=1, m=3)", "a"],
            ["ft(b-2(m=2), r=3)", "b-2(m=3)", "a"],
            "lr=1",
        ),
    ],
)
def test_what_all_trainings_share_is_said_once(pipelines, labels, shared):
    outline = check(page(alone(*map(bare, pipelines))))
    assert (f"Every training has {shared}." in outline.words) == bool(shared)
    for label in labels:
        assert label in outline.text


# -- which sections --------------------------------------------------------------------------------


def test_one_page_shows_fits_and_comparisons(full, compared):
    assert headings(full) == FULL
    assert headings(compared) == COMPARED
    for source, figures in ((full, 9), (compared, 7)):
        labels = [attrs["aria-label"] for tag, attrs in check(source).tags if tag == "svg"]
        assert len(labels) == len(set(labels)) == figures
    both = page(alone(fitted(), LONG))
    assert set(headings(both)) == {*FULL, *COMPARED}


@pytest.mark.parametrize(
    ("without", "title"),
    [
        ({"confusion": None}, "Where it errs"),
        ({"pooled": None}, "The same bits"),
        ({"reveals": {}}, "What these statistics reveal"),
        ({"failures": ()}, "What did not come"),
        ({"personal": None}, "Who gains, who loses"),
        ({"head": replace(fitted().head, arrivals=())}, "As clients arrive"),
        ({"head": replace(fitted().head, path=None)}, "The choice of λ"),
    ],
)
def test_a_section_is_there_if_and_only_if_its_data_are(without, title):
    source = page(alone(fitted(**without)))
    check(source)
    assert headings(source) == [name for name in FULL if name != title]


def test_diagnostics_have_their_section():
    seen = {f"{kind}_{what}": 0.5 for kind in ("observed", "unobserved") for what in
            ("alignment", "gap", "distance", "angle")}  # fmt: skip
    points = [point(1, r, 0.5, 1e3 * r, diagnosis=seen) for r in (1, 2)]
    source = page(alone(bare("a", points), ONCE))
    assert "Features and the head" in headings(source)
    assert check(source).names.count("svg") == 8
    assert "Features and the head" not in headings(page(ALL))


def test_a_result_of_nothing_but_a_point():
    source = page(alone(ONCE))
    outline = check(source)
    assert headings(source) == ALWAYS
    assert "It classifies 66.0% of the test samples correctly." in outline.words
    assert 'class="best"' not in source  # of one there is no best
    assert "±" not in outline.words


@pytest.mark.parametrize(
    "odd",
    [
        replace(bare("no curve"), curve=(), accuracy=None),
        bare("never evaluated", [point(1, r, None, 1e3 * r) for r in (1, 2)], personal=OWN),
        bare("costs unknown", [Point(0, 1, 0.5)]),
        bare("all right", [point(0, 0, 1.0, 1e3), point(1, 1, 1.0, 2e3)]),
        bare("nothing right", [point(0, 0, 0.0, 1e3)]),
        bare("nobody tested", personal=replace(OWN, tested=(0, 0, 0, 0))),
        bare("no data", data=DataSummary("", 0, 0, 0), split=SplitSummary("", {}, ())),
        fitted(clients=1),
    ],
    ids=lambda odd: odd.pipeline,
)  # fmt: skip
def test_what_is_missing_is_left_out(odd: SeedResult):
    for results in ([odd], [odd, ONCE], [ROUNDS, LONG, odd]):
        check(page(alone(*results)))


def test_no_result_is_refused():
    with pytest.raises(HeadstartError, match="results: expected at least one to report, got none"):
        page([])


def test_clients_that_share_a_part_of_a_model():
    shared = bare("FedPer-1", [point(0, 0, 0.5, 1.0), point(1, 1, None, 2.0)], accuracy=None)
    assert "clients share a part of a model" in page(alone(shared))
    never = bare("a", [point(1, 1, None, 2.0)])
    assert "Nothing was evaluated" in page(alone(never))


# -- single sections -------------------------------------------------------------------------------


def test_the_same_bits_and_others(full):
    assert full.count("ab" * 32) == 4
    assert "✓ The same bits." in full
    wrong = page(alone(fitted(), fitted("LDA", pooled=Pooled(0.9, "cd" * 32))))
    assert "✗ Not the same bits." in wrong
    assert "cd" * 32 in wrong
    assert wrong.count("ab" * 32) == 1  # only what differs is shown


def test_who_gains_and_who_loses(full, compared):
    assert cells(full, "local prior") == [
        "50.0%", "100.0%", "100.0%", "4", "0", "0", "+50.0", "+50.0", "+50.0", "+50.0",
    ]  # fmt: skip
    assert cells(compared, LONG.pipeline, "Who gains, who loses") == [
        "54.5%", "54.5%", "73.3%", "1", "1", "1", "−10.0", "−8.0", "±0.0", "+24.0",
    ]  # fmt: skip


def test_the_table_of_pipelines(full, compared):
    assert cells(full, "Fed3R")[:5] == ["90.0%", "89.0%", "90.0%", "50.0%", "50.0%"]
    assert cells(full, "Fed3R")[5:] == [
        "75.0%", "100.0%", "100.0%", "900 B", "1.80 kB", "2.0×", "500 B", "200 B", "0.40 s",
    ]  # fmt: skip
    assert cells(compared, LONG.pipeline) == [
        "69.0%", "54.5 → 54.5%", "66.7 → 73.3%", "1", "1", "5", "1.50 MB", "3.00 MB", "750 kB",
        "90.0 M", "12.0 M", "45.0 M", "1.50 s",
    ]  # fmt: skip
    titles = re.findall(r'<th scope="col">(.*?)</th>', compared)
    at = titles.index("done")
    assert titles[at : at + 3] == ["done", "torch", "formula"]


def test_the_measure_of_a_target_is_chosen_without_a_script(compared):
    outline = check(compared)
    radios = [attrs for tag, attrs in outline.tags if tag == "input"]
    assert {attrs["type"] for attrs in radios} == {"radio"}
    assert [("checked" in attrs) for attrs in radios] == [True] + [False] * 6
    assert {attrs["name"] for attrs in radios} == {"measure"}
    labels = [attrs["for"] for tag, attrs in outline.tags if tag == "label"]
    assert labels == [attrs["id"] for attrs in radios]
    section = compared[compared.index("The cost of a target") : compared.index("Who holds what")]
    tables = section.split("<table")[1:]
    assert len(tables) == 7
    for number in range(1, 8):  # each radio shows its own table
        assert f"input:nth-of-type({number}):checked ~ .panels > :nth-child({number})" in compared
    rounds, bytes_up = tables[0], tables[2]
    assert cells(rounds, "FedAvg-20(ψ)")[:3] == ["7", "10", "14"]
    assert cells(bytes_up, "FedAvg-20(ψ)")[0] == "1.40 MB"
    marked = re.findall(r'<th scope="row">([^<]*)</th><td class="best">', bytes_up)
    assert marked == ["Fed3R", LONG.pipeline]
    assert "The cost of a target" not in page(alone(fitted()))


def test_images_that_were_shifted():
    data = replace(ONCE.data, shift=1.5, augment="fedrdn")
    shifted = bare("x", data=data, domains={"red": 0.9, "green": 0.5})
    words = check(page(alone(shifted))).words
    assert "Images are shifted by δ = 1.5" in words
    assert "FedRDN normalizes" in words
    assert "Test images with more" in words
    assert "90.0%" in words
    assert "blue %" not in words
    assert "shifted" not in page(alone(ONCE))


def test_many_pipelines_are_all_in_the_table_and_the_best_are_drawn():
    results = alone(*(bare(f"p{n:02d}", [point(1, 1, n / 100, 1e3)]) for n in range(1, 31)))
    words = check(page(results)).words
    assert "The 16 most accurate of 30 pipelines." in words
    assert page(results).count('<th scope="row">p07</th>') > 2


def test_a_grid_stands_above_all():
    from headstart.report.comparison_table import Cell, Table

    grid = Table("", ["none", "fd"], [("FedAvg", [Cell("9.00 (8.50)"), Cell("–")])], title="shards")
    source = page(ALL[:2], title="Cells", labels=["FedAvg, none", "FedAvg, fd"], grid=[grid])
    check(source)
    assert headings(source)[0] == "The grid"
    assert cells(source, "FedAvg") == ["9.00 (8.50)", "–"]
    assert "FedAvg-20" not in re.sub(r"<title>.*?</title>", "", source)


# -- seeds -----------------------------------------------------------------------------------------


def test_means_and_deviations_over_seeds(seeds):
    outline = check(seeds)
    assert "Seed by seed" in headings(seeds)
    assert "Mean ± std over 3 seeds: partition, cohorts, initialization." in outline.words
    spread = np.std([0.66, 0.67, 0.69], ddof=1)
    assert (
        cells(seeds, "Fed3R")[0] == f"{100 * np.mean([0.66, 0.67, 0.69]):.1f} ± {100 * spread:.1f}%"
    )
    assert "A band is one standard deviation over seeds." in outline.words


def test_differences_are_paired_by_seed(seeds):
    gaps = np.array([0.70, 0.72, 0.71]) - np.array([0.66, 0.67, 0.69])
    told = f"+{100 * gaps.mean():.1f} ± {100 * gaps.std(ddof=1):.1f}"
    assert cells(seeds, "FedAvg-20(ψ)", "Seed by seed") == [told, "3 of 3"]
    other = replace(
        seeded(ROUNDS), runs=tuple(replace(r, seed=r.seed + 9) for r in seeded(ROUNDS).runs)
    )
    assert "Seed by seed" not in headings(page([seeded(ONCE), other]))


def test_a_target_that_some_seeds_miss_says_how_many_reach_it(seeds):
    section = seeds[seeds.index("The cost of a target") :]
    assert "2 of 3 seeds" in cells(section, "Fed3R")
    assert "1 of 3 seeds" in cells(section, "Fed3R")


def test_what_varied_is_what_shows_in_the_data():
    same = RunResult(tuple(replace(run, data=ONCE.data) for run in seeded(ONCE).runs))
    assert "Mean ± std over 3 seeds." in check(page([same])).words
    outside = replace(ONCE, split=replace(ONCE.split, test_fraction=0.2, held_out=0.3))
    words = check(page([seeded(outside)])).words
    assert "over 3 seeds: test split, partition, held-out parts." in words


def test_one_seed_has_none_of_that(full, compared):
    for source in (full, compared):
        assert "Seed by seed" not in headings(source)
        assert " ± " not in check(source).words
        assert "seeds" not in check(source).words.replace("all seeds", "")


# -- files -----------------------------------------------------------------------------------------


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_the_same_bytes_each_time_and_from_results_read_back(tmp_path):
    results = [seeded(fitted()), seeded(LONG)]
    again = [
        RunResult(tuple(SeedResult.from_json(run.to_json()) for run in result.runs))
        for result in results
    ]
    assert again == results
    write_report(results, tmp_path / "one")
    write_report(again, tmp_path / "two")
    assert (tmp_path / "one" / "report.html").read_text(encoding="utf-8") == page(results)
    paths = [p for p in (tmp_path / "one").rglob("*") if p.is_file()]
    assert {"table.csv", "targets.csv", "curves.csv", "clients.csv", "arrivals.csv"} < {
        p.name for p in paths
    }
    for path in paths:
        other = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert other.read_bytes() == path.read_bytes(), path.name


def test_every_figure_is_a_file_and_no_older_one_stays(tmp_path, compared):
    write_report(ALL, tmp_path)
    names = sorted(p.name for p in (tmp_path / "figures").iterdir())
    svg = [name for name in names if name.endswith(".svg")]
    assert [name.replace(".svg", ".pdf") for name in svg] == [n for n in names if ".pdf" in n]
    assert len(svg) == check(compared).names.count("svg")
    for name in svg:
        text = (tmp_path / "figures" / name).read_text(encoding="utf-8")
        assert text.startswith("<?xml")
        assert "<dc:date>" not in text
    for name in names:
        if name.endswith(".pdf"):
            data = (tmp_path / "figures" / name).read_bytes()
            assert data.startswith(b"%PDF")
            assert b"CreationDate" not in data
    (tmp_path / "figures" / "notes.txt").write_text("mine")
    (tmp_path / "arrivals.csv").write_text("of an earlier report")
    write_report(alone(ONCE), tmp_path)
    assert [p.name for p in (tmp_path / "figures").iterdir()] == ["notes.txt"]
    assert not (tmp_path / "arrivals.csv").exists()


def test_the_files_agree_with_the_results(tmp_path):
    results = [seeded(LONG), seeded(fitted("Fed3R", 0.9))]
    write_report(results, tmp_path)
    runs = [run for result in results for run in result.runs]
    curves = read_csv(tmp_path / "curves.csv")
    points = [(run, p) for run in runs for p in run.curve]
    assert len(curves) == len(points)
    for row, (run, p) in zip(curves, points, strict=True):
        assert (row["pipeline"], int(row["seed"])) == (run.pipeline, run.seed)
        assert (int(row["phase"]), int(row["round"])) == (p.phase, p.round)
        assert row["accuracy"] == ("" if p.accuracy is None else str(p.accuracy))
        assert float(row["formula_flops"]) == p.formula_flops
    clients = read_csv(tmp_path / "clients.csv")
    assert len(clients) == 3 * 6  # a row per client and seed; LONG knows none
    assert clients[1]["client"] == "c01"
    assert (clients[1]["up"], clients[1]["tested"]) == ("850", "1.0")
    assert (clients[1]["accuracy_global"], clients[1]["accuracy_ridge"]) == ("0.5", "1.0")
    assert (clients[0]["tested"], clients[0]["accuracy_oll"]) == ("0.0", "")
    table = read_csv(tmp_path / "table.csv")
    assert [row["pipeline"] for row in table] == [LONG.pipeline, "Fed3R"]
    assert float(table[0]["accuracy %"]) == pytest.approx(100 * results[0].accuracy, abs=0.05)
    assert float(table[0]["accuracy % std"]) == pytest.approx(
        100 * results[0].accuracy.std, abs=0.05
    )
    aims = read_csv(tmp_path / "targets.csv")
    assert {row["seed"] for row in aims} == {"0", "1", "2"}
    arrivals = read_csv(tmp_path / "arrivals.csv")
    assert len(arrivals) == 3 * 6
    assert float(arrivals[-1]["accuracy"]) == runs[-1].head.arrivals[-1].accuracy


# -- safe, small, light ----------------------------------------------------------------------------


def hostile() -> SeedResult:
    made = fitted(HOSTILE)
    own, split = made.personal, made.split
    names = (HOSTILE, *own.clients[1:])
    return replace(
        made,
        data=replace(made.data, name=HOSTILE, classes=(HOSTILE, "b", "c"), digest=HOSTILE),
        split=replace(split, name=HOSTILE, clients=names, settings={HOSTILE: HOSTILE}),
        settings={HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}},
        head=replace(made.head, settings={HOSTILE: HOSTILE}, digest=HOSTILE),
        personal=replace(own, clients=names),
        confusion=Confusion((HOSTILE, "b", "c"), made.confusion.matrix),
        clients=(replace(made.clients[0], client=HOSTILE), *made.clients[1:]),
        reveals={"clients": 6, HOSTILE: 1},
        failures=(replace(made.failures[0], client=HOSTILE, text=HOSTILE, code=HOSTILE),),
        notes=(HOSTILE,),
        version=HOSTILE,
        created=HOSTILE,
    )


def test_hostile_names_stay_text(tmp_path):
    results = [RunResult((hostile(),)), *alone(replace(LONG, pipeline=HOSTILE + "2"))]
    source = page(results, title=HOSTILE)
    check(source)
    assert source.count("&lt;script&gt;") > 15
    write_report(results, tmp_path)
    rows = read_csv(tmp_path / "clients.csv")
    assert rows[0]["client"].startswith("<script>")
    back = SeedResult.from_json(hostile().to_json())
    assert page([RunResult((back,))]) == page([RunResult((hostile(),))])


def test_thousands_of_clients_stay_small():
    clients, classes = 3000, 500
    rng = np.random.default_rng(0)
    names = tuple(f"class {c}" for c in range(classes))
    made = fitted(clients=clients)
    counts = tuple(map(tuple, rng.poisson(0.2, (clients, classes)).tolist()))
    matrix = tuple(map(tuple, rng.poisson(0.1, (classes, classes)).tolist()))
    big = replace(
        made,
        data=replace(made.data, classes=names),
        split=replace(made.split, counts=counts),
        confusion=Confusion(names, matrix),
    )
    source = page(alone(big))
    check(source)
    assert len(source.encode()) < 2_000_000
    assert "each cell adds up 10 clients by 5 classes" in source
    assert "each cell adds up 2 by 2 classes" in source
    assert "class 250" not in source


def run_alone(code: str) -> None:
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


def test_imports_are_left_until_they_are_needed():
    heavy = "{'matplotlib', 'jinja2', 'torch', 'pydantic'} & set(sys.modules)"
    run_alone(f"import sys, headstart.report; sys.exit(bool({heavy}))")
    run_alone("import sys, headstart; sys.exit('headstart.report' in sys.modules)")


def test_no_pyplot_is_needed():
    run_alone(
        "import sys; from tests.report.helpers import alone, fitted\n"
        "from headstart.report import page; page(alone(fitted()))\n"
        "sys.exit('matplotlib' not in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    )


def test_settings_of_matplotlib_are_left_as_they_were(full):
    import matplotlib

    def settings() -> dict[str, Any]:
        return {key: matplotlib.rcParams[key] for key in ("svg.hashsalt", "font.size", "axes.grid")}

    before = settings()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False}):
        changed = page(alone(fitted(), fitted("FedNCM", 0.8)))
    assert changed == full
    assert settings() == before
