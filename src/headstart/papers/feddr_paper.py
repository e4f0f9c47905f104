"""The numbers of FedDr+'s tables: MobileNet on CIFAR-100, % of the outside test set.

Columns of tables 2, 12 and 13: the terms below; rows: the algorithms. A split is "shards" (10 per
client) or "dirichlet" (α = 0.1 by class). Table 4 (seconds per round) leaves FedProx and Scaffold
out in the text that we have.
"""

from __future__ import annotations

TERMS = ("none", "prox", "kd", "ntd", "ld", "moon", "fd")
ALGORITHMS = {  # by the paper's names: the head that they begin with, and their name here
    "FedAvg": ("none", "fedavg"),
    "FedBABU": ("none", "fedbabu"),
    "SphereFed": ("orthonormal", "spherefed"),
    "FedETF": ("etf", "fedetf"),
    "FedGELA": ("etf", "fedgela"),
    "Dot-Regression": ("etf", "dot-regression"),
}
SETTING = {"network": "mobilenet", "pixels": 32, "batch_norm": "average"}
IMAGES = {"classes": 100, "train": 500, "test": 100}  # of CIFAR-100: per class
SPLITS = {
    "shards": {"name": "shards", "clients": 100, "shards_per_client": 10},
    "dirichlet": {"name": "dirichlet", "clients": 100, "alpha": 0.1},
}

_TABLE_2 = {
    "shards": """
        37.22 36.87 36.25 37.71 37.17 37.43 37.82
        46.20 46.03 46.37 47.22 46.71 46.49 46.95
        43.90 41.96 44.94 43.47 43.95 43.13 45.21
        32.42 31.87 32.76 32.65 32.25 34.30 32.77
        29.17 28.69 29.11 28.84 29.36 28.80 30.33
        42.52 41.95 47.45 48.32 47.52 44.72 48.69""",
    "dirichlet": """
        42.52 43.22 44.21 43.39 43.43 44.79 43.76
        47.37 46.62 47.60 46.48 45.78 46.27 46.49
        46.98 43.77 47.76 47.25 47.01 46.81 49.74
        46.27 45.71 46.67 46.16 45.91 45.98 46.47
        27.11 29.03 28.45 29.62 29.41 28.09 29.75
        42.72 46.35 49.47 50.36 49.28 50.36 50.86""",
}
_TABLE_12 = {  # β; the baseline has none
    "shards": """
        1 0.999 0.9999 0.9999 0.999 0.5 0.9
        1 0.9999 0.999 0.99 0.999 0.9 0.999
        1 0.9999 0.9999 0.9 0.99 0.9999 0.9
        1 0.999 0.5 0.999 0.9 0.3 0.9
        1 0.9999 0.5 0.7 0.5 0.7 0.7
        1 0.9999 0.5 0.5 0.5 0.9 0.9""",
    "dirichlet": """
        1 0.999 0.999 0.99 0.999 0.99 0.9999
        1 0.999 0.999 0.999 0.99 0.999 0.9999
        1 0.9999 0.999 0.9999 0.999 0.999 0.99
        1 0.9999 0.5 0.999 0.99 0.9999 0.99
        1 0.99 0.5 0.5 0.5 0.9 0.3
        1 0.9999 0.5 0.5 0.5 0.5 0.9""",
}
_TABLE_13 = {  # all at β = 0.9
    "shards": """
        37.22 30.27 35.14 35.56 34.83 36.67 37.82
        46.20 36.71 45.50 45.09 45.81 46.49 45.31
        43.90 1.36 41.01 43.47 41.73 1.89 45.21
        32.42 25.18 32.76 31.98 32.25 32.58 32.77
        29.17 25.52 28.84 28.67 28.37 28.57 29.07
        42.52 5.42 46.60 45.78 47.52 44.72 48.69""",
    "dirichlet": """
        42.52 36.09 41.48 41.34 43.36 42.09 43.10
        47.37 39.04 45.58 45.56 46.46 45.92 44.77
        46.98 1.46 45.22 46.25 43.84 2.21 48.61
        46.27 34.92 44.94 45.77 44.36 45.38 45.92
        27.11 26.84 27.78 28.27 27.97 28.09 27.60
        42.72 7.47 48.19 33.08 49.09 30.69 50.79""",
}


def _read(text: str) -> dict[tuple[str, str], float]:
    lines = [line.split() for line in text.strip().splitlines()]
    return {
        (row, term): float(cell)
        for row, line in zip(ALGORITHMS, lines, strict=True)
        for term, cell in zip(TERMS, line, strict=True)
    }


TABLE_2 = {split: _read(text) for split, text in _TABLE_2.items()}
TABLE_12 = {split: _read(text) for split, text in _TABLE_12.items()}
TABLE_13 = {split: _read(text) for split, text in _TABLE_13.items()}

TABLE_4 = {  # seconds per round, CIFAR-100, 10 shards per client
    "fedavg": 20.4,
    "fedbabu": 20.5,
    "fedetf": 20.7,
    "spherefed": 20.4,
    "fedgela": 20.5,
    "fedexp": 20.1,
    "fedprox": None,
    "scaffold": None,
    "fedntd": 21.2,
    "fedsol": 27.2,
    "moon": 56.7,
    "feddr-plus": 24.9,
}

_DR, _DR_PLUS = {"like": "dot-regression"}, {"like": "feddr-plus"}
# Tables 5 and 14, 10 shards and α = 0.1: the plain mean over clients of their accuracy. Head,
# algorithm and its settings; then those of local fine-tuning (None: it is personal already).
TABLE_5: dict[str, tuple[str, str, dict[str, str], dict[str, str] | None, float, float]] = {
    "Local only (CE)": ("none", "local-only", {}, None, 58.05, 43.76),
    "Local only (CE+ETF)": ("etf", "local-only", {}, None, 58.01, 43.37),
    "Local only (DR)": ("etf", "local-only", {"loss": "dot-regression"}, None, 60.68, 46.72),
    "FedPer": ("none", "fedper", {}, None, 70.67, 53.43),
    "Per-FedAvg": ("none", "per-fedavg", {}, None, 32.13, 35.56),
    "FedRep": ("none", "fedrep", {}, None, 63.14, 49.60),
    "Ditto": ("none", "ditto", {}, None, 39.26, 37.81),
    "FedAvg-FT": ("none", "fedavg", {}, {}, 69.81, 56.79),
    "FedBABU-FT": ("none", "fedbabu", {}, {}, 80.14, 70.83),
    "SphereFed-FT": ("orthonormal", "spherefed", {}, {}, 81.90, 70.00),
    "FedETF-FT": ("etf", "fedetf", {}, {}, 53.75, 53.97),
    "FedGELA-FT": ("etf", "fedgela", {}, {}, 75.53, 60.10),
    "FedDr+FT (Dr+)": ("etf", "feddr-plus", {}, {}, 84.10, 74.75),
    "FedDr+FT (DR)": ("etf", "feddr-plus", {}, _DR, 84.23, 74.86),
    "Dot-Regression FT (DR)": ("etf", "dot-regression", {}, {}, 80.84, 66.96),
    "Dot-Regression FT (Dr+)": ("etf", "dot-regression", {}, _DR_PLUS, 80.82, 66.59),
}
