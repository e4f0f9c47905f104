"""Settings and results of short runs of FedDr+'s cells."""

from __future__ import annotations

from headstart.papers import feddr_table2
from headstart.pipeline.config import make_config

SHORT = {"rounds": 2, "epochs": 1}


def table_2(split="shards", **settings):
    return feddr_table2.table_cells(feddr_table2.Settings(**settings), split)


def settings(pictures, **more):
    return make_config(
        {
            "data": str(pictures),
            "network": "small_cnn",
            "pixels": 8,
            "cohort": 3,
            "partition": {"name": "shards", "clients": 6, "shards_per_client": 2},
            **more,
        }
    )
