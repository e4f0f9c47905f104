"""What a page always says: what was compared, on what data and split, with which settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headstart.report.comparison_metrics import Entry, runs_of, varied
from headstart.report.comparison_table import Cell, Table
from headstart.report.format import MISSING, count, name, plain, settings, written
from headstart.results import Estimate, RunResult, SeedResult, SplitSummary

NAMED = 100  # signs of pipelines in a title
_FACTS = ("data", "partition", "held_out", "test_fraction", "matched", "shift", "augment")


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))


class ComparisonSummary(NamedTuple):
    """The texts of title and introduction; of results that differ, all of theirs."""

    pipelines: list[str]
    data: str
    samples: str
    tested: str
    clients: str
    split: str
    seeds: str

    @property
    def title(self) -> str:
        """Fed3R, Fed3R + FedAvg-30(ψ) on digits: 50 clients, Dirichlet 0.1, 5 seeds."""
        about = ", ".join(_once((self.clients, self.split, self.seeds)))
        return f"{', '.join(self.pipelines)} on {self.data}: {about}"


def compared(entries: Sequence[Entry]) -> ComparisonSummary:
    """Return what the report's opening says of all pipelines together."""

    def all_of(read: Callable[[SeedResult], str]) -> str:
        return " or ".join(_once(read(entry.first) for entry in entries))

    clients, seeds = all_of(lambda run: count(len(run.split.clients))), len(entries[0].result.runs)
    return ComparisonSummary(
        pipelines=_named([name(entry.label) for entry in entries]),
        data=all_of(lambda run: name(run.data.name, 60)),
        samples=all_of(lambda run: plain(run.data.samples)),
        tested=all_of(lambda run: plain(run.data.test or "")),
        clients=f"{clients} client{'s' * (clients != '1')}",
        split=all_of(lambda run: split_text(run.split)),
        seeds=f"{seeds} seeds" if seeds > 1 else "",
    )


def _named(labels: Sequence[str]) -> list[str]:
    """As many as a title can hold, and how many more there are."""
    ends = np.cumsum([len(label) + 2 for label in labels])
    shown = max(1, int((ends <= NAMED).sum()))
    more = len(labels) - shown
    return [*labels[:shown], *([f"{more} more pipeline{'s' * (more > 1)}"] if more else [])]


def split_text(split: SplitSummary) -> str:
    """Dirichlet 0.1; shards (shards_per_client 2); natural."""
    rest = {key: value for key, value in split.settings.items() if key != "clients"}
    if set(rest) == {"alpha"}:
        return f"{name(split.name, 40).capitalize()} {plain(rest['alpha'])}"
    settings_text = ", ".join(f"{name(key)} {plain(value)}" for key, value in rest.items())
    return name(split.name, 40) + (f" ({settings_text})" if settings_text else "")


def over_seeds(entries: Sequence[Entry]) -> str:
    """What the numbers of tables are, where there are seeds."""
    seeds, changed = len(entries[0].result.runs), ", ".join(varied(entries))
    about = f": {changed}" if changed else ""
    return f"Mean ± std over {seeds} seeds{about}." if seeds > 1 else ""


def best(
    entries: Sequence[Entry], read: Callable[[RunResult], Estimate | None]
) -> tuple[Entry, Estimate] | None:
    """Who has the highest value, and that."""
    values = ((entry, read(entry.result)) for entry in entries)
    present = [(entry, value) for entry, value in values if value is not None]
    return max(present, key=lambda pair: pair[1], default=None)


class Means(NamedTuple):
    """Key numbers of one result, means over its seeds."""

    balanced: Estimate | None
    pooled: Estimate | None
    upload: Estimate | None
    formula: Estimate | None
    samples: Estimate | None


def means(result: RunResult) -> Means:
    """Return the means over seeds that the report's opening cites."""
    return Means(
        result.over_seeds(lambda run: run.balanced_accuracy),
        result.pooled_accuracy,
        result.over_seeds(lambda run: run.head.bytes_per_client if run.head else None),
        result.over_seeds(lambda run: run.head.formula_bytes_per_client if run.head else None),
        result.over_seeds(lambda run: run.data.samples),
    )


# -- facts -----------------------------------------------------------------------------------------


