"""Tests of a dense model on masks: a confusion matrix, which adds over images and clients.

The matrix has all pixels of the whole masks that are not void; scores are enlarged, never a mask
made smaller. What a model is normalized with while it is tested (`Inference`) is

    averaged              its own running statistics, which the federation has averaged
    standard              those of each batch of 8 test images, as FedDrive's program does it
    whole                 those of all test images, measured first: independent of their order
    by-domain             a client's own running statistics, on its own test images
    by-domain-measured    those of the client's training images through the final model

Clients are asked by two steps: `segment` gives the matrix of a client's test part, and
`normalize` the sums that statistics of all clients' test images are made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.samples import Samples
from headstart.data.scene_samples import truth
from headstart.data.scenes import VOID
from headstart.errors import HeadstartError
from headstart.federation import promises
from headstart.federation.promises import broken
from headstart.federation.protocol import (
    Answer,
    Arrays,
    Check,
    ClientData,
    Federation,
    Step,
    register_step,
)
from headstart.federation.steps import PIXELS
from headstart.gradient import steps
from headstart.gradient.local import own_model
from headstart.gradient.models import Arrays as Params
from headstart.gradient.segmenting import (
    Statistics,
    cell_scores,
    highest,
    measured_sums,
    with_measured_statistics,
    with_statistics,
)
from headstart.gradient.steps import Job
from headstart.heads.base import choice
from headstart.statistics import confusion as matrices
from headstart.statistics.base import Summable
from headstart.statistics.class_sums import ClassSums
from headstart.statistics.confusion import Confusion
from headstart.statistics.vectors import Vectors
from headstart.statistics.wire import Limits

INFERENCES = ("averaged", "standard", "whole", "by-domain", "by-domain-measured")
BY_DOMAIN = INFERENCES[3:]
BATCH = 8  # FedDrive's, at tests
_SHOWS = "what the pixels of one image are taken for says what is in it"


def usual(job: Job) -> str:
    """How a model is tested if nothing is said: by the statistics that it has, or else by whole."""
    return "whole" if job.spec.batch_norm == "local" else "averaged"


def check(job: Job, inference: str | None) -> None:
    """Refuse an objective that masks do not know, and statistics that nobody has."""
    job.model.check_pixels(job.recipe.objective)
    if inference is None:
        return
    choice("inference", inference, INFERENCES)
    stays = job.spec.batch_norm == "local"
    if (inference == "averaged" and stays) or (inference == "by-domain" and not stays):
        expected = ", ".join(possible(job))
        raise HeadstartError(
            f"inference: expected one of {expected} for batch_norm {job.spec.batch_norm}, "
            f"got {inference}"
        )


def possible(job: Job) -> tuple[str, ...]:
    """All that this model can be tested with."""
    absent = "averaged" if job.spec.batch_norm == "local" else "by-domain"
    return tuple(name for name in INFERENCES if name != absent)


# -- here ------------------------------------------------------------------------------------------


def tested(
    job: Job, params: Params, samples: Samples, names: tuple[str, ...], inference: str
) -> Confusion:
    """On test images that are here; those of no client have no domain's statistics, but whole."""
    return judged(job, *_normalized(job, params, samples, inference), samples, names)


def _normalized(
    job: Job, params: Params, samples: Samples, inference: str
) -> tuple[Params, Statistics]:
    """The parameters with the statistics of an inference, and whether batches have their own."""
    if inference in ("averaged", "standard"):
        return params, "own" if inference == "averaged" else "batch"
    return with_measured_statistics(job.model, params, images(samples)), "own"


def masks(
    job: Job,
    params: Params,
    samples: Samples,
    sizes: Iterator[tuple[int, int]],
    inference: str,
) -> Iterator[NDArray[np.int64]]:
    """The class of every pixel of images that are here, each at its size."""
    yield from _guesses(job, *_normalized(job, params, samples, inference), samples, sizes)


def _guesses(
    job: Job,
    params: Params,
    statistics: Statistics,
    samples: Samples,
    sizes: Iterator[tuple[int, int]],
) -> Iterator[NDArray[np.int64]]:
    for part in _parts(len(samples)):
        scores = cell_scores(job.model, params, _paired(samples.read(part)[0]), statistics)
        for place in range(part.stop - part.start):
            yield highest(scores[place : place + 1], next(sizes))[0]


def judged(
    job: Job,
    params: Params,
    statistics: Statistics,
    samples: Samples,
    names: tuple[str, ...],
) -> Confusion:
    """The confusion of a model over every pixel; `names`: of its classes, in their places."""
    known = np.unique(np.array(names))
    places = np.append(np.searchsorted(known, np.array(names)), VOID)  # the last is void's, −1

    def pairs() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        truths = (truth(samples, at) for at in range(len(samples)))
        mine, theirs = itertools.tee(truths)
        sizes = ((mask.shape[0], mask.shape[1]) for mask in mine)
        for mask, guess in zip(
            theirs, _guesses(job, params, statistics, samples, sizes), strict=True
        ):
            yield places[mask], places[guess]

    return Confusion.of(pairs(), known)


