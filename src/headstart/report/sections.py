"""The tables of a page's sections, each from the results alone; None where there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart.evaluate import Scores
from headstart.privacy.accountant import composed, epsilon_of
from headstart.report.comparison_metrics import Entry, OwnModel, Read, paired
from headstart.report.comparison_table import Cell, Table
from headstart.report.figures import CELLS, COLUMNS, LINES, group
from headstart.report.format import MISSING, count, name, percent, plain, points, written
from headstart.results import Confusion, Estimate, LastEvaluations, SeedResult

_SPREAD = ("mean", "std", "min", "max")


def _texts(*values: str) -> list[Cell]:
    return [Cell(value) for value in values]


def paired_table(entries: Sequence[Entry]) -> Table | None:
    """Every pipeline against the first, seed by seed."""
    reads: dict[str, Read] = {
        "mIoU": lambda run: run.mean_iou,
        "Accuracy": lambda run: run.accuracy,
        "Personal accuracy": lambda run: run.personal_accuracy,
    }
    groups = []
    rows: list[tuple[str, list[Cell]]] = [(entry.label, []) for entry in entries[1:]]
    for title, read in reads.items():
        gaps = [paired(entries[0].result, entry.result, read) for entry in entries[1:]]
        if not any(gap is not None for gap in gaps):
            continue
        groups.append((title, 2))
        for (_, cells), gap in zip(rows, gaps, strict=True):
            if gap is None:
                cells += _texts(MISSING, MISSING)
            else:
                better = sum(value > 0 for value in gap.values)
                cells += _texts(points(gap, gap.std), f"{better} of {len(gap.values)}")
    header = ["points", "seeds better"] * len(groups)
    return Table("Pipeline", header, rows, groups) if groups else None


def own_table(models: Sequence[OwnModel]) -> Table | None:
    """Own models against the shared one: means, who gains and who loses, and by how much."""
    rows = [(model.label, _own_cells(model)) for model in models]
    groups = [("Mean accuracy", 3), ("Clients that", 3), ("Points, over clients", 4)]
    header = ["shared", "own", "own, plain", "gain", "same", "lose", "worst", "10%", "median"]
    return Table("Model", [*header, "90%"], rows, groups) if rows else None


def _own_cells(row: OwnModel) -> list[Cell]:
    model = row.model
    means = (
        row.over_seeds(lambda personal: personal.weighted("global")),
        row.over_seeds(lambda personal: personal.weighted(model)),
        row.over_seeds(lambda personal: personal.mean(model)),
    )
    moved = (
        row.over_seeds(lambda personal: float((personal.change(model) > 0).sum())),
        row.over_seeds(lambda personal: float((personal.change(model) == 0).sum())),
        row.over_seeds(lambda personal: float((personal.change(model) < 0).sum())),
    )
    spread = np.quantile(row.change, (0, 0.1, 0.5, 0.9)).tolist()
    return _texts(
        *(written(value, percent) for value in means),
        *(written(value, count) for value in moved),
        *map(points, spread),
    )


def ridge_table(entries: Sequence[Entry]) -> Table | None:
    """Return the table of λ chosen by GCV, or None if no head has a path."""
    rows = []
    for entry in entries:
        head = entry.first.head
        if head is not None and head.path is not None:
            score, freedom = min(zip(head.path.scores, head.path.freedom, strict=True))
            values = (head.path.best, head.solved.get("ridge"), score, freedom)
            rows.append((entry.label, _texts(*map(plain, values))))
    header = ["λ of the lowest score", "λ used", "lowest score", "degrees of freedom there"]
    return Table("Pipeline", header, rows) if rows else None


class PixelTable(NamedTuple):
    """Tests of dense networks on masks, and which evaluations the means of their curves are of."""

    table: Table
    last: list[tuple[str, str]]


def pixel_table(entries: Sequence[Entry]) -> PixelTable | None:
    """Each pipeline by each statistics that it was tested with, on what is seen and is not."""
    rows: list[tuple[str, list[Cell]]] = []
    last: list[tuple[str, str]] = []
    for entry in entries:
        for inference in dict.fromkeys(row.inference for row in entry.first.pixels):
            cells = []
            for test in ("unseen", "seen"):
                values = [_pixel(entry, test, inference, key) for key in ("mean_iou", "accuracy")]
                cells += [Cell(written(value, percent)) for value in values]
            rows.append((f"{entry.label}: {inference}", cells))
        for test in ("unseen", "seen"):
            told = entry.first.last_evaluations(test)
            if told is not None and entry.first.pixels:
                seed = f", seed {entry.first.seed}" if len(entry.result.runs) > 1 else ""
                last.append((f"{entry.label}, {test}{seed}", _over_last(told)))
    groups = [("Unseen", 2), ("Seen by clients", 2)]
    header = ["mIoU", "pixel accuracy"] * 2
    return (
        PixelTable(Table("Statistics of batch norm", header, rows, groups), last) if rows else None
    )


def _pixel(entry: Entry, test: str, inference: str, key: str) -> Estimate | None:
    def read(run: SeedResult) -> float | None:
        found = run.pixel_scores(test, inference)
        return None if found is None else float(getattr(found, key))

    return entry.result.over_seeds(read)


def _over_last(found: LastEvaluations) -> str:
    rounds = f"rounds {found.first} to {found.last}" if found.count > 1 else f"round {found.last}"
    many = f"{found.count} evaluations, {rounds}" if found.count > 1 else rounds
    return f"{percent(found.mean)} ± {percent(found.deviation)} ({many})"


# -- errors ----------------------------------------------------------------------------------------


def confusion_of(entries: Sequence[Entry]) -> tuple[Entry, Confusion] | None:
    """Of the first that has one; over seeds, where they have the same classes, the sum."""
    for entry in entries:
        matrices = [run.confusion for run in entry.result.runs if run.confusion]
        alike = [matrix for matrix in matrices if matrix.classes == matrices[0].classes]
        if alike:
            total = np.sum([matrix.matrix for matrix in alike], axis=0).tolist()
            return entry, Confusion(matrices[0].classes, tuple(map(tuple, total)))
    return None


class Errors(NamedTuple):
    """Whose errors, how many classes a cell adds up, and the most frequent mistakes."""

    label: str
    step: int
    pairs: Table


def errors(entries: Sequence[Entry]) -> Errors | None:
    """Return the commonest mistakes, or None without a confusion matrix."""
    total = confusion_of(entries)
    if total is None:
        return None
    entry, confusion = total
    scores = Scores(np.array(confusion.classes), np.array(confusion.matrix))
    rows = [
        (
            f"{name(mistake.true, 40)} → {name(mistake.predicted, 40)}",
            _texts(plain(mistake.samples), percent(mistake.share)),
        )
        for mistake in scores.worst_pairs(10)
    ]
    pairs = Table("True → predicted", ["samples", "of the class"], rows)
    return Errors(entry.label, group(len(confusion.classes), CELLS), pairs)


# -- who holds what --------------------------------------------------------------------------------


class Holdings(NamedTuple):
    """A split: single numbers, those of one quantity (x_mean, x_min …) on one line each, and what
    was gathered to fit the heat map."""

    name: str
    single: list[tuple[str, float]]
    spread: Table | None
    gathered: str


def holdings(run: SeedResult) -> Holdings:
    """Return the heterogeneity of a run's split as tables."""
    single: list[tuple[str, float]] = []
    spread: dict[str, dict[str, float]] = {}
    for label, value in run.split.summary.items():
        stem, _, kind = label.rpartition("_")
        if stem and kind in _SPREAD:
            spread.setdefault(stem.replace("_", " "), {})[kind] = value
        else:
            single.append((label.replace("_", " "), value))
    rows = [
        (stem, _texts(*(plain(of.get(kind)) for kind in _SPREAD))) for stem, of in spread.items()
    ]
    table = Table("", _SPREAD, rows) if rows else None
    return Holdings(run.split.name, single, table, _gathered(run.split.counts or ()))


