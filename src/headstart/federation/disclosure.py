"""What a client's message shows of single samples, and when a client should not send it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FEWEST, FEWEST_OF_A_CLASS = 10, 2


@dataclass(frozen=True)
class Disclosure:
    """What a server could read in a client's message; `refused`: a reason not to send it."""

    text: str
    refused: bool


def disclosures(counts: Iterable[int], dimension: int | None = None) -> tuple[Disclosure, ...]:
    """What the statistics of a client with these samples of each class would show to a server."""
    shown = [int(count) for count in counts if count > 0]
    samples, lone = sum(shown), sum(count < FEWEST_OF_A_CLASS for count in shown)
    items = []
    if 0 < samples < FEWEST:
        text = f"{samples} samples (fewer than {FEWEST}): little stands between them and the server"
        items.append(Disclosure(text, True))
    if lone:
        word = "a class of one sample" if lone == 1 else f"{lone} classes of one sample"
        items.append(Disclosure(f"{word}: its sum is the feature vector of that sample", True))
    if dimension is not None and 0 < samples < dimension:
        text = f"fewer samples ({samples}) than dimensions ({dimension}): the space they span"
        items.append(Disclosure(text, False))
    return tuple(items)


def few_images(images: int) -> tuple[Disclosure, ...]:
    """The same of scenes, whose sums are over all cells of so many images."""
    if not 0 < images < FEWEST:
        return ()
    text = f"{images} images (fewer than {FEWEST}): little stands between them and the server"
    return (Disclosure(text, True),)


def would_refuse(class_counts: Iterable[Sequence[int]]) -> int:
    """How many clients would refuse by default: `class_counts` has a row of counts per client."""
    return sum(any(shown.refused for shown in disclosures(counts)) for counts in class_counts)
