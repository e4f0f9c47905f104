"""Sentences side by side: numbers by hand, tables as text, and the page that shows them."""

import csv
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from headstart.report.compare import (
    as_csv,
    as_markdown,
    compare_page,
    table_rows,
    target_rows,
    targets,
    write_compare,
)
from headstart.report.compare_plots import POINTS, _series, titles
from headstart.report.names import short
from headstart.report.outcomes import curve, personal, reached, spent

from headstart import console

HOSTILE = '<script>alert("x")</script> & $x^$ | \x00\ud800'


def point(phase, round_, accuracy, up, **more):
    made = {"down": up / 2, "flops": 10.0 * up, "formula_up": 2.0 * up, "formula_flops": 30.0 * up}
    made["counted"] = 8.0 * up
    return {"phase": phase, "round": round_, "accuracy": accuracy, "up": up, **made, **more}


def result(sentence, points, own=None, epochs=None, **more):
    known = [p["accuracy"] for p in points if p["accuracy"] is not None]
    return {
        "sentence": sentence,
        "clients": 4,
        "phases": sentence.split(" + "),
        "curve": points,
        "accuracy": known[-1] if known else None,
        "personal": own,
        "epochs": epochs,
        "seconds": 1.5,
        **more,
    }


OWN = {
    "clients": ["a", "b", "c", "d"],
    "tested": [10, 30, 0, 4],
    "before": [5, 15, 0, 4],
    "after": [8, 12, 0, 4],
}
ONCE = result("fed3r", [point(0, 0, 0.66, 1e6)])
ROUNDS = result("fedavg-20(ψ)", [point(0, 0, 0.01, 0.0)] + [
    point(1, r, 0.1 + 0.03 * r, 2e5 * r) for r in range(1, 21)
])  # fmt: skip
LONG = result(
    "fed3r + fedavg-3(ψ) + fedalt-2 + FP-25(ψ)",
    [
        point(0, 0, 0.66, 1e6),
        *(point(1, r, 0.66 + r / 100, 1e6 + 1e5 * r) for r in (1, 2, 3)),
        *(point(2, r, None, 1.3e6 + 1e5 * r) for r in (1, 2)),
        point(3, 25, None, 1.5e6, flops=9e7),
    ],
    own=OWN,
    epochs=[{"epoch": e, "own": 0.7 + e / 100, "local": 0.6, "absent": 0.5} for e in range(3)],
)
ALL = [ONCE, ROUNDS, LONG]


# -- numbers ---------------------------------------------------------------------------------------


def test_rounds_are_counted_over_phases_and_epochs_at_home_are_none():
    assert [p["round"] for p in curve(LONG)] == [0, 1, 2, 3, 4, 5, 5]
    assert spent(LONG, "round") == 5
    assert spent(LONG, "flops") == 9e7
    assert spent(LONG, "both") == pytest.approx(1.5e6 * 1.5)


def test_what_is_unknown_stays_unknown():
    bare = result("x", [{"phase": 0, "round": 0, "accuracy": 0.5}])
    assert spent(bare, "up") is None
    assert spent(result("x", []), "round") is None
    assert reached(bare, 0.5, "both") is None
    assert reached(bare, 0.5, "round") == 0


def test_the_first_round_that_reaches_a_target():
    assert reached(ROUNDS, 0.40, "round") == 10
    assert reached(ROUNDS, 0.40, "up") == pytest.approx(2e6)
    assert reached(ROUNDS, 0.70, "round") == 20
    assert reached(ROUNDS, 0.71, "round") is None
    assert reached(ONCE, 0.66, "round") == 0
    assert reached(ONCE, 0.67, "up") is None


def test_a_target_is_reached_at_its_first_crossing_not_at_its_last():
    wild = result("x", [point(1, r, a, 1e3 * r) for r, a in ((1, 0.5), (2, 0.3), (3, 0.6))])
    assert reached(wild, 0.45, "round") == 1


