"""What clients can be asked for: measure for a head, count classes, score its temperature, test it.

Each also through a network that the broadcast carries (`through`), for an extractor that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart import heads
from headstart.data import checks
from headstart.data.samples import pieces
from headstart.federation import promises
from headstart.federation.judging import confusion as judged
from headstart.federation.judging import measured
from headstart.federation.promises import broken
from headstart.federation.protocol import EXTRACTOR, Arrays, Check, ClientData, Step, register_step
from headstart.federation.pseudo import SURE, TOP, pseudo_measured
from headstart.heads.base import check_upload, settings
from headstart.heads.leverage import Leverage
from headstart.heads.linear import TEMPERATURES, LinearHead
from headstart.personal import VARIANTS, Settings, known
from headstart.statistics import confusion as matrices
from headstart.statistics.base import Summable
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.confusion import Confusion
from headstart.statistics.tally import Tally
from headstart.statistics.wire import Limits

PIXELS = 2**24  # of an image, at most
LEVELS, MOST = 64, 4  # of a loss per sample: steps of ln C/64, up to 4·ln C


def measure(head: Any, *, exact: bool = False, bound: float = 16.0) -> Step:
    """Ask for the statistic of a head."""
    about = {"head": heads.name_of(head), "settings": settings(head)}
    return Step("measure", {**about, "exact": exact, "bound": bound})


def pseudo_measure(
    head: Any,
    *,
    sure: float = SURE,
    top: float = TOP,
    exact: bool = False,
    bound: float = 16.0,
) -> Step:
    """Ask clients without labels for the statistic of the cells that the broadcast head is sure of.

    `sure`, `top`: LADD's mask (`headstart.federation.pseudo`).
    """
    checks.share("sure", sure)
    checks.share("top", top)
    asked = measure(head, exact=exact, bound=bound).params
    return Step("pseudo-measure", {**asked, "sure": sure, "top": top})


def counts() -> Step:
    """Ask how many samples of each class a client has; whole numbers, so that masks can hide it."""
    return Step("counts")


def calibrate(leverage: Leverage | None = None) -> Step:
    """Ask for the training loss of the broadcast head at every temperature.

    With the head's leverage: as if each sample had been left out of its solution.
    """
    return Step("calibrate", {"leverage": asdict(leverage)} if leverage else {})


def confusion(classes: Any) -> Step:
    """Ask what the broadcast head takes the client's own test part for: every pixel of scenes."""
    return Step("confusion", {"classes": np.unique(np.asarray(classes)).tolist()})


def personal(smoothing: float = 0.5, leverage: Leverage | None = None) -> Step:
    """Ask how the broadcast head does on the client's own test part, made its own or not."""
    return Step("personal", {"smoothing": smoothing, "leverage": asdict(leverage or Leverage())})


def through(step: Step, network: Mapping[str, Any] | None) -> Step:
    """The same step on features that the broadcast network makes; None: on samples as they are."""
    if network is None:
        return step
    return replace(step, params={**step.params, EXTRACTOR: dict(network)})


def with_head(head: LinearHead) -> dict[str, NDArray[Any]]:
    """A head as the arrays of a broadcast."""
    return {"head": np.frombuffer(head.to_bytes(), np.uint8)}


def _head(broadcast: Arrays) -> LinearHead:
    return LinearHead.from_bytes(broadcast["head"].tobytes())


def _statistic(params: Mapping[str, Any]) -> type[Any]:
    """That of the head that is measured for."""
    return heads.make(params["head"], dict(params["settings"])).statistic


