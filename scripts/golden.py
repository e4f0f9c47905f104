"""The golden baseline: what every head and every method gives on small data, written to a file.

    python scripts/golden.py tests/golden.json     # digests of totals, accuracies, bytes
    python scripts/golden.py /tmp/bits.json --bits # also a digest of every model's parameters

Digests of totals are the same on every machine. Digests of models are so on one machine only, so
they are for comparing two versions of the code side by side, and stay out of the repository.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from headstart import gradient, heads

DIGITS = {
    "data": "digits",
    "partition": {"name": "dirichlet", "clients": 20, "alpha": 0.1},
    "held_out": 0.45,
    "cohort": 5,
}
HEADS = {"fed3r-rf": "(dimension=200, bandwidth=auto)"}
PIPELINES = (
    "Fed3R(ridge=gcv) + FedAvg-5(ψ)",
    "OLL(Fed3R + FedAvg-3(ψ)) + FP-2(ψ)",
    "Fed3R + FedAvg-3(ψ) + FP-2(ditto, ψ)",
    "Fed3R + prior",
    "FedNCM + FedAvg-2(ψ) + ridge",
    "Fed3R + FedAvg-6(ψ, window=3)",
    "Fed3R-RF(dimension=50, bandwidth=auto) + FedAvg-2(ψ)",
)
NETWORK = (
    "Fed3R",
    "Fed3R + FedAvg-2(φ)",
    "Fed3R + FedAvg-2(f) + ridge",
    "none + FedAvg-2(f) + FedAlt-1(personal=head) + FP-1(head)",
    "ETF + FedDr+-2",
    "none + FedRep-2",
    "none + MOON-2(f)",
    "Fed3R-FT(FedAvg-3(f, lr=0.01))",
    "Fed3R + FedAvg-3(f, lr=0.01, refit=fed3r)",
    "FedNCM-FT(FedAvg-2(f, lr=0.01))",
)


def painted(folder: Path) -> dict[str, Any]:
    """Four clients, three classes that differ by colour, 12 pixels; some are of another class."""
    rng = np.random.default_rng(0)
    for client in range(4):
        for at in range(18):
            pixels = rng.integers(0, 90, (12, 12, 3))
            pixels[:, :, at % 3] += 110
            place = folder / f"c{client}" / f"k{(at + (at % 6 == 5)) % 3}" / f"{at}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(place)
    return {"data": str(folder), "network": "small_cnn", "pixels": 8, "held_out": 0.3, "cohort": 2}


def cases(images: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(pipeline, settings) of everything that is recorded."""
    for name in heads.HEADS:
        yield name + HEADS.get(name, ""), DIGITS
    for name in gradient.METHODS:
        recipe = gradient.make(name)
        if recipe.dense:  # of masks, which these data lack
            continue
        if recipe.trains is None and recipe.personal is None:
            yield f"Fed3R + {name}-3", DIGITS
            yield f"none + {name}-3", DIGITS
        yield f"etf + {name}-1", images
    for text in PIPELINES:
        yield text, DIGITS
    for text in NETWORK:
        yield text, images


def outcome(pipeline: str, settings: dict[str, Any], *, bits: bool) -> dict[str, Any]:
    """What a pipeline gives, as plain values."""
    from headstart.pipeline.config import make_config, parsed
    from headstart.pipeline.experiment import prepare
    from headstart.pipeline.run import simulate

    experiment = prepare(make_config(settings))
    result, state, _ = simulate(experiment, parsed(pipeline))
    own, last = result.personal, result.curve[-1]
    found = {
        "accuracy": result.accuracy,
        "before": own.weighted("global") if own else None,
        "after": own.weighted() if own else None,
        "up": last.up,
        "down": last.down,
        "flops": last.flops,
    }
    if state.head is not None:
        found["total"] = state.head.provenance["total"]
    if bits and state.spec is not None:
        mark = hashlib.sha256()
        for name, array in sorted(state.params.items()):
            mark.update(name.encode() + np.ascontiguousarray(array).tobytes())
        found["model"] = mark.hexdigest()
    return found


def record(*, bits: bool) -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        images = painted(Path(folder))
        for pipeline, settings in cases(images):
            where = "digits" if settings is DIGITS else "pictures"
            found[f"{where}: {pipeline}"] = outcome(pipeline, settings, bits=bits)
    return found


def main() -> None:
    path, *flags = sys.argv[1:]
    text = json.dumps(record(bits="--bits" in flags), indent=1, ensure_ascii=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