def test_targets_are_tens_and_fine_steps_below_the_best():
    assert targets(ALL) == [0.3, 0.4, 0.5, 0.6, 0.66, 0.67, 0.68, 0.69, 0.7]
    high = result("x", [point(0, 0, 0.9731, 1.0)])
    assert targets([high])[-5:] == [0.95, 0.955, 0.96, 0.965, 0.97]
    low = result("x", [point(0, 0, 0.225, 1.0)])
    assert targets([low]) == [0.1, 0.18, 0.19, 0.2, 0.21, 0.22]
    assert targets([]) == []


def test_personal_means_by_hand():
    own = personal(LONG)
    assert own.weighted == (24 / 44, 24 / 44)
    assert own.plain == pytest.approx(((0.5 + 0.5 + 1) / 3, (0.8 + 0.4 + 1) / 3))
    assert (own.gain, own.same, own.lose) == (1, 1, 1)
    np.testing.assert_allclose(own.change, [-0.1, 0, 0.3])


@pytest.mark.parametrize(
    "told",
    [None, {}, {"clients": [], "tested": [], "before": [], "after": []},
     {"clients": ["a"], "tested": [0], "before": [0], "after": [0]}],
)  # fmt: skip
def test_nobody_tested_is_no_personal_accuracy(told):
    assert personal(result("x", [], own=told)) is None


# -- tables as text --------------------------------------------------------------------------------


def test_the_table_has_a_row_a_sentence_and_units_in_its_header():
    header, body = table_rows(ALL)
    assert [row[0] for row in body] == [one["sentence"] for one in ALL]
    cells = dict(zip(header, body[2], strict=True))
    assert cells["accuracy %"] == "69.0"
    assert (cells["before %"], cells["after %"]) == ("54.5", "54.5")
    assert (cells["plain before %"], cells["plain after %"]) == ("66.7", "73.3")
    assert (cells["gain"], cells["lose"], cells["rounds"]) == ("1", "1", "5")
    assert (cells["MB up"], cells["MB down"], cells["formula MB up"]) == ("1.5", "0.75", "3")
    assert (cells["GFLOPs a client"], cells["seconds"]) == ("0.09", "1.5")
    assert (cells["torch GFLOPs"], cells["formula GFLOPs"]) == ("0.012", "0.045")
    assert dict(zip(header, body[0], strict=True))["after %"] == "–"


def test_shifted_colours_have_a_column_a_domain():
    images = {"shift": 1.5, "augment": "fedrdn", "accuracy": {"red": 0.9, "green": 0.5}}
    header, body = table_rows([ONCE, result("x", [point(0, 0, 0.7, 1e6)], images=images)])
    cells = dict(zip(header, body[1], strict=True))
    assert (cells["red %"], cells["green %"]) == ("90.0", "50.0")
    assert "blue %" not in header
    page = compare_page([result("x", [point(0, 0, 0.7, 1e6)], images=images)])
    assert "Images are shifted by δ = 1.5" in page
    assert "FedRDN normalizes" in page
    assert "90.0%" in page
    for odd in ({}, None, {"shift": None, "accuracy": None}, "no"):
        page = compare_page([result("x", [point(0, 0, 0.7, 1e6)], images=odd)])
        assert "shifted" not in page
        assert "Test images" not in page


def test_columns_nobody_fills_are_left_out():
    header, _ = table_rows([ONCE])
    assert "after %" not in header
    assert "gain" not in header
    assert table_rows([]) == (("sentence",), [])


def test_the_costs_of_targets_in_long_form():
    header, body = target_rows(ALL, [0.5, 0.69])
    assert len(body) == 6
    rows = {row[:2]: dict(zip(header, row, strict=True)) for row in body}
    assert rows["50", "fedavg-20(ψ)"]["round"] == "14"
    assert rows["50", "fedavg-20(ψ)"]["MB both ways"] == "4.2"
    assert rows["50", "fed3r"]["formula MB up"] == "2"
    assert rows["69", "fed3r"]["round"] == "–"
    assert rows["69", LONG["sentence"]]["MB up"] == "1.3"
    assert len(target_rows(ALL).body) == len(ALL) * len(targets(ALL))


