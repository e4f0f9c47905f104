"""What a run folder shows, made anew for the clients that are in its total now.

From the run's own data, if they are still what they were: the pipeline is run again on the kept
uploads, as if the run had had these clients. Without them, from the uploads alone: who is in, and
what was sent.
"""

from __future__ import annotations

import datetime
import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headstart import __version__
from headstart.data.datasets import Dataset
from headstart.data.partition import Partition
from headstart.errors import HeadstartError, SkippedWarning
from headstart.federation import steps
from headstart.federation.protocol import ClientData, perform
from headstart.federation.simulator import secret_of
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.pipeline.config import NamedSettings, parsed
from headstart.pipeline.experiment import (
    Experiment,
    heterogeneity,
    opened,
    prepare,
    read_data,
)
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.outcome import ridge_path, settings_of
from headstart.pipeline.phases import InitHead
from headstart.pipeline.pipeline import Pipeline
from headstart.pipeline.run import picture, recorded, save, simulate
from headstart.progress import Progress
from headstart.report import write_report
from headstart.results import (
    ClientSummary,
    DataSummary,
    HeadSummary,
    Point,
    RunResult,
    SeedResult,
    SplitSummary,
)


def samples_of(folder: RunFolder, data: str) -> Dataset:
    """Samples of one client, as the run takes them."""
    about = folder.model().provenance.get("extractor")
    samples = read_data(data, folder.config, about=about).data
    if samples.dimension != folder.dimension:
        raise HeadstartError(
            f"data: expected features of dimension {folder.dimension}, got {samples.dimension}"
        )
    return samples


def message_of(folder: RunFolder, head: Head, client: str, samples: Dataset) -> bytes:
    """The message of a client with these samples, on the lattice of this run."""
    config = folder.config
    client_data = ClientData(samples.samples, secret=secret_of(config.seed, client))
    step = steps.measure(head, exact=config.exact, bound=float(config.bound))
    return perform(step, client_data, {}).to_bytes(config.precision)


def mark_of(message: bytes) -> str:
    """The SHA-256 by which clients.json knows a message."""
    return hashlib.sha256(message).hexdigest()


def renew(folder: RunFolder, head: Head, model: LinearHead, progress: Progress) -> LinearHead:
    """Results and report of the total's clients, and the model, calibrated over them.

    Where the run's data are no longer there, the accuracies are left out, which a warning says, and
    the model stays as it is given. The results are written last: while they name somebody who is
    out, a renewal that was cut short is begun again.
    """
    try:
        experiment = _found_again(folder, head, progress)
    except (HeadstartError, OSError) as error:
        text = f"{folder.path / 'report.html'}: accuracies, for they cannot be measured ({error})"
        warnings.warn(text, SkippedWarning, stacklevel=3)
        result = _of_uploads(folder, head, model)
        write_report([RunResult((result,), folder.path)], folder.path)
        model.save(folder.path / "model.safetensors")
        folder.save_result(result)
    else:
        pipeline, solved = parsed(folder.config.pipeline), Pipeline(InitHead(head))
        result, state, context = simulate(
            experiment,
            solved,  # a bandwidth "auto" is a number by now, and the uploads are of that
            progress=progress,
            federation=recorded(experiment, solved, folder),
            digest=folder.data_digest(),
        )
        result = replace(result, pipeline=str(pipeline), phases=tuple(map(str, pipeline.phases)))
        picture(folder, state, context)
        write_report([RunResult((result,), folder.path)], folder.path)
        save(folder, result, state, context)
    return folder.model()


# -- from the data of the run ----------------------------------------------------------------------