def _gathered(counts: Sequence[Sequence[int]]) -> str:
    steps = {
        "clients": group(len(counts), COLUMNS),
        "classes": group(len(counts[0]) if counts else 0, LINES),
    }
    return " by ".join(f"{step} {what}" for what, step in steps.items() if step > 1)


# -- what was sent ---------------------------------------------------------------------------------


class Bits(NamedTuple):
    """The digests of a pipeline's total and of pooled data's."""

    label: str
    federated: str
    pooled: str

    @property
    def same(self) -> bool:
        return self.federated == self.pooled


def same_bits(entries: Sequence[Entry]) -> list[Bits]:
    """Those that differ, of all seeds; where none does, those of the first seed."""
    compared = [
        (run is entry.first, Bits(entry.label, run.head.digest, run.pooled.digest))
        for entry in entries
        for run in entry.result.runs
        if run.head and run.pooled and run.head.digest and run.pooled.digest
    ]
    return [bits for _, bits in compared if not bits.same] or [
        bits for first, bits in compared if first
    ]


class Promise(NamedTuple):
    """What differential privacy promises of a pipeline's head, fact by fact."""

    label: str
    facts: tuple[tuple[str, str], ...]


def promises(entries: Sequence[Entry]) -> list[Promise]:
    """Of every private pipeline, its first seed's; and what all releases over the data spent."""
    private = ((entry.label, entry.first.privacy) for entry in entries)
    found = [Promise(label, privacy.facts) for label, privacy in private if privacy]
    runs = (run.privacy for entry in entries for run in entry.result.runs)
    releases = [privacy for privacy in runs if privacy]
    if len(releases) < 2:
        return found
    delta = max(privacy.delta for privacy in releases)
    epsilon = epsilon_of(composed(privacy.spent_mu for privacy in releases), delta)
    spent = f"{len(releases)} releases over the same data: ε = {epsilon:.4g} at δ = {delta:g}"
    return [*found, Promise("All of them", (("Spent together", spent),))]


class DisclosureCount(NamedTuple):
    """Of how many clients something can be read, and of which share of all."""

    what: str
    clients: Estimate
    share: float | None


def reveals(entries: Sequence[Entry]) -> list[DisclosureCount]:
    """What messages say more than a client may wish, of the first result that knows."""
    entry = next((entry for entry in entries if entry.first.reveals), None)
    counts = []
    for key in entry.first.reveals if entry else ():
        clients, every = (
            Estimate(run.reveals.get(kind, 0) for run in entry.result.runs)  # type: ignore[union-attr]
            for kind in (key, "clients")
        )
        share = clients / every if every and key != "clients" else None
        counts.append(DisclosureCount(name(key).capitalize(), clients, share))
    return counts
