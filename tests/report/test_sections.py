"""Sections of the page: which are there, and what they show."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headstart import HeadstartError
from headstart.report import page
from headstart.results import (
    DataSummary,
    Point,
    Pooled,
    SeedResult,
    SplitSummary,
)

from .helpers import (
    ALL,
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
    assert "It classifies 66.0% of the test samples correctly." in outline.text
    assert 'class="best"' not in source  # of one there is no best
    assert "±" not in outline.text


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
    text = check(page(alone(shifted))).text
    assert "Images are shifted by δ = 1.5" in text
    assert "FedRDN normalizes" in text
    assert "Test images with more" in text
    assert "90.0%" in text
    assert "blue %" not in text
    assert "shifted" not in page(alone(ONCE))


def test_many_pipelines_are_all_in_the_table_and_the_best_are_drawn():
    results = alone(*(bare(f"p{n:02d}", [point(1, 1, n / 100, 1e3)]) for n in range(1, 31)))
    text = check(page(results)).text
    assert "The 16 most accurate of 30 pipelines." in text
    assert page(results).count('<th scope="row">p07</th>') > 2


def test_a_grid_stands_above_all():
    from headstart.report.comparison_table import Cell, Table

    grid = Table("", ["none", "fd"], [("FedAvg", [Cell("9.00 (8.50)"), Cell("–")])], title="shards")
    source = page(ALL[:2], title="Cells", labels=["FedAvg, none", "FedAvg, fd"], grid=[grid])
    check(source)
    assert headings(source)[0] == "The grid"
    assert cells(source, "FedAvg") == ["9.00 (8.50)", "–"]
    assert "FedAvg-20" not in re.sub(r"<title>.*?</title>", "", source)
