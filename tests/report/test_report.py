"""The report: self-contained, safe, tolerant, small, and the same bytes every time."""

from __future__ import annotations

import copy
import itertools
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headstart.report.html import page
from headstart.report.places import Box, place
from headstart.report.values import plain, points, round_size, short, size

from headstart.report import write_report
from headstart.report.axis import whole

SECTIONS = (
    "As clients arrive",
    "Methods and their cost",
    "Who holds what",
    "The choice of λ",
    "Where it errs",
    "Personal heads",
    "The same bits",
    "What these statistics reveal",
    "How it was run",
)
PERSONAL = ("global", "oll", "prior", "ridge")
HOSTILE = '<script>alert("x")</script> & $x^$ \' \x00\ud800 猫'


def make_head(name: str, accuracy: float, main: bool = False, clients: int = 6) -> dict[str, Any]:
    curve = [
        {"clients": k, "accuracy": accuracy * k / clients, "bytes": 900 * k, "classes": min(k, 3)}
        for k in range(1, clients + 1)
    ]
    ridges = np.logspace(-3, 3, 9)
    path = {
        "ridges": ridges.tolist(),
        "scores": (0.2 + np.log10(ridges) ** 2 / 40).tolist(),
        "freedom": (4 / (1 + ridges)).tolist(),
        "best": 1.0,
    }
    spread = {"0": -0.031, "0.1": 0.0, "0.25": 0.0, "0.5": 0.01, "0.75": 0.1, "0.9": 0.2, "1": 0.3}
    change = {"gain": 17, "lose": 2, "same": 1, "quantiles": spread}
    return {
        "name": name.lower(),
        "title": name,
        "settings": {"ridge": "gcv", "normalize": True, "noise": None},
        "solved": {"ridge": 1.0},
        "main": main,
        "accuracy": accuracy,
        "balanced_accuracy": accuracy - 0.01,
        "personal": dict(zip(PERSONAL, accuracy + np.arange(4) / 100, strict=True)),
        "personal_mean": dict.fromkeys(PERSONAL, accuracy - 0.05),
        "personal_change": dict.fromkeys(PERSONAL[1:], change),
        "bytes_per_client": 900.0,
        "formula_bytes_per_client": 1800.0,
        "seconds": 0.4,
        "pooled_accuracy": accuracy,
        "curve": curve,
        "path": path if main else None,
    }


def make_client(k: int) -> dict[str, Any]:
    tested = k % 3
    own = dict(zip(PERSONAL, (0.5, 0.75, 1.0, 1.0), strict=True)) if tested else None
    return {
        "client": f"c{k:02d}",
        "samples": 5 + k,
        "classes": 2,
        "bytes": 800 + 50 * k,
        "formula_bytes": 1800,
        "tested": tested,
        "personal": own,
    }


def make_results(clients: int = 6, classes: tuple[str, ...] = ("a", "b", "c")) -> dict[str, Any]:
    names = [f"c{k:02d}" for k in range(clients)]
    counts = [[(k * c) % 4 for c in range(len(classes))] for k in range(clients)]
    counts[0][0] = 7
    return {
        "headstart": "0.1.0",
        "created": "2026-11-15T21:00:00+00:00",
        "title": "toy, six clients",
        "data": {
            "name": "toy",
            "samples": 40,
            "test": 20,
            "dimension": 4,
            "classes": list(classes),
        },
        "partition": {
            "name": "dirichlet",
            "settings": {"clients": clients, "alpha": 0.1},
            "summary": {"clients": clients, "size_mean": 6.5, "size_max": 11},
        },
        "heatmap": {"clients": names, "classes": list(classes), "counts": counts},
        "clients": [make_client(k) for k in range(clients)],
        "heads": [
            make_head("Fed3R", 0.9, main=True, clients=clients),
            make_head("FedNCM", 0.8, clients=clients),
        ],
        "confusion": {
            "classes": list(classes),
            "matrix": (5 * np.eye(len(classes), dtype=int) + 1).tolist(),
        },
        "worst_pairs": [{"true": "a", "predicted": "b", "count": 1, "share": 0.14}],
        "exact": {"federated_digest": "ab" * 32, "pooled_digest": "ab" * 32, "same": True},
        "reveals": {"clients": clients, "under 10 samples": 5},
    }


class Outline(HTMLParser):
    """Tags, ids and references of a page; complains when tags do not match."""

    VOID = frozenset(("meta", "br"))

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and (value or "").startswith("#"):
                self.references.append((value or "")[1:])
            self.references += re.findall(r"url\(#([^)]+)\)", value or "")
            assert not name.startswith("on")