def images(samples: Samples) -> Iterator[NDArray[Any]]:
    """All of them as a model takes them, in batches of two or more."""
    for part in _parts(len(samples)):
        yield _paired(samples.read(part)[0])


def _parts(count: int) -> Iterator[slice]:
    """Batches of 8; a last image that would be alone goes with those before it."""
    starts = list(range(0, count, BATCH))
    if count % BATCH == 1 and count > 1:
        starts.pop()
    for start, end in zip(starts, [*starts[1:], count], strict=True):
        yield slice(start, end)


def _paired(x: NDArray[Any]) -> NDArray[Any]:
    """An image that is alone stands twice: its statistics are its own, whoever is beside it."""
    return np.concatenate([x, x]) if len(x) == 1 else x


# -- at clients ------------------------------------------------------------------------------------


def seen(
    federation: Federation,
    job: Job,
    params: Params,
    classes: NDArray[Any],
    names: tuple[str, ...],
    inference: str,
) -> Confusion:
    """On the test parts of all clients, whose matrices are added."""
    if inference == "whole":
        arrays = steps.broadcast(job, params, {}, classes)
        total: Vectors = federation.total(Step("normalize", {"job": job.plain}), arrays).statistic
        params = with_statistics(
            job.model, params, total.vectors[0].astype(np.float64), total.number("images")
        )
    arrays = steps.broadcast(job, params, {}, classes)
    plain = {"job": job.plain, "names": list(names), "inference": inference}
    answer: Answer = federation.total(Step("segment", plain), arrays)
    return Confusion.received(answer.statistic, np.array(names))


def _received(job: Job, arrays: Arrays) -> Params:
    """The parameters of a broadcast, as they are."""
    message = steps.decode_broadcast(job, arrays, -1)
    return {name: tensor[0].numpy() for name, tensor in message.params.items()}


def _own(job: Job, arrays: Arrays, client: ClientData, inference: str) -> Params:
    """What a client tests with: the model that it received, or that with statistics of its own."""
    params = _received(job, arrays)
    if inference == "by-domain":
        message = steps.decode_broadcast(job, arrays, -1)
        own = own_model(job, message, [client])
        return {**params, **{name: own[name][0].numpy() for name in job.names.personal}}
    if inference == "by-domain-measured" and len(client.samples):
        return with_measured_statistics(job.model, params, images(client.samples))
    return params


def _matrix(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """Over these classes, of no more pixels than test images can have."""

    def check(statistic: ClassSums, limits: Limits, clients: int) -> None:
        matrices.check(statistic, params["names"])
        promises.count(float(statistic.samples), limits.samples * PIXELS * clients, "pixels")

    return check


@register_step(
    "segment", ClassSums, discloses=_SHOWS, tests=True, promise=_matrix, budget="personal"
)
def _segment(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """The confusion of the broadcast network on the masks of the client's own test part."""
    job, names, how = Job.of(params["job"]), tuple(params["names"]), str(params["inference"])
    if client.test is None or not len(client.test):
        return Confusion.empty(list(names)).statistic()
    held = _own(job, broadcast, client, how)
    statistics: Statistics = "batch" if how == "standard" else "own"
    return judged(job, held, statistics, client.test, names).statistic()


def _sums(params: Mapping[str, Any], broadcast: Arrays) -> Check:
    """A row of means and squares, none of which is below 0 where it is a square."""
    job = Job.of(params["job"])
    size = sum(2 * shape[0] for n, shape in job.model.statistics.items() if n.endswith("_mean"))

    def check(answer: Vectors, limits: Limits, clients: int) -> None:
        promises.shape(answer, ("sums",), ("images",), size)
        promises.count(answer.number("images"), limits.samples * clients, "images")
        if not answer.number("images") and answer.vectors.any():
            raise broken("expected sums of 0 where there are no images")

    return check


@register_step(
    "normalize",
    Vectors,
    discloses="means over few images show what those images look like to a network",
    tests=True,
    promise=_sums,
    budget="personal",
)
def _normalize(client: ClientData, params: Mapping[str, Any], broadcast: Arrays) -> Summable:
    """Sums of means and squares before every batch norm, over the client's own test part."""
    job = Job.of(params["job"])
    test = client.samples.first(0) if client.test is None else client.test
    sums, count = measured_sums(job.model, _received(job, broadcast), images(test))
    return Vectors(sums[None], np.array([float(count)]), ("sums",), ("images",))
