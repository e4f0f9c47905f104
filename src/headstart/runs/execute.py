"""A run: every head over one federation, beside what pooled data would give."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from headstart import __version__, heads, threads
from headstart.errors import HeadstartError, SolveError
from headstart.evaluate import PERSONAL, scores
from headstart.federation import steps
from headstart.files import write_bytes
from headstart.heads.leverage import Leverage
from headstart.heads.linear import LinearHead
from headstart.heads.random_features import bandwidth_of
from headstart.heads.shared_variances import SharedVariances
from headstart.report import write_report
from headstart.results import Arrival, PersonalScores, Pooled, RunResult, SeedResult
from headstart.runs.config import Named, RunConfig
from headstart.runs.federate import Prepared, prepare
from headstart.runs.folder import RunFolder
from headstart.runs.inputs import Progress, silent
from headstart.runs.outcome import HeadOutcome, head_results
from headstart.statistics.base import total

_TOGETHER = 256  # uploads folded at once: what the server holds does not grow with clients


def run(config: RunConfig, path: str | Path, progress: Progress = silent) -> tuple[RunResult, ...]:
    """Execute a configuration into a folder; one result per head, the first that of the model."""
    if config.augment is not None:
        raise HeadstartError(f"augment: expected phases that train, got none for {config.augment}")
    folder = RunFolder(Path(path))
    prepared = prepare(config, progress)
    folder.create(prepared.config, prepared.digest())
    folder.event("start", headstart=__version__, data=config.data, clients=len(prepared.partition))
    outcomes = []
    for position, named in enumerate(config.heads):
        kept = folder if position == 0 and config.keep_uploads else None
        outcome = federate(prepared, named, progress, kept)
        folder.event("solved", head=named.name, accuracy=outcome.scores.accuracy)
        outcomes.append(outcome)
    for outcome in outcomes:
        pooled = outcome.pooled.digest if outcome.pooled else ""
        if pooled and pooled != outcome.total.digest():
            raise HeadstartError(
                f"{outcome.head.name}: the federated total is not that of the pooled data; "
                f"the uploads in {folder.path} are of other samples"
            )
    found = head_results(prepared, config.heads, outcomes)
    results = tuple(RunResult((one,), folder.path) for one in found)
    save(folder, outcomes[0], found)
    return results


def save(folder: RunFolder, main: HeadOutcome, results: list[SeedResult]) -> None:
    folder.save_total(main.total, results[0].data.dimension, main.messages)
    folder.save_results(results)
    write_report([RunResult((one,)) for one in results], folder.path)
    main.model.save(folder.path / "model.safetensors")  # last: a folder with a model is finished
    folder.event("finished", total=main.total.digest())


def federate(
    prepared: Prepared, named: Named, progress: Progress = silent, keep: RunFolder | None = None
) -> HeadOutcome:
    """Ask every client once, solve, calibrate, test; then the same from pooled data."""
    head = build_head(prepared, named)
    began = time.perf_counter()
    sum_, arrivals, messages = _collect(prepared, head, progress, keep)
    model = head.solve(sum_)
    seconds = time.perf_counter() - began
    sent = dict(prepared.simulator.sent)
    broadcast = sum(array.nbytes for array in steps.with_head(model).values())
    leverage = head_leverage(prepared, head, sum_)
    model = calibrated(prepared, model, leverage)
    model.provenance["extractor"] = prepared.extractor
    prepared.colours.note(model.provenance)
    return HeadOutcome(
        head=head,
        total=sum_,
        model=model,
        scores=scores(model, prepared.test.features, prepared.test.labels),
        personal=tested_at_home(prepared, model, leverage),
        sent=sent,
        down=float(len(sent) * broadcast),
        seconds=seconds,
        pooled=_pooled(prepared, head),
        sizes=message_sizes(prepared, head),
        arrivals=tuple(arrivals),
        messages=messages,
    )


def build_head(prepared: Prepared, named: Named) -> Any:
    """The head; random features with bandwidth "auto" ask once for the spread of the samples."""
    settings = named.settings
    prepared.simulator.sent.clear()
    if settings.get("bandwidth") == "auto":
        ask = measure_step(prepared, SharedVariances("spherical"))
        settings["bandwidth"] = bandwidth_of(prepared.simulator.total(ask))
    return heads.make(named.name, settings)


def measure_step(prepared: Prepared, head: Any) -> Any:
    return steps.measure(head, exact=prepared.config.exact, bound=float(prepared.config.bound))


def _collect(
    prepared: Prepared, head: Any, progress: Progress, keep: RunFolder | None
) -> tuple[Any, list[Arrival], dict[str, str]]:
    """All uploads, folded; the head is solved and tested at points along the way."""
    simulator, step = prepared.simulator, measure_step(prepared, head)
    names = simulator.clients
    points = min(len(names), prepared.config.curve_points)
    # The last is always a stop, or uploads would be left out: linspace(1, n, 1) is [1].
    stops = {len(names)} if points == 1 else set(np.linspace(1, len(names), points, dtype=int))
    so_far: Any = None
    waiting: list[Any] = []
    arrivals: list[Arrival] = []
    messages: dict[str, str] = {}
    for done, (name, data) in enumerate(_messages(prepared, step, head, keep), 1):
        messages[name] = hashlib.sha256(data).hexdigest()
        waiting.append(head.statistic.from_bytes(data))
        if done in stops or len(waiting) == _TOGETHER:
            so_far = total(waiting if so_far is None else [so_far, *waiting])
            waiting = []
        if done in stops:
            up, accuracy = sum(simulator.sent.values()), _accuracy(prepared, head, so_far)
            arrivals.append(Arrival(done, up, accuracy, len(so_far.classes)))
        progress(head.title, done, len(names))
    return so_far, arrivals, messages


def _messages(
    prepared: Prepared, step: Any, head: Any, keep: RunFolder | None
) -> Iterator[tuple[str, bytes]]:
    """Each client's message; one kept by an interrupted run is not asked for again."""
    for name in prepared.simulator.clients:
        path = keep.upload_path(name) if keep else None
        if path and path.exists():
            data = path.read_bytes()
        else:
            _, data = prepared.simulator.message(step, name)
            if path and keep:
                write_bytes(path, data)
                keep.event("upload", client=name, head=head.name, bytes=len(data))
        prepared.simulator.sent[name] += len(data)
        yield name, data