def without_images(source: str) -> str:
    return re.sub(r"data:image/png;base64,[A-Za-z0-9+/= ]+", "", source)


def check(source: str) -> Outline:
    """What holds for every page; gives its outline."""
    assert not re.search(r"https?://|//[a-z]+\.|@import", without_images(source))
    assert not re.search(r"\b(nan|inf|infinity)\b", without_images(source), re.IGNORECASE)
    outline = Outline(source)
    assert not {"script", "link", "iframe", "object", "img"} & set(outline.tags)
    assert len(outline.ids) == len(set(outline.ids))
    assert set(outline.references) <= set(outline.ids)
    return outline


@pytest.fixture(scope="module")
def full() -> str:
    return page(make_results())


def test_page_is_whole_and_self_contained(full: str) -> None:
    outline = check(full)
    assert outline.tags.count("svg") == 8
    for title in SECTIONS:
        assert f"<h2>{title}</h2>" in full
    assert "<title>toy, six clients</title>" in full
    assert "Fed3R classifies 90.0% of 20 test samples correctly" in full
    assert full.count("ab" * 32) == 2
    assert "mathdefault" not in full


def test_who_loses_is_told(full: str) -> None:
    assert "Who gains, who loses" in full
    line = full[full.index('<tr><th scope="row">residual ridge</th><td>17</td>') :]
    cells = re.findall(r"<td>(.*?)</td>", line[: line.index("</tr>")])
    assert cells == ["17", "1", "2", "−3.1", "±0.0", "+1.0", "+20.0"]
    older = make_results()
    for head in older["heads"]:
        del head["personal_change"], head["personal_mean"], head["personal"]["ridge"]
    source = page(older)
    check(source)
    assert "Who gains" not in source
    assert "local prior; global 90.0%" in source


