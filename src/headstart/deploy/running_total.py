"""A sum kept up to date: uploads wait until there are enough of them to be folded at once."""

from __future__ import annotations

from typing import Any

from headstart.deploy.admission import Contract, UploadRejected
from headstart.statistics.exact import MOST_SAMPLES

_WAITING, _WAITING_BYTES = 1024, 2**26


class RunningTotal:
    """The sum of the uploads so far, in memory that does not grow with them.

    Rows are stacked, not added: they wait until somebody asks.
    """

    def __init__(self, contract: Contract, value: Any = None) -> None:
        self._contract = contract
        self._sum = value
        self._waiting: list[Any] = []
        self._bytes = 0
        self._classes: set[Any] = set() if value is None else set(value.classes.tolist())
        self._samples = 0 if value is None else int(value.samples)

    def add(self, upload: Any, size: int) -> None:
        self._waiting.append(upload)
        self._bytes += size
        self._classes.update(upload.classes.tolist())
        self._samples += int(upload.samples)
        if upload.is_sum and (len(self._waiting) >= _WAITING or self._bytes >= _WAITING_BYTES):
            self._fold()

    def value(self) -> Any:
        """The sum; of no uploads, the statistic of no samples."""
        if self._waiting:
            self._fold()
        return self._contract.empty if self._sum is None else self._sum

    def without(self, upload: Any) -> RunningTotal:
        """The sum if an upload had never been added: exact sums only."""
        return RunningTotal(self._contract, self.value() - upload)

    def _fold(self) -> None:
        parts = self._waiting if self._sum is None else [self._sum, *self._waiting]
        self._sum = type(parts[0]).total(parts)
        self._waiting, self._bytes = [], 0

    def check(self, uploads: list[Any]) -> None:
        """Refuse the last of `uploads` if it could not join the sum after the others."""
        others = set().union(*(one.classes.tolist() for one in uploads[:-1])) - self._classes
        new = set(uploads[-1].classes.tolist()) - self._classes - others
        most, quota = self._contract.classes, self._contract.new_classes
        if not self._contract.class_list and len(new) > quota:
            raise UploadRejected(
                "quota", f"classes: expected at most {quota} that nobody else has, got {len(new)}"
            )
        if len(self._classes) + len(others) + len(new) > most:
            raise UploadRejected("many", f"classes: expected at most {most} in the whole total")
        samples = self._samples + sum(int(one.samples) for one in uploads)
        if uploads[-1].lattice and samples > most_samples(self._contract.empty):
            raise UploadRejected("many", f"samples: {samples} in all could leave 62 bits")


def most_samples(empty: Any) -> int:
    """Of an exact total; squares summed over features are d times as large (see exact)."""
    spherical = getattr(empty, "tables", {}).get("squares")
    summed = int(empty.dimension) if spherical is not None and spherical.shape[1] == 1 else 1
    return MOST_SAMPLES // summed
