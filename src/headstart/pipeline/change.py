"""A saved run goes on: a late client joins, a client is forgotten, and the head follows exactly."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import ClientData, perform
from headstart.federation.simulator import secret_of
from headstart.files import readable, write_bytes
from headstart.heads.linear import LinearHead
from headstart.pipeline.experiment import read_data
from headstart.pipeline.folder import RunFolder


def add(path: str | Path, client: str, data: str) -> LinearHead:
    """Measure a new client's samples and put them into the total and the model."""
    folder, client = RunFolder(Path(path)), readable(client)
    config, head, members = folder.config, folder.head(), folder.members()
    _settle(folder, head)
    if not client:
        raise HeadstartError("client: expected a name, got ''")
    if client in members:
        raise HeadstartError(f"client: {client!r} is in this run already; forget it first")
    message = _measured(folder, head, client, data)
    after = folder.load_total(head) + head.statistic.from_bytes(message)
    model = head.solve(after)
    if config.keep_uploads:
        write_bytes(folder.upload_path(client), message)
    members[client] = _mark(message)
    return _save(folder, model, after, members, "add", client)


def forget(path: str | Path, client: str, data: str | None = None) -> LinearHead:
    """Take a client out: the total, the model and the stored upload, as if it had never joined.

    Without a kept upload, the client's own `data` are measured again: the same bytes.
    """
    folder, client = RunFolder(Path(path)), readable(client)
    head, members = folder.head(), folder.members()
    settled = _settle(folder, head)
    if client not in members and settled and folder.upload_path(client).exists():
        folder.upload_path(client).unlink()  # the end of a forgetting that was cut short
        return settled
    if client not in members:
        known = ", ".join(list(members)[:5])
        raise HeadstartError(f"client: expected one of this run ({known} …), got {client!r}")
    mark = members.pop(client)
    if not members:
        raise HeadstartError(f"client: {client!r} is the last of this run; delete the folder")
    if head.statistic.is_sum:
        after = folder.load_total(head) - head.statistic.from_bytes(
            _kept_or_measured(folder, head, client, data, mark)
        )
    else:
        after = _stacked(folder, head, members)
    model = _save(folder, head.solve(after), after, members, "forget", client)
    folder.upload_path(client).unlink(missing_ok=True)
    return model


def _settle(folder: RunFolder, head: Any) -> LinearHead | None:
    """Finish a change that was cut short between the total and the model."""
    old, total = folder.model(), folder.load_total(head)
    if old.provenance["total"] == total.digest():
        return None
    return _save(folder, head.solve(total), total, folder.members(), "settle", "")


def _mark(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()


def _measured(folder: RunFolder, head: Any, client: str, data: str) -> bytes:
    """The message of a client with these samples, on the lattice of this run."""
    config = folder.config
    if config.shift is not None:
        raise HeadstartError(
            f"shift: expected a run of images as they are, got one shifted by {config.shift:g}, "
            "in which a new client has no domain"
        )
    about = folder.model().provenance.get("extractor")
    samples = read_data(data, config, about=about).data
    if samples.dimension != folder.dimension:
        raise HeadstartError(
            f"data: expected features of dimension {folder.dimension}, got {samples.dimension}"
        )
    own = ClientData(samples.features, samples.labels, secret=secret_of(config.seed, client))
    step = steps.measure(head, exact=config.exact, bound=float(config.bound))
    return perform(step, own, {}).to_bytes(config.precision)


def _kept_or_measured(
    folder: RunFolder, head: Any, client: str, data: str | None, mark: str
) -> bytes:
    kept = folder.upload_path(client)
    if kept.exists():
        message = kept.read_bytes()
    elif data is not None:
        message = _measured(folder, head, client, data)
    else:
        raise HeadstartError(f"client: {client!r} left no upload here; give its data (--data)")
    if _mark(message) != mark:
        raise HeadstartError(f"client: this is not what {client!r} sent; nothing was changed")
    return message


def _stacked(folder: RunFolder, head: Any, members: dict[str, str]) -> Any:
    """Rows do not subtract: those of the others are stacked again."""
    missing = [name for name in members if not folder.upload_path(name).exists()]
    if missing:
        raise HeadstartError(
            f"forget: {head.title} has rows, not sums, and needs all other uploads; "
            f"missing {', '.join(missing[:5])}"
        )
    return head.statistic.total(
        head.statistic.from_bytes(folder.upload_path(name).read_bytes()) for name in members
    )


def _save(
    folder: RunFolder,
    model: LinearHead,
    after: Any,
    members: dict[str, str],
    what: str,
    client: str,
) -> LinearHead:
    """The new total, then the new model; the calibrated temperature stays."""
    old = folder.model()
    kept: dict[str, Any] = {
        key: value for key, value in old.provenance.items() if key in ("extractor", "shift")
    }
    about = {**model.provenance, **kept}
    model = replace(model, temperature=old.temperature, provenance=about)
    folder.save_total(after, folder.dimension, members)
    model.save(folder.path / "model.safetensors")
    folder.event(what, client=client, total=after.digest(), superseded=old.provenance["total"])
    return model
