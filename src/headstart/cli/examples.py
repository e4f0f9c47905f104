"""Examples for every `--help`; a test reads each as the command line would."""

from __future__ import annotations

from collections.abc import Sequence

FIRST = (
    "headstart demo                                              # digits over 50 clients",
    "headstart fit --data digits --clients 20 --out runs/mine    # a model and its report",
    'headstart compare "Fed3R" "Fed3R + FedAvg-50(head)" --data digits --watch',
)
EXAMPLES: dict[str, Sequence[str]] = {
    "demo": (
        "headstart demo",
        "headstart demo --clients 100 --alpha 0.5 --watch",
        "headstart demo streets",
    ),
    "run": (
        'headstart run "Fed3R + FedAvg-50(head)" --data digits',
        'headstart run "Fed3R + FP(head)" --data features.csv partition.alpha=0.5 --seeds 5',
        "headstart run study.yaml cohort=10 --watch",
    ),
    "compare": (
        'headstart compare "Fed3R" "LDA" "FedCOF" --data digits --seeds 5',
        'headstart compare "Fed3R" "none + FedAvg-50(head)" --data digits --json',
    ),
    "fit": (
        "headstart fit --data digits --clients 20 --out runs/digits",
        "headstart fit --data photos --out runs/photos",
        "headstart fit --data features.csv --label species --client site --head fedcof",
        "headstart fit --data digits --epsilon 2",
    ),
    "watch": (
        "headstart watch runs/mine",
        "headstart watch runs/one runs/two",
        "headstart watch federation/server/ledger",
        "headstart watch later --wait --open",
    ),
    "evaluate": (
        "headstart evaluate runs/mine --data digits",
        "headstart evaluate runs/mine --data features.csv --label species --json",
    ),
    "predict": (
        "headstart predict runs/photos --data new-photos",
        "headstart predict runs/mine --data new.csv --out predictions.csv",
    ),
    "features": (
        "headstart features --data photos --out features.npz",
        "headstart features --data notes.csv --text note --extractor all_minilm_l6_v2 -o notes.npz",
    ),
    "export": ("headstart export runs/photos --out model.onnx",),
    "add": ("headstart add runs/mine --data late.csv --client site-9",),
    "forget": (
        "headstart forget runs/mine site-9",
        "headstart forget federation/server/ledger site-a",
    ),
    "reproduce": (
        "headstart reproduce",
        "headstart reproduce fedcof-table3 --data cifar100=features.npz --out results",
    ),
    "list": ("headstart list", "headstart list --json", "headstart list --plugin mine.py"),
    "doctor": ("headstart doctor", "headstart doctor --json"),
    "deploy init": (
        "headstart deploy init fed --node site-a --node site-b --dimension 64 --bound 1.0",
    ),
    "deploy node": ("headstart deploy node fed site-c",),
    "deploy key": ("headstart deploy key sign.key",),
    "ledger list": ("headstart ledger list fed/server/ledger",),
    "ledger verify": ("headstart ledger verify fed/server/ledger --quiet",),
    "ledger budget": (
        "headstart ledger budget runs/private",
        "headstart ledger budget runs/private --json",
    ),
    "ledger export": ("headstart ledger export fed/server/ledger uploads",),
}
WHOLE = "\b"  # click breaks no lines of such a paragraph


def epilog(examples: Sequence[str], title: str = "Examples:") -> str:
    """A paragraph of examples, one per line."""
    return "\n".join((WHOLE, title, *(f"  {example}" for example in examples)))