def test_csv_is_read_back_with_what_is_missing_empty():
    table = table_rows(ALL)
    header, *body = csv.reader(io.StringIO(as_csv(table)))
    assert tuple(header) == table.header
    assert body[0][header.index("after %")] == ""
    assert float(body[2][header.index("MB up")]) == 1.5
    assert body[1][0] == "fedavg-20(ψ)"


def test_markdown_keeps_its_columns():
    text = as_markdown(table_rows([ONCE, result("a | b", [point(0, 0, 0.5, 1e3)])]))
    lines = text.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("| --- | ---: |")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


@pytest.mark.parametrize("width", [40, 80, 200])
def test_in_a_terminal(capsys, monkeypatch, width):
    """A sentence is no markup, and where there is no room it stands above the table."""
    monkeypatch.setattr(console.out, "_width", width)
    odd = result("fed3r(x=[red]) + fedavg-20(ψ)", LONG["curve"], own=OWN)
    console.show_rows(*table_rows([ONCE, odd], brief=True), title="Costs")
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line for line in lines if "69.0" in line]
    (named,) = [line for line in lines if "fed3r(x=[red]) + fedavg-20(ψ)" in line]
    assert (row == named) is (width == 200)
    assert row.startswith("fed3r" if width == 200 else "2.")
    assert not any("…" in line for line in lines)
    assert all("formula" not in line for line in lines)
    assert row.rstrip().endswith("1.5")  # nothing is cut off
    assert "accuracy" in " ".join(lines)
    assert "seconds" in " ".join(lines)


# -- the page --------------------------------------------------------------------------------------


class Tags(HTMLParser):
    VOID = ("meta", "link", "br", "img")

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def headings(page):
    return re.findall(r"<h2>(.*?)</h2>", page)


def test_the_page_holds_every_part():
    page = compare_page(ALL)
    assert headings(page) == [
        "The sentences",
        "Accuracy and its price",
        "The cost of a target accuracy",
        "Who gains, who loses",
    ]
    tags = Tags(page)
    labels = [attrs["aria-label"] for tag, attrs in tags.seen if tag == "svg"]
    assert len(labels) == len(set(labels)) == 6
    words = " ".join(tags.text)
    assert "54.5 → 54.5%" in words
    assert "fedavg-20(ψ) ends with the highest accuracy, 70.0%" in words
    assert "comes within a point of that" in words


def test_the_page_is_self_contained_and_the_same_bytes_each_time(tmp_path):
    write_compare(ALL, tmp_path / "compare.html", "Three ways")
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert page == compare_page(ALL, "Three ways")
    assert "<title>Three ways</title>" in page
    for tag, attrs in Tags(page).seen:
        assert tag not in ("script", "link", "iframe")
        for key in ("src", "href"):
            assert attrs.get(key, "#").startswith("#")
    ids = [attrs["id"] for _, attrs in Tags(page).seen if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_one_sentence_of_one_point():
    page = compare_page([ONCE])
    Tags(page)
    assert "fed3r ends with an accuracy of 66.0%" in page
    assert "Who gains" not in page
    assert 'class="best"' not in page  # of one there is no best
    assert "by round" not in page  # and no rounds to see


@pytest.mark.parametrize(
    "odd",
    [
        result("no curve", []),
        result("never evaluated", [point(1, r, None, 1e3 * r) for r in (1, 2)], own=OWN),
        result("costs unknown", [{"phase": 0, "round": 1, "accuracy": 0.5}]),
        result("not numbers", [point(0, 0, float("nan"), float("inf"))]),
        result("all right", [point(0, 0, 1.0, 1e3), point(1, 1, 1.0, 2e3)]),
        result("nothing right", [point(0, 0, 0.0, 1e3)]),
        {"sentence": "nothing at all"},
        {},
    ],
    ids=lambda odd: odd.get("sentence", "empty"),
)
def test_what_is_missing_is_left_out(odd):
    for results in ([odd], [odd, ONCE], [*ALL, odd]):
        page = compare_page(results)
        Tags(page)
        assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).lower()
        table_rows(results)
        target_rows(results)