def facts(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    """Terms and what is to be said of them; where results differ, of which."""
    reads: dict[str, Callable[[Entry], str]] = {
        "Data": _data,
        "SHA-256 of the clients' samples": _digest,
        "SHA-256 of the uploads' total": lambda entry: _total(entry.first),
        "Split": lambda entry: _split(entry.first.split),
        "Held out": lambda entry: _held_out(entry.first),
        "Images": lambda entry: _images(entry.first),
        "Seed": lambda entry: _seeds(entry.result.seeds, varied(entries)),
    }
    stated = []
    for term, read in reads.items():
        labels: dict[str, list[str]] = {}
        for entry in entries:
            labels.setdefault(read(entry), []).append(name(entry.label))
        several = len(labels) > 1
        labels.pop("", None)
        texts = [text + f" ({', '.join(names)})" * several for text, names in labels.items()]
        stated += [(term, texts)] if texts else []
    notes = _once(note for run in runs_of(entries) for note in run.notes)
    return [*stated, *([("To note", notes)] if notes else [])]


def _data(entry: Entry) -> str:
    data = entry.first.data
    samples = written(entry.result.over_seeds(lambda run: run.data.samples), count)
    tests = written(entry.result.over_seeds(lambda run: run.data.test), count)
    return (
        f"{name(data.name, 60)}: {samples} training samples, {tests} test samples, "
        f"{plain(len(data.classes))} classes, dimension {plain(data.dimension)}"
    )


def _digest(entry: Entry) -> str:
    digests = _once(run.data.digest for run in entry.result.runs)
    if len(digests) > 1:
        return f"{digests[0]} (seed {entry.first.seed}; with other seeds another)"
    return "".join(digests)


def _total(run: SeedResult) -> str:
    """Where there are no pooled data whose total it could be compared with."""
    return run.head.digest if run.head and not (run.pooled and run.pooled.digest) else ""


def _split(split: SplitSummary) -> str:
    return f"{name(split.name)}: {settings({'clients': len(split.clients), **split.settings})}"


def _held_out(run: SeedResult) -> str:
    parts, share = [], run.split.test_fraction
    if run.data.test:
        of = "the data's own test part" if share is None else f"{share:.3g} of the data"
        parts.append(f"{plain(run.data.test)} test samples that no client holds ({of})")
    if run.settings.get("matched"):
        parts.append("each client is tested on outside samples of its own class frequencies")
    if run.split.held_out:
        parts.append(f"{run.split.held_out:.3g} of each client's samples, to test it on")
    return "; ".join(parts) or "nothing"


def _images(run: SeedResult) -> str:
    parts = []
    if run.data.shift is not None:
        parts.append(
            f"Images are shifted by δ = {plain(run.data.shift)}: clients, and test images, fall "
            "into three groups in which red, green or blue is that much stronger."
        )
    names = (run.data.augment or "").split(", ")
    if "fedrdn" in names:
        parts.append("FedRDN normalizes training images with the channels of a random client.")
    others = [name for name in names if name not in ("", "fedrdn")]
    if others:
        parts.append(f"Training images are augmented: {', '.join(others)}.")
    return " ".join(parts)


def _seeds(seeds: Sequence[int], changed: Sequence[str]) -> str:
    numbers = ", ".join(map(str, seeds))
    return (
        f"{numbers}; each changes {', '.join(changed)}" if changed and len(seeds) > 1 else numbers
    )


# -- settings --------------------------------------------------------------------------------------


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if value in (None, [], "") or key in _FACTS:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", plain(value)


def common(entries: Sequence[Entry]) -> str:
    """The settings that all share, on one line."""
    each = [dict(_flat(entry.first.settings)) for entry in entries]
    return settings({k: v for k, v in each[0].items() if all(other.get(k) == v for other in each)})


def differing(entries: Sequence[Entry]) -> Table | None:
    """Every setting in which results differ, the settings of their heads and what was solved."""
    each = [dict(_flat(entry.first.settings)) for entry in entries]
    keys = _once(key for values in each for key in values)
    keys = [key for key in keys if len({values.get(key) for values in each}) > 1]
    rows, headed = [], any(entry.first.head for entry in entries)
    for entry, entry_settings in zip(entries, each, strict=True):
        texts, head = [entry_settings.get(key, MISSING) for key in keys], entry.first.head
        if headed:
            settings_of = (head.settings, head.solved) if head else ({}, {})
            texts += [settings(values) or MISSING for values in settings_of]
        rows.append((entry.label, [Cell(text) for text in texts]))
    header = [*keys, *(["settings of the head", "solved"] if headed else [])]
    return Table("Pipeline", header, rows) if header else None


def footer(entries: Sequence[Entry]) -> str:
    """Return the version and the date of the newest run."""
    run = max(runs_of(entries), key=lambda run: run.created)
    text = f"Headstart {name(run.version, 40)}".strip()
    return f"{text}, results of {name(run.created, 40)}." if run.created else f"{text}."
