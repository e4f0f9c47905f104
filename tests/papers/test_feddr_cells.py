"""The cells of FedDr+'s tables: which there are, and what they are run with."""

from __future__ import annotations

import pytest

from headstart import HeadstartError
from headstart.papers import feddr_paper as paper
from headstart.papers import feddr_table5
from headstart.papers.feddr_figure7 import figure_cells
from headstart.papers.feddr_grid import Schedule, run_grid
from headstart.pipeline.config import parsed

from .feddr_runs import SHORT, settings, table_2


def table_5(split, clients, cohort, **settings):
    return feddr_table5.table_cells(feddr_table5.Settings(**settings), split, clients, cohort)


def test_table_2_is_six_algorithms_by_seven_terms_with_the_betas_of_table_12():
    for split in paper.SPLITS:
        cells = table_2(split)
        assert len(cells) == 42 == len({cell.folder for cell in cells})
        found = {(cell.row, cell.column): cell for cell in cells}
        plus = parsed(found["Dot-Regression", "fd"].pipeline).phases[1]
        assert (plus.name, plus.rounds) == ("dot-regression", 320)
        assert plus.settings["mix"] == 0.9
        assert plus.settings["lr"] == 5.0
        assert plus.settings["drops"] == "160,240"
        base = parsed(found["SphereFed", "none"].pipeline)
        assert base.init.name == "orthonormal"
        assert "mix" not in base.phases[1].settings
    shards = {(c.row, c.column): c for c in table_2()}
    assert shards["Dot-Regression", "fd"].paper == 48.69
    assert parsed(shards["FedETF", "moon"].pipeline).phases[1].settings["mix"] == 0.3
    nines = {(c.row, c.column): c for c in table_2("dirichlet", beta=0.9)}
    assert nines["SphereFed", "prox"].paper == 1.46
    assert parsed(nines["FedAvg", "kd"].pipeline).phases[1].settings["mix"] == 0.9
    assert all(cell.paper is None for cell in table_2(beta=0.3))


def test_what_no_table_has_is_named():
    with pytest.raises(HeadstartError, match=r"algorithms: expected .*, got 'FedSGD'"):
        table_2(algorithms=["FedSGD"])
    with pytest.raises(HeadstartError, match=r"terms: expected one of none, prox, .*, got 'l2'"):
        table_2(terms="none,l2")


def test_the_usual_setting_of_the_sensitivity_study_is_one_run():
    cells = figure_cells(Schedule(**SHORT), 100, 10)
    assert len({cell.folder for cell in cells}) == len(cells) == 4 * 4 + 4 * 4 + 7
    usual = {str(parsed(c.pipeline)) for c in cells if c.row == "FedDr+" and c.column == "0.9"}
    ratio = {str(parsed(c.pipeline)) for c in cells if c.row == "FedDr+" and c.column == "0.1"}
    assert usual & ratio
    few = figure_cells(Schedule(**SHORT), 4, 3)
    ratios = [c for c in few if c.row == "FedAvg" and c.table == "client ratio"]
    assert [c.column for c in ratios] == ["0.05", "0.5"]  # one client, or two
    others = [parsed(c.pipeline).phases[1] for c in few if c.table != "client ratio"]
    assert all(phase.settings["clients"] == 3 for phase in others)


def test_every_pipeline_of_the_personal_tables_is_one():
    cells = table_5("dirichlet", 100, 10)
    assert len({cell.folder for cell in cells}) == len(cells) == 16
    found = {cell.row: parsed(cell.pipeline) for cell in cells}
    assert found["FedDr+FT (DR)"].phases[2].settings["like"] == "dot-regression"
    assert found["FedDr+FT (DR)"].phases[2].settings["lr"] == pytest.approx(0.05)
    assert found["Local only (CE)"].phases[1].rounds == 32
    assert {cell.row: cell.paper for cell in cells}["FedDr+FT (Dr+)"] == 74.75
    assert found["Local only (DR)"].phases[1].settings["lr"] == 5.0
    assert found["Local only (CE)"].phases[1].settings["lr"] == 0.1
    assert found["FedAvg-FT"].phases[2].settings["momentum"] == 0.9
    fifth = {c.row: parsed(c.pipeline) for c in table_5("shards", 100, 50, **SHORT)}
    assert fifth["Local only (CE)"].phases[1].rounds == 1


@pytest.mark.parametrize(
    ("rounds", "drops"), [(1, None), (2, "1"), (3, "1,2"), (4, "2,3"), (320, "160,240")]
)
def test_the_rate_drops_within_the_rounds_and_not_twice_at_once(rounds, drops):
    text = f"none + {Schedule(rounds).phrase('fedavg')}"
    assert str(parsed(text).phases[1].settings.get("drops", "None")) == str(drops)


def test_a_rate_of_nothing_is_no_rate(pictures, tmp_path):
    cells = table_2(rounds=2, lr=0.0, algorithms="fedavg", terms=["FD"])
    assert [(cell.row, cell.column) for cell in cells] == [("FedAvg", "fd")]
    with pytest.raises(HeadstartError, match=r"rate: expected .*, got 0"):
        run_grid(cells, settings(pictures), tmp_path, "A grid")
    with pytest.raises(HeadstartError, match="beta: expected"):
        table_2(beta=1.5)
