"""What a client agreed to when it joined, in its own keeping; questions that contradict it.

The question by which a node joins carries the contract's part that all must agree on. A node that
has none yet holds it against its own samples and writes it into its private folder; from then on
nobody's question changes it. Its owner does, who removes the file and so joins anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.deploy.admission import Contract, UploadRejected, check_classes, identity
from headstart.deploy.log import sync_folder
from headstart.errors import HeadstartError
from headstart.federation.protocol import EXTRACTOR, Arrays, ClientData, Step
from headstart.files import PRIVATE, locked, write_text
from headstart.heads.linear import LinearHead
from headstart.labels import as_labels

CODE, FILE = "agreement", "agreement.json"
_ANEW = f"Its owner removes {FILE} from the private folder to join anew"


@dataclass(frozen=True)
class Agreement:
    """The terms of a contract that are nobody's to change; see `Contract`, whose words they are."""

    dimension: int
    bound: float
    norm: float | None
    labels: str
    class_list: tuple[int | str, ...]
    new_classes: int
    extractor: Mapping[str, Any] | None

    @classmethod
    def of(cls, contract: Contract) -> Agreement:
        return cls(
            contract.dimension,
            float(contract.step["bound"]),
            contract.norm,
            contract.labels,
            tuple(contract.class_list),
            contract.new_classes,
            contract.extractor,
        )

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> Agreement:
        """The inverse of `to_plain`; an error where it is none."""
        try:
            found = cls(**{**plain, "class_list": tuple(plain["class_list"])})
            step = {"head": "fedncm", "settings": {}, "exact": True, "bound": found.bound}
            terms = {**plain, "round": "1", "step": step}
            del terms["bound"]
            Contract.from_plain(terms)
            if type(found.bound) not in (int, float) or not 0 < found.bound < 1e100:
                raise TypeError
            _ = identity(found.extractor)
        except (TypeError, KeyError, AttributeError, ValueError):
            raise HeadstartError(
                "agreement: expected the terms of a contract, got others"
            ) from None
        return found

    # -- what contradicts it -------------------------------------------------------------------

    def check_same(self, other: Agreement) -> None:
        """Refuse terms that are not these."""
        for name, own in asdict(self).items():
            told = getattr(other, name)
            same = identity(own) == identity(told) if name == "extractor" else own == told
            if not same:
                text = f"{name}: this node joined with {_said(own)}, got {_said(told)}"
                raise _refused(f"{text}. {_ANEW}")

    def check_samples(self, client: ClientData, extractor: Mapping[str, Any] | None) -> None:
        """Refuse samples of another kind; the name of a class that they have is not told."""
        shape = client.samples.shape
        if len(shape) == 1 and shape[0] != self.dimension:
            raise _refused(f"dimension: this node has {shape[0]}, the server says {self.dimension}")
        if identity(extractor) != identity(self.extractor):
            ours, theirs = _said(extractor), _said(self.extractor)
            raise _refused(f"extractor: this node has {ours}, the server says {theirs}")
        try:
            check_classes(np.unique(client.samples.labels), self.labels, self.listed)
        except UploadRejected as error:
            what = "labels of the other kind" if error.code == "labels" else "a class beyond it"
            said = self.labels if error.code == "labels" else _said(self.class_list)
            raise _refused(f"labels: the server says {said}, this node has {what}") from error

    def check_step(self, step: Step, broadcast: Arrays) -> None:
        """Refuse a question about other features or classes than the agreed ones.

        What goes through a network has the dimension and the bound of its output.
        """
        params = step.params
        job = params.get("job") or params.get("begin") or {}
        spec = job.get("spec", {})
        through = params.get(EXTRACTOR) or spec.get("network")
        if step.name == "measure" and not through and params.get("bound") != self.bound:
            self._not("bound", self.bound, params.get("bound"), step)
        if "dimension" in spec and not through and not spec.get("feature_map"):
            self._same_dimension(spec["dimension"], step)
        if step.name == "unit-sums" and self.class_list:  # which of them one has is not told
            asked = sorted(np.unique(as_labels(params["classes"])).tolist())
            if asked != sorted(self.class_list):
                self._not("classes", self.class_list, tuple(asked), step)
        for classes in (params.get("classes"), broadcast.get("classes")):
            if classes is not None:
                self._known(classes, step)
        if "head" in broadcast:
            head = LinearHead.from_bytes(broadcast["head"].tobytes())
            self._known(head.classes, step)
            if not through and head.feature_map is None:
                self._same_dimension(head.dimension, step)

    @property
    def listed(self) -> Any:
        return as_labels(list(self.class_list))

    def _same_dimension(self, dimension: object, step: Step) -> None:
        if dimension != self.dimension:
            self._not("dimension", self.dimension, dimension, step)

    def _known(self, classes: Any, step: Step) -> None:
        try:
            check_classes(as_labels(classes), self.labels, self.listed)
        except HeadstartError as error:
            own = _said(self.class_list or self.labels)
            raise _refused(f"classes: this node joined with {own}; {step.name}: {error}") from None

    def _not(self, name: str, own: object, told: object, step: Step) -> None:
        raise _refused(
            f"{name}: this node joined with {_said(own)}, got {step.name} with {_said(told)}"
        )


def hold(
    folder: Path,
    told: Mapping[str, Any] | None,
    step: Step,
    broadcast: Arrays,
    client: ClientData,
    extractor: Mapping[str, Any] | None,
) -> None:
    """Hold a question to what was agreed; the first agreement is written down before any answer."""
    with locked(folder / f"{FILE}.lock"):
        own = held(folder)
        terms = None if told is None else Agreement.from_plain(told)
        if own is not None and terms is not None:
            own.check_same(terms)
        agreed = own or terms
        if agreed is None:
            if step.name == "measure":
                raise _refused("this node joined with nothing yet, got a question without terms")
            return
        agreed.check_samples(client, extractor)
        agreed.check_step(step, broadcast)
        if own is None:
            text = json.dumps({"version": 1, **agreed.to_plain()}, indent=1)
            write_text(folder / FILE, text, PRIVATE)
            sync_folder(folder)


def held(folder: Path) -> Agreement | None:
    """What this node joined with; None: nothing yet."""
    try:
        plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
        if plain.pop("version") != 1:
            raise ValueError
        return Agreement.from_plain(plain)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise HeadstartError(
            f"agreement: {FILE} in the private folder is damaged; its owner restores it, "
            "or removes it and joins anew"
        ) from None


def _refused(text: str) -> UploadRejected:
    return UploadRejected(CODE, f"agreement: {text}")


def _said(value: Any) -> str:
    """A term, as a line can hold it."""
    if isinstance(value, Mapping):
        return f"{value.get('name')!s:.80} (identity {value.get('identity')!s:.12}…)"
    if isinstance(value, tuple):
        return f"{len(value)} classes" if value else "any classes"
    return "none" if value is None else f"{value!s:.80}"
