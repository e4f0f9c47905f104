"""The tables of docs/personalize.md: what closed forms make of the global head on each client.

    python benchmarks/personal.py                                          # digits
    python benchmarks/personal.py --cifar100 cifar100.npz --pacs pacs.npz  # of `headstart features`

CUB-200's features are looked for under HEADSTART_DATA (../shared/data if it is not set).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.evaluate import PERSONAL
from headstart.heads.leverage import Leverage
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.personalize import variants
from headstart.pipeline.run import simulate
from headstart.results import PersonalScores

Settings = dict[str, Any]
CUB = Path("cub200_features", "cub200_mobilenet_v2.npz")
FED3R = "Fed3R(normalize=true, ridge=0.01)"
GCV = "Fed3R(normalize=true, ridge=gcv)"
PACS = {"": FED3R, "λ by GCV": GCV, "FedNCM": "FedNCM", "LDA": "LDA"}
RANDOM = "Fed3R-RF(dimension=2000, bandwidth=auto)"


def split(clients: int, alpha: float) -> Settings:
    return {"name": "dirichlet", "clients": clients, "alpha": alpha}


def federations(files: Mapping[str, Path | None]) -> Iterator[tuple[str, Settings, dict[str, str]]]:
    """(name, the settings of a run, its heads by their labels) of the data that are here."""
    for alpha in (0.1, 0.5):
        if cifar := files["CIFAR-100"]:
            settings = {"data": str(cifar), "partition": split(100, alpha)}
            yield f"CIFAR-100, Dirichlet {alpha}", settings, {"": FED3R}
    if pacs := files["PACS"]:
        yield "PACS, a domain per client", {"data": str(pacs), "partition": "domain"}, PACS
    for alpha in (0.1, 0.5):
        if cub := files["CUB-200"]:
            settings = {"data": str(cub), "partition": split(20, alpha)}
            yield f"CUB-200, Dirichlet {alpha}", settings, {"": FED3R, "λ by GCV": GCV}
    settings = {"data": "digits", "partition": split(50, 0.1)}
    yield "digits, Dirichlet 0.1", settings, {"": FED3R, "2,000 random features": RANDOM}


def measured(
    settings: Settings, heads: Mapping[str, str]
) -> Iterator[tuple[str, list[PersonalScores]]]:
    """Of each head: as it is, the ridge without leverage, the temperature as if left out."""
    experiment = prepare(make_config({**settings, "held_out": 0.45, "curve_points": 1}))
    other_config = experiment.config.model_copy(update={"temperature": "left-out"})
    left_out = replace(experiment, config=other_config)
    for said, head in heads.items():
        found, state, context = simulate(experiment, parsed(head))
        again, _, _ = simulate(left_out, parsed(head))
        unlevered = variants(context, replace(state, leverage=Leverage()), final="ridge")
        tests = (found.personal, unlevered, again.personal)
        yield said, [one for one in tests if one is not None]


def row(name: str, tests: list[PersonalScores]) -> str:
    plain, unlevered, left_out = tests
    change = plain.change("ridge", "prior")
    shares = [plain.weighted(model) for model in PERSONAL]
    shares += [unlevered.weighted("ridge"), left_out.weighted("prior"), left_out.weighted("ridge")]
    cells = [f"{100 * share:.1f}" for share in shares]
    cells[4:4] = [str((change > 0).sum()), str((change < 0).sum())]
    return f"| {name} | {len(plain.clients)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar100", type=Path, help="its features, of `headstart features`")
    parser.add_argument("--pacs", type=Path, help="the same of PACS, with its domains")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    cub = Path(os.environ.get("HEADSTART_DATA", "../shared/data")) / CUB
    named = {"CIFAR-100": args.cifar100, "PACS": args.pacs, "CUB-200": cub}
    files = {name: path if path and path.exists() else None for name, path in named.items()}
    for name, path in named.items():
        if files[name] is None:
            print(f"{name}: not run ({f'no file {path}' if path else 'no features are named'})")
    print("| | clients | global | OLL | prior | ridge | gain | lose ", end="")
    print("| ridge, no leverage | prior, left-out T | ridge, left-out T |")
    print("|---" * 11 + "|")
    for name, settings, heads in federations(files):
        for said, tests in measured({**settings, "seed": args.seed}, heads):
            print(row(f"{name}, {said}" if said else name, tests), flush=True)


if __name__ == "__main__":
    main()