def _found_again(folder: RunFolder, head: Head, progress: Progress) -> Experiment:
    """The run's experiment with the clients of now; an error where it is no longer to be had."""
    experiment, members = prepare(folder.config, progress), folder.members()
    if folder.data_digest() != experiment.digest():
        raise HeadstartError(f"{folder.config.data} holds other samples than those of the run")
    late: dict[str, Dataset] = {}
    for name, source in folder.sources().items():
        late[name] = samples_of(folder, source)
        if mark_of(message_of(folder, head, name, late[name])) != members[name]:
            raise HeadstartError(f"{source} holds other samples than those of {name!r}")
    missing = set(members) - set(experiment.clients) - set(late)
    if missing:
        raise HeadstartError(f"the samples of {min(missing)!r} are not known")
    return _with_members(experiment, members, late)


def _with_members(
    experiment: Experiment, members: Mapping[str, str], late: Mapping[str, Dataset]
) -> Experiment:
    """Without those who left (who had no samples cannot leave), with those who joined later."""
    data = experiment.clients
    kept = {n: rows for n, rows in experiment.partition.items() if n in members or n not in data}
    train: Any = experiment.train.subset(np.concatenate(list(kept.values())))
    for part in late.values():
        train = replace(train.with_outside(replace(part, test=None)), test=None)
    ends = np.cumsum([*map(len, kept.values()), *map(len, late.values())])
    indices = tuple(np.split(np.arange(len(train)), ends[:-1]))
    partition = Partition((*kept, *late), indices)
    clients = {name: client for name, client in data.items() if name in members}
    clients |= {name: _untested(part) for name, part in late.items()}
    images = experiment.images
    return replace(
        experiment,
        train=train,
        partition=partition,
        heterogeneity=heterogeneity(partition, train),
        clients=clients,
        federation=opened(experiment.config, clients, experiment.test, in_memory=True),
        images=replace(images, clients={n: c for n, c in images.clients.items() if n in kept}),
    )


def _untested(samples: Dataset) -> ClientData:
    """Who joins later has nothing held out."""
    return ClientData(samples.samples, samples.samples.first(0))


# -- from the uploads ------------------------------------------------------------------------------


def _of_uploads(folder: RunFolder, head: Head, model: LinearHead) -> SeedResult:
    """The result as far as it is known without anybody's samples."""
    config, sum_, members = folder.config, folder.load_total(head), tuple(folder.members())
    made = config.partition or NamedSettings(name="natural")
    before = {row.client: row for row in folder.client_rows()}
    rows = tuple(_client_row(folder, head, name, before.get(name)) for name in members)
    sizes = [row.samples for row in rows if row.samples is not None]
    sent = [row.up for row in rows if row.up is not None]
    about, pipeline = model.provenance, parsed(config.pipeline)
    classes = tuple(str(label) for label in model.classes)
    summary = {"samples_min": min(sizes, default=0), "samples_max": max(sizes, default=0)}
    return SeedResult(
        pipeline=str(pipeline),
        phases=tuple(map(str, pipeline.phases)),
        seed=config.seed,
        data=DataSummary(config.data, about["samples"], 0, folder.dimension, classes),
        split=SplitSummary(made.name, made.settings, members, config.held_out, summary=summary),
        settings=settings_of(config),
        curve=(Point(0, 0, None, up=float(sum(sent))),),
        accuracy=None,
        head=HeadSummary(
            head.name,
            head.title,
            about["settings"],
            about["solved"],
            temperature=model.temperature,
            bytes_per_client=sum(sent) / max(len(sent), 1),
            path=ridge_path(head, sum_),
            digest=about["total"],
        ),
        clients=rows,
        notes=("Accuracies were not measured: the run's data are no longer there.",),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def _client_row(
    folder: RunFolder, head: Head, name: str, before: ClientSummary | None
) -> ClientSummary:
    """From a client's own upload or, where it was not kept, what was known of it before."""
    path, row = folder.upload_path(name), before or ClientSummary(name)
    if not path.exists():
        return row
    message = path.read_bytes()
    upload = head.statistic.from_bytes(message)
    samples, classes = int(np.rint(upload.counts.sum())), len(upload.classes)
    return replace(row, samples=samples, classes=classes, up=len(message))