def _measured(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """The tables of this head's statistic, on the requested lattice or on none."""
    head = heads.make(params["head"], dict(params["settings"]))
    how = {"exact": params["exact"], "bound": params["bound"]}
    empty: Any = head.measure(np.zeros((0, 1)), np.zeros(0, np.int64), **how, secret=b"")
    tables = set(getattr(empty, "tables", ()))

    def check(statistic: Any, limits: Limits, clients: int) -> None:
        if statistic.lattice != empty.lattice:
            raise broken(f"expected statistics on {empty.lattice}, got {statistic.lattice}")
        if set(getattr(statistic, "tables", ())) != tables:
            raise broken(f"expected tables {', '.join(sorted(tables))}, got others")
        check_upload(head, statistic, clients)
        promises.count(float(statistic.samples), limits.samples * clients, "samples")

    return check


@register_step(
    "measure",
    _statistic,
    discloses="a sum over few samples is nearly those samples",
    promise=_measured,
    budget="measure",
)
def _measure(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    head = heads.make(params["head"], dict(params["settings"]))
    how = {"exact": params["exact"], "bound": params["bound"], "secret": client.secret}
    return measured(head, client.samples, **how)


@register_step(
    "pseudo-measure",
    _statistic,
    discloses="a sum over few images is nearly those images, sorted as the server's head says",
    promise=_measured,
    budget="measure",
)
def _pseudo_measure(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """The statistic of a head, of the cells that the broadcast head is sure of, as it says."""
    head = heads.make(params["head"], dict(params["settings"]))
    how = {"exact": params["exact"], "bound": params["bound"], "secret": client.secret}
    model = _head(broadcast)
    return pseudo_measured(head, model, client.samples, params["sure"], params["top"], **how)


def _counted(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """Whole numbers and nothing else."""

    def check(statistic: ClassSums, limits: Limits, clients: int) -> None:
        if statistic.tables or statistic.lattice is None or statistic.dimension != 1:
            raise broken("expected counts of classes alone")
        promises.count(float(statistic.samples), limits.samples * clients, "samples")

    return check


@register_step("counts", ClassSums, promise=_counted)
def _counts(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    labels = client.samples.labels
    return ClassSums.measure(np.zeros((len(labels), 1)), labels, exact=True, sums=False)


def coarse(losses: NDArray[np.float64], samples: int, classes: int) -> NDArray[np.float64]:
    """Losses rounded to n·ln C/64 and cut at 4n·ln C: enough to choose a temperature by.

    A total of rounded losses is within n·ln C/128 of the true one, so the chosen temperature costs
    at most ln C/64 per sample more than the best. At low temperatures a loss is a margin times
    1/T: its digits, and not its size, would give a sample away.
    """
    if not samples:
        return np.zeros_like(losses)
    unit = samples * np.log(max(classes, 2)) / LEVELS
    return np.rint(losses / unit).clip(0, MOST * LEVELS) * unit


def _losses(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """One loss per temperature, none above the largest that `coarse` lets through."""
    most = MOST * np.log(max(len(_head(broadcast).classes), 2)) * (1 + 1e-9)

    def check(tally: Tally, limits: Limits, clients: int) -> None:
        losses = promises.numbers(tally, len(TEMPERATURES))
        if (losses > most * limits.samples * clients).any():
            raise broken(f"expected losses of at most {most:.6g} per sample")

    return check


@register_step(
    "calibrate",
    Tally,
    discloses="the loss of one sample is its margin, along any direction the server chooses",
    promise=_losses,
    budget="calibrate",
)
def _calibrate(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    leverage = Leverage(**params["leverage"]) if "leverage" in params else None
    head, losses, matching = _head(broadcast), np.zeros(len(TEMPERATURES)), 0
    for piece in pieces(client.samples):
        features, labels = client.samples.read(piece)
        losses = losses + head.losses(features, labels, leverage)
        matching += int(np.isin(labels, head.classes).sum())
    return Tally(coarse(losses, matching, len(head.classes)))


def _confused(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """A matrix over the classes that were asked for, of no more pixels than samples can have."""

    def check(statistic: ClassSums, limits: Limits, clients: int) -> None:
        matrices.check(statistic, params["classes"])
        promises.count(float(statistic.samples), limits.samples * PIXELS * clients, "pixels")

    return check


@register_step(
    "confusion",
    ClassSums,
    discloses="what one sample is taken for says on which side it lies of any plane",
    tests=True,
    promise=_confused,
    budget="personal",
)
def _confusion(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """The confusion of the broadcast head on the client's own test part."""
    classes = params["classes"]
    if client.test is None or not len(client.test):
        return Confusion.empty(classes).statistic()
    return judged(_head(broadcast), client.test, classes).statistic()


def _hits(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    def check(tally: Tally, limits: Limits, clients: int) -> None:
        promises.hits(tally, 1, len(VARIANTS), limits, clients)

    return check


@register_step(
    "personal",
    Tally,
    discloses="whether one sample is hit says on which side it lies of any plane",
    tests=True,
    promise=_hits,
    budget="personal",
)
def _personal(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """[tested, hits of each of VARIANTS]; each is made of the training part alone."""
    if client.test is None or not len(client.test):
        return Tally(np.zeros(1 + len(VARIANTS)))
    (x, labels), (z, y) = client.samples.read(), client.test.read()
    head = _head(broadcast)
    if not known(head, labels).any():
        return Tally(np.array([len(y), *[0.0] * len(VARIANTS)]))
    chosen = Settings(params["smoothing"], Leverage(**params["leverage"]))
    made = (make(head, x, labels, chosen) for make in VARIANTS.values())
    hits = [float((personal.predict(z) == y).sum()) for personal in made]
    return Tally(np.array([float(len(y)), *hits]))
