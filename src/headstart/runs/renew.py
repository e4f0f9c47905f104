"""What a run folder shows, made anew for the clients that are in its total now.

From the run's own data, if they are still what they were: every head is measured, solved and tested
as if the run had had these clients. Without them, from the uploads: who is in, and what was sent.
"""

from __future__ import annotations

import datetime
import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headstart import __version__
from headstart.data.datasets import Dataset
from headstart.data.heterogeneity import describe
from headstart.data.partition import Partition
from headstart.errors import HeadstartError, SkippedWarning
from headstart.federation import steps
from headstart.federation.protocol import ClientData, perform
from headstart.federation.simulator import secret_of
from headstart.heads.linear import LinearHead
from headstart.report import write_report
from headstart.runs.config import Named
from headstart.runs.execute import collect, federate, outcome_of
from headstart.runs.federate import Prepared, prepare, read_data
from headstart.runs.folder import RunFolder
from headstart.runs.inputs import Progress
from headstart.runs.summary import Outcome, metric_rows, path_row, summarize

_FACTS = ("client", "samples", "classes", "bytes", "formula_bytes")  # a client's own, of any model


def samples_of(folder: RunFolder, data: str) -> Dataset:
    """Samples of one client, as the run takes them."""
    about = folder.model().provenance.get("extractor")
    samples = read_data(data, folder.config, about=about).data
    if samples.dimension != folder.dimension:
        raise HeadstartError(
            f"data: expected features of dimension {folder.dimension}, got {samples.dimension}"
        )
    return samples


def message_of(folder: RunFolder, head: Any, client: str, samples: Dataset) -> bytes:
    """The message of a client with these samples, on the lattice of this run."""
    config = folder.config
    own = ClientData(samples.features, samples.labels, secret=secret_of(config.seed, client))
    step = steps.measure(head, exact=config.exact, bound=float(config.bound))
    return perform(step, own, {}).to_bytes(config.precision)