def test_no_sentence_at_all():
    assert "Nothing was evaluated" in compare_page([])


def test_a_hostile_sentence_stays_text():
    page = compare_page([ONCE, result(HOSTILE, LONG["curve"], own=OWN)])
    assert "<script" not in page
    Tags(page)


def test_sentences_in_a_legend_can_be_told_apart():
    assert titles(ALL) == [one["sentence"] for one in ALL]
    long = [{"sentence": "fed3r + " * 20 + end} for end in "ab"]
    assert len(set(titles(long))) == 2
    assert max(map(len, titles(long))) <= 64
    assert titles([ONCE, ONCE]) == ["1. fed3r", "2. fed3r"]


@pytest.mark.parametrize(
    ("sentences", "names", "shared"),
    [
        (
            ['none + fedavg-9(f, drops="3,5", lr=0.1)', 'etf + feddr-plus-9(drops="3,5", lr=1)'],
            ["none + fedavg-9(f, lr=0.1)", "etf + feddr-plus-9(lr=1)"],
            ['drops="3,5"'],
        ),
        (["a + b-2(lr=1)", "c + b-2(lr=1)"], ["a + b-2", "c + b-2"], ["lr=1"]),
        (["a + b-2(lr=1)", "c + b-2"], ["a + b-2(lr=1)", "c + b-2"], []),  # the other has its own
        (["a(x=1)", "b(x=1)"], ["a(x=1)", "b(x=1)"], []),  # nothing trains
        (["a + b-2(lr=1)"], ["a + b-2(lr=1)"], []),
        (
            ["ft(b-2(lr=1, m=2), r=3)", "b-2(lr=1, m=3)", "a"],
            ["ft(b-2(m=2), r=3)", "b-2(m=3)", "a"],
            ["lr=1"],
        ),
        ([], [], []),
    ],
)
def test_what_all_trainings_share_is_said_once(sentences, names, shared):
    assert short(sentences) == (names, shared)
    page = compare_page([result(name, [point(0, 0, 0.5, 1.0)]) for name in sentences])
    assert all(f"Every training has {one}".replace('"', "&quot;") in page for one in shared[:1])
    assert ("Every training has" in page) == bool(shared)


def test_a_long_curve_is_thinned_but_keeps_the_ends_of_phases():
    points = [point(1, r, 0.1, 10.0 * r) for r in range(1, 1501)]
    points += [point(2, r, 0.2, 15000 + 10.0 * r) for r in range(1, 1501)]
    shown = _series(result("x", points), "round")
    assert len(shown) <= POINTS + 2
    assert {1500, 3000} <= set(shown[:, 0])
    assert len(compare_page([result("x", points)])) < 150_000


def test_torchs_count_stands_between_what_was_done_and_the_formula():
    page = compare_page([ONCE])
    titles_ = re.findall(r'<th scope="col">(.*?)</th>', page)
    at = titles_.index("done")
    assert titles_[at : at + 3] == ["done", "torch", "formula"]
    assert "<h3>FLOPs a client, counted by torch</h3>" in page
    old = [{k: v for k, v in one.items() if k != "counted"} for one in ONCE["curve"]]
    assert "torch GFLOPs" not in table_rows([result("fed3r", old)]).header


def test_the_best_of_a_target_is_marked():
    page = compare_page(ALL)
    (table,) = re.findall(r"<h3>Bytes up</h3>(.*?)</table>", page, re.DOTALL)
    first = re.findall(r"<tr><th[^>]*>fedavg-20\(ψ\)</th><td[^>]*>(.*?)</td>", table)
    assert first == ["1.40 MB"]
    marked = re.findall(r'<th scope="row">([^<]*)</th><td class="best">', table)
    assert marked == ["fed3r", LONG["sentence"]]
