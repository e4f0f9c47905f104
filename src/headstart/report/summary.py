"""What a page says first: what was compared, on what, how it ended, and the key numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headstart.report.comparison_metrics import (
    MODELS,
    Entry,
    OwnModel,
    accuracies,
    cheapest,
    runs_of,
    trained,
    varied,
)
from headstart.report.comparison_table import Cell, Table
from headstart.report.format import (
    MISSING,
    count,
    flops,
    name,
    percent,
    plain,
    points,
    settings,
    size,
    written,
)
from headstart.results import Estimate, RunResult, SeedResult, SplitSummary

NAMED = 3  # pipelines in a title
SAID = ("data", "partition", "held_out", "test_fraction", "matched", "shift", "augment")


class Tile(NamedTuple):
    """A key number: what it is, its value, and a note that puts it in its place."""

    label: str
    value: str
    note: str = ""


# -- what was compared -----------------------------------------------------------------------------


def title(entries: Sequence[Entry]) -> str:
    """Fed3R, Fed3R + FedAvg-30(ψ) on digits: 50 clients, Dirichlet 0.1, 5 seeds."""
    seeds = len(entries[0].result.runs)
    about = [_clients(entries), *_once(split_words(e.first.split) for e in entries)]
    about += [f"{seeds} seeds"] if seeds > 1 else []
    return f"{', '.join(_named(entries))} on {_data(entries)}: {', '.join(about)}"


def compared(entries: Sequence[Entry]) -> str:
    """The first sentence: pipelines, data, clients, split, and what is tested on."""
    *others, last = _named(entries)
    who = f"{', '.join(others)} and {last}" if others else last
    samples = "/".join(_once(plain(entry.first.data.samples) for entry in entries))
    split = " or ".join(_once(split_words(entry.first.split) for entry in entries))
    words = f"{who} on {_data(entries)}: {samples} samples at {_clients(entries)} ({split})"
    tested = _once(plain(e.first.data.test) for e in entries if e.first.data.test)
    if tested:
        words += f", tested on {'/'.join(tested)} samples that no client holds"
    return f"{words}."


def _named(entries: Sequence[Entry]) -> list[str]:
    labels = [name(entry.label) for entry in entries]
    if len(labels) <= NAMED:
        return labels
    return [*labels[: NAMED - 1], f"{len(labels) - NAMED + 1} more pipelines"]


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _data(entries: Sequence[Entry]) -> str:
    return " and ".join(_once(name(entry.first.data.name, 60) for entry in entries))


def _clients(entries: Sequence[Entry]) -> str:
    counts = _once(count(len(entry.first.split.clients)) for entry in entries)
    return f"{' or '.join(counts)} client{'s' * (counts != ['1'])}"


def split_words(split: SplitSummary) -> str:
    """Dirichlet 0.1; shards (shards_per_client 2); natural."""
    rest = {key: value for key, value in split.settings.items() if key != "clients"}
    title = name(split.name, 40)
    if set(rest) == {"alpha"}:
        return f"{title.capitalize()} {plain(rest['alpha'])}"
    said = ", ".join(f"{name(key)} {plain(value)}" for key, value in rest.items())
    return f"{title} ({said})" if said else title


def over_seeds(entries: Sequence[Entry]) -> str:
    """What the numbers of tables are, where there are seeds."""
    seeds = len(entries[0].result.runs)
    if seeds < 2:
        return ""
    changed = ", ".join(varied(entries))
    return f"Mean ± std over {seeds} seeds{changed and f': {changed}'}."


def facts(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    """What every page must say: data, digest, split, what was held out, seeds."""
    known: dict[str, Callable[[Entry], str]] = {
        "Data": _data_words,
        "SHA-256 of the clients' samples": _digest_words,
        "SHA-256 of the uploads' total": lambda entry: _total(entry.first),
        "Split": _split_fact,
        "Held out": lambda entry: _held_out(entry.first),
        "Images": lambda entry: _images(entry.first),
        "Seed": _seed_words,
    }
    found = []
    for term, read in known.items():
        labels: dict[str, list[str]] = {}
        for entry in entries:
            labels.setdefault(read(entry), []).append(name(entry.label))
        labels.pop("", None)
        of_all = len(labels) == 1
        texts = [text if of_all else f"{text} ({', '.join(own)})" for text, own in labels.items()]
        if texts:
            found.append((term, texts))
    return found


def _data_words(entry: Entry) -> str:
    data = entry.first.data
    sizes = entry.result.over_seeds(lambda run: run.data.samples)
    tests = entry.result.over_seeds(lambda run: run.data.test)
    return (
        f"{name(data.name, 60)}: {written(sizes, count)} training samples, {written(tests, count)} "
        f"test samples, {plain(len(data.classes))} classes, dimension {plain(data.dimension)}"
    )


def _digest_words(entry: Entry) -> str:
    digests = _once(run.data.digest for run in entry.result.runs)
    return digests[0] + (f" (seed {entry.first.seed}; others differ)" if len(digests) > 1 else "")


def _total(run: SeedResult) -> str:
    """Where there are no pooled data whose total it could be compared with."""
    return run.head.digest if run.head and not (run.pooled and run.pooled.digest) else ""


def _split_fact(entry: Entry) -> str:
    split = entry.first.split
    told = settings({"clients": len(split.clients), **split.settings})
    return f"{name(split.name, 40)}: {told}"


def _held_out(run: SeedResult) -> str:
    split = run.split
    found = []
    if run.data.test:
        share = split.test_fraction
        of = "the data's own test part" if share is None else f"{percent(share)} of the data"
        found.append(f"{plain(run.data.test)} test samples that no client holds ({of})")
    if run.settings.get("matched"):
        found.append("each client is tested on outside samples of its own class frequencies")
    if split.held_out:
        found.append(f"{percent(split.held_out)} of each client's samples, to test it on its own")
    return "; ".join(found) or "nothing"


def _images(run: SeedResult) -> str:
    found = []
    if run.data.shift is not None:
        found.append(
            f"Images are shifted by δ = {plain(run.data.shift)}: clients, and test images, fall "
            "into three groups in which red, green or blue is that much stronger."
        )
    if run.data.augment:
        found.append("FedRDN normalizes training images with the channels of a random client.")
    return " ".join(found)


def _seed_words(entry: Entry) -> str:
    seeds = ", ".join(map(str, entry.result.seeds))
    changed = ", ".join(varied([entry])) if len(entry.result.runs) > 1 else ""
    return f"{seeds}; another seed changed: {changed}" if changed else seeds


def notes(entries: Sequence[Entry]) -> list[str]:
    """What the reader must know, each once."""
    return _once(note for run in runs_of(entries) for note in run.notes)


# -- settings --------------------------------------------------------------------------------------


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif value is not None and key not in SAID:
            yield f"{before}{key}", plain(value)


def common(entries: Sequence[Entry]) -> str:
    """The settings that all share, on one line."""
    each = [dict(_flat(entry.first.settings)) for entry in entries]
    alike = {key: v for key, v in each[0].items() if all(own.get(key) == v for own in each)}
    return settings(alike)


def differing(entries: Sequence[Entry]) -> Table | None:
    """Every setting in which results differ, and the settings of their heads."""
    each = [dict(_flat(entry.first.settings)) for entry in entries]
    keys = _once(key for own in each for key in own)
    keys = [key for key in keys if len({own.get(key) for own in each}) > 1]
    heads = [entry.first.head for entry in entries]
    given = [settings(head.settings) if head else "" for head in heads]
    solved = [settings(head.solved) if head else "" for head in heads]
    header = [*keys, "settings of the head", "solved"]
    rows = [
        (entry.label, [Cell(text or MISSING) for text in (*(own.get(k, "") for k in keys), *more)])
        for entry, own, *more in zip(entries, each, given, solved, strict=True)
    ]
    return Table("Pipeline", [], header, rows) if keys or any(given) else None


def footer(entries: Sequence[Entry]) -> str:
    run = max(runs_of(entries), key=lambda run: run.created)
    words = f"Headstart {run.version}".strip()
    return f"{words}, results of {run.created}." if run.created else f"{words}."


# -- how it ended ----------------------------------------------------------------------------------


def _best(
    entries: Sequence[Entry], read: Callable[[RunResult], Estimate | None]
) -> tuple[Entry, Estimate] | None:
    values = ((entry, read(entry.result)) for entry in entries)
    known = [(entry, value) for entry, value in values if value is not None]
    return max(known, key=lambda pair: pair[1], default=None)


def outcome(entries: Sequence[Entry]) -> str:
    """Who ends with the highest accuracy, and who comes close to it for the least."""
    found = _best(entries, lambda result: result.accuracy)
    if found is None and any(map(accuracies, runs_of(entries))):
        return "In the end clients share a part of a model, which has no accuracy of its own."
    if found is None:
        return "Nothing was evaluated on an outside test set."
    best, accuracy = found
    if len(entries) == 1:
        return _alone(best, accuracy)
    words = f"{name(best.label)} ends with the highest accuracy, {written(accuracy, percent)}"
    least = cheapest(entries, "both")
    if least is None:
        return f"{words}."
    cost = f"within a point of that for the fewest bytes, {written(least[1], size)} both ways."
    other = f". {name(least[0].label)} comes " if least[0] is not best else ", and comes "
    return words + other + cost


def _alone(entry: Entry, accuracy: Estimate) -> str:
    if trained([entry]):
        return f"It ends with an accuracy of {written(accuracy, percent)}."
    words = f"It classifies {written(accuracy, percent)} of the test samples correctly"
    head, pooled = entry.first.head, _pooled(entry.result)
    words += " after one message from each client" if head else ""
    if pooled is not None:
        gap = accuracy - pooled
        words += f" ({points(gap)} points against pooled data)" if gap else ", as with pooled data"
    sent = head.bytes_per_client if head else None
    return words + (f", for {size(sent)} per client." if sent else ".")


def _pooled(result: RunResult) -> Estimate | None:
    return result.over_seeds(lambda run: run.pooled.accuracy if run.pooled else None)


# -- key numbers -----------------------------------------------------------------------------------


def tiles(entries: Sequence[Entry]) -> list[Tile]:
    return _one_tiles(entries[0]) if len(entries) == 1 else _many_tiles(entries)


def _many_tiles(entries: Sequence[Entry]) -> list[Tile]:
    found = []
    for label, best in (
        ("Best accuracy", _best(entries, lambda result: result.accuracy)),
        ("Best personal accuracy", _best(entries, lambda result: result.personal_accuracy)),
    ):
        if best is not None:
            found.append(Tile(label, written(best[1], percent), best[0].label))
    for label, key, write in (("bytes", "both", size), ("FLOPs per client", "flops", flops)):
        least = cheapest(entries, key)
        if least is not None:
            heading = f"Least {label}, within a point of the best"
            found.append(Tile(heading, written(least[1], write), least[0].label))
    return found


def _one_tiles(entry: Entry) -> list[Tile]:
    """The key numbers of a single result, those that are known."""
    result, run, found = entry.result, entry.first, []
    accuracy, pooled = result.accuracy, _pooled(result)
    if accuracy is not None:
        balanced = result.over_seeds(lambda run: run.balanced_accuracy)
        note = "" if balanced is None else f"balanced {written(balanced, percent)}"
        found.append(Tile("Test accuracy", written(accuracy, percent), note))
    if accuracy is not None and pooled is not None:
        gap = accuracy - pooled
        note = f"federated: {points(gap)} points" if gap else "no difference"
        found.append(Tile("With pooled data", written(pooled, percent), note))
    if run.head is not None and run.head.bytes_per_client is not None:
        formula = run.head.formula_bytes_per_client
        note = f"{size(formula)} by formula" if formula else "once"
        found.append(Tile("Upload per client", size(run.head.bytes_per_client), note))
    found += _personal_tile(entry)
    clients = count(len(run.split.clients))
    found.append(Tile("Clients", clients, f"{split_words(run.split)} split"))
    note = f"{len(run.data.classes):,} classes, dimension {plain(run.data.dimension)}"
    found.append(Tile("Training samples", plain(run.data.samples), note))
    return found


def _personal_tile(entry: Entry) -> list[Tile]:
    own = entry.first.personal
    if own is None or len(own.models) < 2 or not any(own.tested):
        return []
    # the one that asks most of a client, not the best in hindsight
    model = own.final if own.final != "global" else list(own.models)[-1]
    made = OwnModel(0, "", entry.result, model)
    mean, base = (
        written(made.over_seeds(lambda scores, one=one: scores.weighted(one)), percent)  # type: ignore[misc]
        for one in (model, "global")
    )
    return [Tile("Personal accuracy", mean, f"{MODELS.get(model, model)}; global {base}")]
