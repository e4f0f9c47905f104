"""`headstart ledger`: what a ledger holds, whether it is sound, and its uploads as plain files."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headstart.console import say, show_rows

app = typer.Typer(help="The durable uploads of a deployed federation.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="a ledger's folder")]


@app.command(name="list")
def list_uploads(path: Folder) -> dict[str, Any]:
    """Who is in the total, the models made from it, and what was refused."""
    from headstart.deploy.ledger import Ledger

    with Ledger.open(path, write=False) as ledger:
        contract, total = ledger.contract, ledger.total()
        mode = "exact" if contract.exact else "not exact"
        say(
            f"round {contract.round}: {contract.head.title}, dimension {contract.dimension}, {mode}"
        )
        rows = [
            (", ".join(e.clients), f"{e.samples:,}", f"{e.size:,}", str(e.number), e.digest[:16])
            for e in ledger.entries()
        ]
        if rows:
            show_rows(("client", "samples", "bytes", "record", "sha256"), rows)
        say(f"{len(ledger.members())} clients, {total.samples:,} samples, total {total.digest()}")
        if ledger.index.forgotten:
            say(f"forgotten: {ledger.index.forgotten}")
        if waiting := len(ledger.index.unfinished):
            say(f"forgetting not finished: {waiting}; forget again when the disk has space")
        for (where, state), times in Counter((m.path, m.state) for m in ledger.models()).items():
            say(f"model {where}: {state}" + (f" ({times} versions)" if times > 1 else ""))
        codes = Counter(refusal.code for refusal in ledger.refusals())
        if codes:
            say("refused: " + ", ".join(f"{code} {times}" for code, times in codes.most_common()))
        if bad := ledger.unreadable:
            say(f"refusals: {bad} line{'s' * (bad > 1)} cannot be read")
        header = ("clients", "samples", "size", "number", "digest")
        return {
            "round": contract.round,
            "head": contract.head.title,
            "dimension": contract.dimension,
            "exact": contract.exact,
            "uploads": [{key: getattr(e, key) for key in header} for e in ledger.entries()],
            "clients": len(ledger.members()),
            "samples": total.samples,
            "total": total.digest(),
            "forgotten": ledger.index.forgotten,
            "refused": dict(codes),
            "models": [{"path": m.path, "state": m.state} for m in ledger.models()],
        }


@app.command()
def verify(path: Folder) -> dict[str, Any]:
    """Read every byte again: checksums, the admission of each upload, the total, the models."""
    from headstart.deploy.verifying import verify as check

    report = check(path)
    say(
        f"sound: {report.clients} clients, {report.uploads} uploads, "
        f"{report.payload_bytes:,} bytes, "
        f"{report.models} model{'s' * (report.models != 1)}, total {report.total}"
    )
    if report.torn:
        say(f"{report.torn} bytes at the end were never acknowledged; the next start cuts them off")
    return asdict(report)


@app.command()
def export(
    path: Folder, folder: Annotated[Path, typer.Argument(help="the folder to make")]
) -> dict[str, Any]:
    """The uploads and their total as plain files; forgetting finds them there."""
    from headstart.deploy.ledger import Ledger

    with Ledger.open(path) as ledger:
        ledger.export(folder)
        say(f"{len(ledger.entries())} uploads and their total in {folder}")
        return {"uploads": len(ledger.entries()), "folder": folder}


@app.command()
def budget(
    path: Annotated[Path, typer.Argument(help="a private run's folder, or that of its charges")],
    delta: Annotated[
        float | None, typer.Option(help="δ at which ε is reported (that of the run, or 1e-5)")
    ] = None,
) -> dict[str, Any]:
    """What has been released over one data set under differential privacy, and what is left."""
    from headstart.pipeline.private import spending

    found = spending(path, delta)
    rows = [
        (name, f"{mu:.4g}", f"{epsilon:.4g}", state) for name, mu, epsilon, state in found.releases
    ]
    if rows:
        show_rows(("release", "μ", "ε alone", "state"), rows)
    say(f"spent: ε = {found.epsilon:.4g} at δ = {found.delta:g} (μ = {found.mu:.4g})")
    if found.promised:
        epsilon, of = found.promised
        left = f"left for one more release: μ = {found.left:.4g}"
        say(f"promised: ε = {epsilon:g} at δ = {of:g}; {left}")
    return asdict(found)


def forget_client(path: Path, client: str) -> dict[str, Any]:
    """What `headstart forget` does on a ledger: take a client out, and say what that changed."""
    from headstart.deploy.forgetting import forget

    left = forget(path, client)
    say(f"{client} is out: {left.members} clients, total {left.total[:16]}…")
    for where in left.renewed:
        say(f"solved again: {where}")
    for where in left.removed:
        say(f"deleted, since no head can be solved without {client}: {where}")
    for model in left.superseded:
        say(f"superseded: {model.path}, sha256 {model.digest}")
    for where in left.exports:
        say(f"purged: {where}")
    for where in left.unreachable:
        say(f"not reached, look yourself: {where}")
    lists = ("renewed", "removed", "exports", "unreachable")
    kept = {key: getattr(left, key) for key in lists}
    return {"clients": left.members, "total": left.total, **kept}
