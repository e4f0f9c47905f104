"""A saved run goes on: a late client joins, a client is forgotten, and the head follows exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.errors import HeadstartError
from headstart.files import readable, write_bytes
from headstart.heads.base import Head
from headstart.heads.linear import LinearHead
from headstart.pipeline.folder import RunFolder
from headstart.pipeline.renew import mark_of, message_of, renew, samples_of
from headstart.pipeline.run import load_results, run_folders
from headstart.progress import Progress, silent
from headstart.report import write_report


def add(path: str | Path, client: str, data: str, progress: Progress = silent) -> LinearHead:
    """Measure a new client's samples and put them into the total and the model."""
    folder, client = RunFolder(Path(path)), readable(client)
    _refuse_private(folder)
    config, head = folder.config, folder.head()
    _settle(folder, head, progress)
    members, sources = folder.members(), folder.sources()
    if not client:
        raise HeadstartError("client: expected a name, got ''")
    if client in members:
        raise HeadstartError(f"client: {client!r} is in this run already; forget it first")
    message = _measured(folder, head, client, data)
    after = folder.load_total(head) + head.statistic.from_bytes(message)
    model = head.solve(after)
    if config.keep_uploads:
        write_bytes(folder.upload_path(client), message)
    members[client], sources[client] = mark_of(message), data
    old = _save(folder, model, after, members, sources)
    folder.event("add", client=client, total=after.digest(), superseded=old)
    return renew(folder, head, folder.model(), progress)


def forget(
    path: str | Path, client: str, data: str | None = None, progress: Progress = silent
) -> LinearHead:
    """Take a client out, as if it had never joined: of the total, the model, and every file.

    Without a kept upload, the client's own `data` are measured again: the same bytes. Of a folder
    of several runs, out of each.
    """
    several = run_folders(Path(path))
    if several != [Path(path)]:
        for place in several:
            model = forget(place, client, data, progress)
        write_report(load_results(Path(path)), Path(path))
        return model
    folder, client = RunFolder(Path(path)), readable(client)
    _refuse_private(folder)
    head = folder.head()
    recorded = client in folder.strangers() or folder.upload_path(client).exists()
    settled = _settle(folder, head, progress)
    members = folder.members()
    if client not in members and recorded and settled:  # a forgetting that was cut short
        return settled
    if client not in members:
        among = ", ".join(list(members)[:5])
        raise HeadstartError(f"client: expected one of this run ({among} …), got {client!r}")
    mark = members.pop(client)
    if not members:
        raise HeadstartError(f"client: {client!r} is the last of this run; delete the folder")
    if head.statistic.is_sum:
        after = folder.load_total(head) - head.statistic.from_bytes(
            _kept_or_measured(folder, head, client, data, mark)
        )
    else:
        after = _stacked(folder, head, members)
    old = _save(folder, head.solve(after), after, members, folder.sources())
    folder.event("forget", upload=mark, total=after.digest(), superseded=old)
    return _shown(folder, head, progress)


def _settle(folder: RunFolder, head: Head, progress: Progress) -> LinearHead | None:
    """Finish a change that was cut short: the model is the total's, and nobody else is named."""
    old, total = folder.model(), folder.load_total(head)
    whole = old.provenance["total"] == total.digest()
    if whole and not folder.strangers() and not folder.lost_uploads():
        return None
    if not whole:
        before = _save(folder, head.solve(total), total, folder.members(), folder.sources())
        folder.event("settle", total=total.digest(), superseded=before)
    return _shown(folder, head, progress)


def _refuse_private(folder: RunFolder) -> None:
    if folder.config.private is not None:
        raise HeadstartError(
            f"run: {folder.path} holds a private release, which cannot be changed or recalled; a "
            "new run on other clients is a new release, with noise and a budget of its own"
        )


def _shown(folder: RunFolder, head: Head, progress: Progress) -> LinearHead:
    """The results without those who are out, and then no other trace of them.

    A temperature that the samples of those had a part in goes, if it cannot be measured again.
    """
    model = renew(folder, head, replace(folder.model(), temperature=None), progress)
    folder.purge()
    return model


def _measured(folder: RunFolder, head: Head, client: str, data: str) -> bytes:
    if folder.config.shift is not None:
        raise HeadstartError(
            f"shift: expected a run of images as they are, got one shifted by "
            f"{folder.config.shift:g}, in which a new client has no domain"
        )
    return message_of(folder, head, client, samples_of(folder, data))


def _kept_or_measured(
    folder: RunFolder, head: Head, client: str, data: str | None, mark: str
) -> bytes:
    kept = folder.upload_path(client)
    if kept.exists():
        message = kept.read_bytes()
    elif data is not None:
        message = _measured(folder, head, client, data)
    else:
        raise HeadstartError(f"client: {client!r} left no upload here; give its data (--data)")
    if mark_of(message) != mark:
        raise HeadstartError(f"client: this is not what {client!r} sent; nothing was changed")
    return message


def _stacked(folder: RunFolder, head: Head, members: dict[str, str]) -> Any:
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
    sources: dict[str, str],
) -> str:
    """The new total, then the new model, with the temperature of the old; whose total it was."""
    old = folder.model()
    kept: dict[str, Any] = {
        key: value for key, value in old.provenance.items() if key in ("extractor", "shift")
    }
    about = {**model.provenance, **kept}
    model = replace(model, temperature=old.temperature, provenance=about)
    folder.save_total(after, folder.dimension, members, sources)
    model.save(folder.path / "model.safetensors")
    return str(old.provenance["total"])