def mark_of(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()


def renew(folder: RunFolder, head: Any, model: LinearHead, progress: Progress) -> LinearHead:
    """Results, metrics and report of the total's clients, and the model, calibrated over them.

    Where the run's data are no longer there, the accuracies are left out, which a warning says, and
    the model stays as it is given.
    """
    try:
        prepared = _found_again(folder, head, progress)
    except (HeadstartError, OSError) as error:
        text = f"{folder.path / 'report.html'}: accuracies, for they cannot be measured ({error})"
        warnings.warn(text, SkippedWarning, stacklevel=3)
        results = _of_uploads(folder, head, model)
        rows = ((head.name, row["client"], "bytes", row["bytes"]) for row in results["clients"])
        folder.save_metrics(row for row in rows if row[-1] is not None)
    else:
        outcomes = _outcomes(folder, head, prepared, progress)
        results, model = summarize(prepared, outcomes), outcomes[0].model
        folder.save_metrics(metric_rows(outcomes))
    folder.save_results(results)
    write_report(results, folder.path / "report.html")
    model.save(folder.path / "model.safetensors")
    return model


# -- from the data of the run ----------------------------------------------------------------------


def _found_again(folder: RunFolder, head: Any, progress: Progress) -> Prepared:
    """The run's federation with the clients of now; an error where it is no longer to be had."""
    prepared, members = prepare(folder.config, progress), folder.members()
    if not folder.holds(prepared.digest()):
        raise HeadstartError(f"{folder.config.data} holds other samples than those of the run")
    late: dict[str, Dataset] = {}
    for name, source in folder.sources().items():
        late[name] = samples_of(folder, source)
        if mark_of(message_of(folder, head, name, late[name])) != members[name]:
            raise HeadstartError(f"{source} holds other samples than those of {name!r}")
    missing = set(members) - set(prepared.simulator.data) - set(late)
    if missing:
        raise HeadstartError(f"the samples of {min(missing)!r} are not known")
    return _with_members(prepared, members, late)


def _with_members(
    prepared: Prepared, members: Mapping[str, str], late: Mapping[str, Dataset]
) -> Prepared:
    """Without those who left (who had no samples cannot leave), with those who joined later."""
    data = prepared.simulator.data
    kept = {n: own for n, own in prepared.partition.items() if n in members or n not in data}
    old = prepared.train.subset(np.concatenate(list(kept.values())))
    parts = [(old.features, old.labels), *((one.features, one.labels) for one in late.values())]
    features, labels = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    ends = np.cumsum([*map(len, kept.values()), *map(len, late.values())])
    indices = tuple(np.split(np.arange(len(labels)), ends[:-1]))
    partition = Partition((*kept, *late), indices)
    clients = {name: client for name, client in data.items() if name in members}
    clients |= {name: _untested(one) for name, one in late.items()}
    colours = prepared.colours
    return replace(
        prepared,
        train=Dataset(prepared.train.name, features, labels),
        partition=partition,
        heterogeneity=describe(partition, labels),
        simulator=replace(prepared.simulator, data=clients, sent=Counter()),
        colours=replace(colours, clients={n: c for n, c in colours.clients.items() if n in kept}),
    )


def _untested(samples: Dataset) -> ClientData:
    """Who joins later has nothing held out."""
    return ClientData(samples.features, samples.labels, samples.features[:0], samples.labels[:0])


def _outcomes(
    folder: RunFolder, head: Any, prepared: Prepared, progress: Progress
) -> list[Outcome]:
    """The head of the total, and the run's other heads measured anew."""
    began, keep = time.perf_counter(), folder if folder.config.keep_uploads else None
    _, curve, messages = collect(prepared, head, progress, keep)
    sum_ = folder.load_total(head)
    model = head.solve(sum_)
    seconds = time.perf_counter() - began
    first = outcome_of(prepared, head, sum_, model, seconds, curve, messages)
    return [first, *(federate(prepared, named, progress) for named in folder.config.heads[1:])]


# -- from the uploads ------------------------------------------------------------------------------


def _of_uploads(folder: RunFolder, head: Any, model: LinearHead) -> dict[str, Any]:
    """What can be told without anybody's samples, as the plain values of a report."""
    config, sum_ = folder.config, folder.load_total(head)
    made = config.partition or Named(name="natural")
    before = {str(row["client"]): row for row in folder.client_rows()}
    rows = [_client_row(folder, head, name, before.get(name, {})) for name in folder.members()]
    sizes = [row["samples"] for row in rows if row["samples"] is not None]
    sent = [row["bytes"] for row in rows if row["bytes"] is not None]
    return {
        "headstart": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "title": f"{head.title}, {len(rows)} clients, {made.name}",
        "data": {
            "name": config.data,
            "samples": model.provenance["samples"],
            "test": 0,
            "dimension": folder.dimension,
            "classes": [str(label) for label in model.classes],
        },
        "partition": {
            "name": made.name,
            "settings": made.settings,
            "summary": {
                "clients": len(rows),
                "samples_min": min(sizes, default=0),
                "samples_max": max(sizes, default=0),
            },
        },
        "clients": rows,
        "heads": [
            {
                "name": head.name,
                "title": head.title,
                "settings": model.provenance["settings"],
                "solved": model.provenance["solved"],
                "main": True,
                "accuracy": None,
                "personal": None,
                "temperature": model.temperature,
                "bytes_per_client": sum(sent) / max(len(sent), 1),
                "curve": [],
                "path": path_row(head, sum_),
            }
        ],
        "exact": None,
    }


def _client_row(
    folder: RunFolder, head: Any, name: str, before: Mapping[str, Any]
) -> dict[str, Any]:
    """From a client's own upload or, where it was not kept, what was known of it before."""
    path, known = folder.upload_path(name), {key: before.get(key) for key in _FACTS}
    if path.exists():
        message = path.read_bytes()
        upload = head.statistic.from_bytes(message)
        known |= {
            "samples": int(np.rint(upload.counts.sum())),
            "classes": len(upload.classes),
            "bytes": len(message),
        }
    return {**known, "client": name, "personal": None}
