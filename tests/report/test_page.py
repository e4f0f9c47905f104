"""The page: what it always says; safe, small and light."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.report import page, write_report
from headstart.results import (
    Confusion,
    DataSummary,
    RunResult,
    SeedResult,
    SplitSummary,
)

from .helpers import (
    ALL,
    HOSTILE,
    LONG,
    alone,
    bare,
    cells,
    check,
    fitted,
    read_csv,
)


def test_the_title_and_the_first_sentence_say_what_was_compared(full, compared, seeds):
    assert "<title>Fed3R, FedNCM on toy: 6 clients, Dirichlet 0.1</title>" in full
    text = check(compared).text
    assert "Fed3R, FedAvg-20(ψ) and Fed3R + FedAvg-3(ψ) + FedAlt-2 + FP-25(ψ) on toy: " in text
    assert "40 samples at 4 clients (Dirichlet 0.1), tested on 20 samples" in text
    assert "Dirichlet 0.1, 3 seeds</title>" in seeds
    many = alone(*(bare(f"a + FedAvg-{n}(lr=0.{n})") for n in range(1, 30)))
    assert re.search(r"and \d+ more pipelines on toy: ", check(page(many)).text)
    assert "<title>Mine</title>" in page(ALL, title="Mine")


def test_every_page_says_data_split_seed_and_what_was_held_out(full, compared, seeds):
    for source in (full, compared, seeds):
        text = check(source).text
        assert "toy: 40 training samples, 20 test samples, 3 classes, dimension 4" in text
        assert "d1" * 32 in text or "d0" * 32 in text
        assert "dirichlet: clients = " in text
        assert "alpha = 0.1" in text
    assert "20 test samples that no client holds (0.2 of the data); 0.3 of each client" in full
    assert "the data&#39;s own test part" in compared
    assert "The first is the model." in full
    assert "Seed 0, 1, 2; each changes partition, cohorts, initialization" in check(seeds).text
    assert "with other seeds another" in seeds


def test_settings_that_differ_and_those_that_are_shared():
    settings = {"exact": True, "cohort": 10, "inner": {"rate": 0.1}, "unset": None, "writers": []}
    other = {**settings, "cohort": 5, "inner": {"rate": 0.2}, "unset": 3}
    source = page(alone(bare("a", settings=settings), bare("b", settings=other)))
    assert cells(source, "a", "How it was run") == ["10", "0.1", "–"]
    assert cells(source, "b", "How it was run") == ["5", "0.2", "3"]
    assert re.search(r'<th scope="col">inner.rate</th><th scope="col">unset</th>', source)
    assert "<code>exact = yes</code>" in source
    same = page(alone(bare("a", settings=settings), bare("b", settings=settings)))
    assert "<code>exact = yes, cohort = 10, inner.rate = 0.1</code>" in same
    assert "ridge = gcv, normalize = yes, noise = none" in page(alone(fitted()))


def test_results_on_other_data_and_splits_say_which_is_whose():
    shards = SplitSummary("shards", {"clients": 4, "shards_per_client": 2}, tuple("wxyz"))
    other = bare("b", data=DataSummary("other", 7, 3, 2, ("a", "b")), split=shards)
    text = check(page(alone(bare("a"), other))).text
    assert "on toy or other: 4 clients, Dirichlet 0.1 or shards (shards_per_client 2)" in text
    assert "other: 7 training samples, 3 test samples, 2 classes, dimension 2 (b)" in text
    assert text.count("split clients") == 0
    assert text.index("Dirichlet split") < text.index("Shards split")


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
    assert (f"Every training has {shared}." in outline.text) == bool(shared)
    for label in labels:
        assert label in outline.text


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