def test_file_is_the_same_bytes_again(full: str, tmp_path: Path) -> None:
    results = make_results()
    before = copy.deepcopy(results)
    write_report(results, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == full.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert results == before


def test_hostile_names_stay_text() -> None:
    results = make_results(classes=(HOSTILE, "b", "c"))
    results["title"] = results["headstart"] = HOSTILE
    results["heads"][0]["title"] = results["partition"]["name"] = HOSTILE
    results["heads"][0]["settings"] = {HOSTILE: HOSTILE}
    results["worst_pairs"][0]["true"] = results["clients"][0]["client"] = HOSTILE
    results["reveals"][HOSTILE] = 1
    results["exact"]["federated_digest"] = HOSTILE
    source = page(results)
    source.encode()
    check(source)
    assert "&lt;script&gt;" in source
    assert "\x00" not in source


def test_what_is_missing_is_left_out() -> None:
    assert not any(title in page({}) for title in SECTIONS)
    check(page({}))
    results = {**dict.fromkeys(make_results()), "title": "only a title"}
    assert not any(title in page(results) for title in SECTIONS)
    check(page({"heads": [{"name": "bare"}], "clients": [{}], "confusion": {}}))


@pytest.mark.parametrize(
    ("key", "title", "figures"),
    [
        ("exact", "The same bits", 0),
        ("reveals", "What these statistics reveal", 0),
        ("partition", "Who holds what", 0),
        ("worst_pairs", "Where it errs", 0),
        ("confusion", "Where it errs", 1),
        ("heatmap", "Who holds what", 1),
    ],
)
def test_a_part_brings_its_section(key: str, title: str, figures: int) -> None:
    source = page({key: make_results()[key]})
    assert check(source).tags.count("svg") == figures
    assert [name for name in SECTIONS if f"<h2>{name}</h2>" in source] == [title]


def test_one_client_one_class_one_head() -> None:
    results = make_results(clients=1, classes=("only",))
    results["heads"] = results["heads"][:1]
    results["clients"][0]["personal"] = {"global": 1.0, "oll": 1.0, "prior": 1.0}
    results["heads"][0]["accuracy"] = results["heads"][0]["pooled_accuracy"] = 1.0
    results["heads"][0]["curve"][0]["accuracy"] = 1.0
    source = page(results)
    assert check(source).tags.count("svg") == 8
    assert "one message from 1 client," in source


def test_numbers_that_are_none_are_dashes() -> None:
    results = make_results()
    head, clients = results["heads"][1], results["clients"]
    head.update(accuracy=math.nan, bytes_per_client=math.inf, personal={"global": math.nan})
    for at, value in enumerate((math.nan, math.inf, None)):
        head["curve"][at]["accuracy"] = value
        results["heads"][0]["path"]["scores"][at] = value
        clients[at].update(bytes=value, formula_bytes=value, personal={"global": value})
    results["heatmap"]["counts"][1][1] = math.nan
    results["partition"]["summary"]["size_mean"] = math.nan
    results["worst_pairs"][0]["share"] = math.inf
    source = page(results)
    check(source)
    assert "<td>–</td>" in source


def test_thousands_of_clients_stay_small() -> None:
    clients, classes = 3000, 500
    rng = np.random.default_rng(0)
    results = make_results(clients=3, classes=("a",))
    names = [f"class {c}" for c in range(classes)]
    counts = rng.poisson(0.2, (clients, classes)).tolist()
    results["heatmap"] = {"clients": names, "classes": names, "counts": counts}
    results["clients"] = [make_client(k) for k in range(clients)]
    results["heads"] = [make_head("Fed3R", 0.9, main=True, clients=clients)]
    matrix = rng.poisson(0.1, (classes, classes)).tolist()
    results["confusion"] = {"classes": names, "matrix": matrix}
    source = page(results)
    check(source)
    assert len(source.encode()) < 2_000_000
    assert "each cell adds up 10 clients by 5 classes" in source
    assert "each cell adds up 2 by 2 classes" in source
    assert "class 250" not in source


def test_digests_that_differ_are_told() -> None:
    exact = {"federated_digest": "ab" * 32, "pooled_digest": "cd" * 32, "same": False}
    source = page({"exact": exact})
    assert "Not the same bits" in source
    assert "cd" * 32 in source


def test_labels_find_free_places() -> None:
    rng = np.random.default_rng(0)
    spots = [(float(x), float(y)) for x, y in rng.uniform(150, 250, (10, 2))]
    frame = Box(0, 0, 400, 250)
    boxes = place(spots, [(70.0, 12.0)] * len(spots), frame)
    assert all(one.common(other) == 0 for one, other in itertools.combinations(boxes, 2))
    for box in boxes:
        assert frame.common(box) == pytest.approx(70 * 12)
        assert not any(box.left < x < box.right and box.bottom < y < box.top for x, y in spots)


def test_values_read_well() -> None:
    assert [size(n) for n in (0, 12, 999.6, 7336, 11000, 123456, 5e9)] == [
        "0 B", "12 B", "1.00 kB", "7.34 kB", "11.0 kB", "123 kB", "5.00 GB",
    ]  # fmt: skip
    assert round_size(20000) == "20 kB"
    assert plain(1437) == "1,437"
    assert plain(0.00027) == "2.70 × 10⁻⁴"
    assert plain(None) == plain(math.nan) == "–"
    assert plain(True) == "yes"
    assert short(2.8345) == "2.83"
    assert (points(0.014), points(-0.0101), points(0.0)) == (
        "+1.4 points", "−1.0 points", "±0.0 points",
    )  # fmt: skip


def run_alone(code: str) -> None:
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_import_leaves_matplotlib_alone() -> None:
    run_alone("import sys, headstart.report; sys.exit('matplotlib' in sys.modules)")


def test_no_pyplot_is_needed() -> None:
    run_alone(
        "import sys; from headstart.report.html import page\n"
        "page({'confusion': {'classes': ['a'], 'matrix': [[1]]}})\n"
        "sys.exit('matplotlib' not in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    )


def test_settings_of_matplotlib_are_left_as_they_were() -> None:
    import matplotlib

    def settings() -> dict[str, Any]:
        return {key: matplotlib.rcParams[key] for key in ("svg.hashsalt", "font.size", "axes.grid")}

    before = settings()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False}):
        changed = page({"heatmap": make_results()["heatmap"]})
    assert changed == page({"heatmap": make_results()["heatmap"]})
    assert settings() == before


@pytest.mark.parametrize("rounds", [[1], [3, 3], [1, 2], [0, 50], [1, 12_000]])
def test_an_axis_of_rounds_says_each_whole_number_once(rounds: list[int]) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.plot(rounds, rounds)
    whole(axes.xaxis)
    at = axes.get_xticks()
    said = axes.xaxis.get_major_formatter().format_ticks(at)
    shown = [int(text.replace(",", "")) for text in said if text]
    assert shown == [value for value in at.tolist() if value == int(value)]
    assert len(set(shown)) == len(shown) >= 1
