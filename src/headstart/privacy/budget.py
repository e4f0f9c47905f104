"""What has been released over one data set, and what may still be: μ² is spent, for ever.

A charge is durable before anything leaves, and a release is kept before it is used: a crash may
cost budget, never privacy. The same request is answered from here; nobody draws noise twice for it.
"""

from __future__ import annotations

import json
import math
import re
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from headstart.errors import DataError, HeadstartError
from headstart.files import locked, write_bytes
from headstart.privacy.accountant import epsilon_of
from headstart.privacy.refusals import Abort

_ROUNDED = 1e-9
_NAME = re.compile(r"[a-z0-9-]+")


@dataclass
class Budget:
    """Charges and releases by the name of the request; in `path`, a folder, or in memory alone.

    `mu`: of all releases together. In the folder a charge is NAME.json, a release
    NAME.safetensors; neither is ever changed.
    """

    mu: float
    path: Path | None = None
    _charges: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _releases: dict[str, bytes] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def charges(self) -> dict[str, float]:
        """μ² by request."""
        if self.path is not None:
            self._charges = {file.stem: _read_charge(file) for file in self.path.glob("*.json")}
        return dict(self._charges)

    @property
    def spent(self) -> float:
        """μ of everything charged so far."""
        return float(sum(self.charges.values()) ** 0.5)

    def epsilon(self, delta: float) -> float:
        """ε of everything charged so far."""
        return epsilon_of(self.spent, delta) if self.spent else 0.0

    def release(self, name: str) -> bytes | None:
        """What was released for this request; None if nothing was charged for it.

        Refused where it was charged and cut short: something may have left, and a second draw of
        noise would take some of it away.
        """
        if name not in self.charges:
            return None
        if self.path is None:
            found = self._releases.get(name)
        else:
            file = self.path / f"{name}.safetensors"
            found = file.read_bytes() if file.exists() else None
        if found is None:
            raise Abort("budget", f"budget: {name} was charged and cut short; it is spent")
        return found

    def check(self, mu: float) -> None:
        """Refuse what is beyond the budget, with what is left of it."""
        left = self.mu**2 - sum(self.charges.values())
        if mu**2 > left + _ROUNDED * self.mu**2:
            raise Abort(
                "budget",
                f"budget: expected a release of at most μ = {max(left, 0.0) ** 0.5:.4g}, which is "
                f"left of {self.mu:.4g}, got {mu:.4g}",
            )

    def charge(self, name: str, mu: float) -> None:
        """Spend μ² on a new request, durably; refused beyond the budget."""
        if not 0 < mu < math.inf:
            raise HeadstartError(f"charge: expected a release of μ above 0, got {mu!r}")
        with self._alone():
            if not _NAME.fullmatch(name) or name in self.charges:
                raise HeadstartError(f"charge: expected the name of a new request, got {name!r}")
            self.check(mu)
            self._charges[name] = mu**2
            if self.path is not None:
                write_bytes(self.path / f"{name}.json", json.dumps({"mu2": mu**2}).encode())

    def _alone(self) -> AbstractContextManager[object]:
        """Between the check and the charge nobody else charges, in this process or another."""
        if self.path is None:
            return self._lock
        self.path.mkdir(parents=True, exist_ok=True)
        return locked(self.path / "budget.lock")

    def keep(self, name: str, release: bytes) -> None:
        """Keep what a charged request is answered with, from now on."""
        if name not in self.charges:
            raise HeadstartError(f"release: expected a request that was charged, got {name!r}")
        if self.path is None:
            self._releases[name] = release
        else:
            write_bytes(self.path / f"{name}.safetensors", release)


def _read_charge(file: Path) -> float:
    """μ² of one charge; no other number is taken for one, for NaN or −1 would give budget back."""
    try:
        charged = json.loads(file.read_bytes())["mu2"]
        if type(charged) is not float or not 0 < charged < math.inf:
            raise ValueError(charged)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DataError(
            f"budget: {file} is damaged; what it charged is not known, and nothing is released "
            "until it is restored"
        ) from None
    return charged
