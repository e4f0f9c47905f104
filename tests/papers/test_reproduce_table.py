"""Rows, tables, and the page made from saved results."""

import csv
import io
from pathlib import Path

import pytest

from headstart.errors import HeadstartError
from headstart.papers import catalogue, render
from headstart.papers.table import ResultCollector, Row, Table


def table(**changes):
    rows = (
        Row("Fed3R", "cub200", 58.6, (65.0, 65.4), note="a | b"),
        Row("Fed3R, sent", "cub200", None, (1234.5,), "MB"),
    )
    fields = {
        "name": "one",
        "title": "A title",
        "paper": "Paper, table 1",
        "command": "headstart reproduce one",
        "seeds": 2,
        "data": {"cub200": "some samples"},
        "missing": ("cifar100",),
        "rows": rows,
        "conclusion": "It holds.",
        "version": "0",
    }
    return Table(**{**fields, **changes})


def test_a_row_derives_its_numbers():
    row = Row("Fed3R", "cub200", 58.6, (65.0, 65.4))
    assert row.mean == pytest.approx(65.2)
    assert row.deviation == pytest.approx(0.2828, abs=1e-3)
    assert row.difference == pytest.approx(6.6)
    assert Row("x", "y", None, (1.0,)).difference is None
    assert Row("x", "y", None, (1.0,)).deviation == 0
    assert row.cells() == ("Fed3R", "cub200", "58.6", "65.2 ± 0.3", "+6.6", "%", "")


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (3.0, "3")]
)
def test_numbers_are_short(value, text):
    assert Row("x", "y", None, (value,), "MB").cells()[3] == text


def test_markdown_has_paper_ours_and_difference():
    text = table().markdown()
    assert "| what | setting | paper | ours | difference | unit | note |" in text
    assert "| Fed3R | cub200 | 58.6 | 65.2 ± 0.3 | +6.6 | % | a \\| b |" in text
    assert "`headstart reproduce one`" in text
    assert "It holds." in text
    assert "Not given, and not run: cifar100." in text
    assert "note" not in table(rows=(Row("x", "y", 1.0, (1.0,)),)).markdown()


def test_csv_has_every_seed():
    first, second = csv.DictReader(io.StringIO(table().csv()))
    assert first["values"] == "65 65.4"
    assert float(first["mean"]) == pytest.approx(65.2)
    assert second["paper"] == second["difference"] == ""


def test_json_goes_and_comes_back():
    assert Table.from_json(table().json()) == table()


def test_a_collector_gathers_seeds():
    collector = ResultCollector()
    for value in (1.0, 2.0):
        collector.add("a", "s", value, note="first")
        collector.add("b", "s", value + 1, "MB", f"note {value:g}")
    one, two = collector.rows({("a", "s"): 1.5})
    assert (one.ours, one.paper, one.note) == ((1.0, 2.0), 1.5, "first")
    assert (two.ours, two.paper, two.note) == ((2.0, 3.0), None, "note 1 / note 2")
    assert collector.last("a", "s") == 2.0


def test_the_page_is_rebuilt_from_saved_results(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        f"before\n{render.BEGIN}\nthe last ones\n{render.END}\nafter\n", encoding="utf-8"
    )
    render.save(table(), tmp_path / "results")
    render.save(table(name="two", title="Another"), tmp_path / "results")
    for _ in range(2):  # a second time changes nothing
        render.main([str(tmp_path / "results"), str(page)])
        text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "the last ones" not in text
    assert text.index("### A title") < text.index("### Another")


def test_a_page_without_marks_is_refused(tmp_path):
    with pytest.raises(HeadstartError, match="marks"):
        render.rebuilt("no marks", "results")
    with pytest.raises(SystemExit):
        render.main(["one"])


def test_the_docs_show_the_saved_results():
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "reproduce.md").read_text(encoding="utf-8")
    assert render.rebuilt(page, render.render(docs / "results")) == page
    assert {table.name for table in render.saved(docs / "results")} <= set(catalogue())
    for name in catalogue():
        assert f"`{name}`" in page