def _accuracy(prepared: Prepared, head: Any, so_far: Any) -> float:
    """How a head from the uploads so far does; 0 where it cannot be solved yet."""
    with threads.for_size(so_far.dimension):
        try:
            model = head.solve(so_far)
        except SolveError:
            return 0.0
        return float(model.accuracy(prepared.test.features, prepared.test.labels))


def message_sizes(prepared: Prepared, head: Any, most: int = 200) -> dict[str, float]:
    """Mean bytes of a client's message at the default and the smallest precision.

    Of at most `most` clients, evenly picked.
    """
    clients = list(prepared.simulator.data.values())
    picked = clients[:: max(1, len(clients) // most)]
    found = [head.measure(client.features, client.labels, secret=b"size") for client in picked]
    return {
        precision: float(np.mean([len(one.to_bytes(precision)) for one in found]))
        for precision in ("float32", "int8")
    }


def head_leverage(prepared: Prepared, head: Any, sum_: Any) -> Leverage:
    """Of the samples on their own scores, where a head knows it and something asks for it."""
    asked = prepared.config.personal or prepared.config.temperature == "left-out"
    if not asked or not hasattr(head, "leverage"):
        return Leverage()
    with threads.for_size(sum_.dimension):
        return cast(Leverage, head.leverage(sum_))


def calibrated(prepared: Prepared, model: LinearHead, leverage: Leverage) -> LinearHead:
    """With the temperature of the lowest training loss over the federation."""
    known = leverage if prepared.config.temperature == "left-out" else None
    losses = prepared.simulator.total(steps.calibrate(known), steps.with_head(model))
    return model.calibrated(losses.values)


def tested_at_home(
    prepared: Prepared, model: LinearHead, leverage: Leverage
) -> PersonalScores | None:
    if not prepared.config.personal:
        return None
    step = steps.personal(prepared.config.smoothing, leverage)
    tallies = prepared.simulator.evaluate(step, steps.with_head(model))
    return PersonalScores.of(tallies, PERSONAL)


def _pooled(prepared: Prepared, head: Any) -> Pooled | None:
    """From pooled data; in exact mode with the digest of their total. Rows have no pooled form."""
    if not head.statistic.is_sum:
        return None
    config, (z, y) = prepared.config, prepared.pooled()
    pooled = head.measure(z, y, exact=config.exact, bound=float(config.bound))
    accuracy = head.solve(pooled).accuracy(prepared.test.features, prepared.test.labels)
    return Pooled(float(accuracy), pooled.digest() if config.exact else "")
