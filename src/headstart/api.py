"""Federations from Python: `run`, `compare` and `load_result`, as `headstart.run` and so on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.data.datasets import Dataset
from headstart.data.table import Columns, split_mask
from headstart.errors import DataError, HeadstartError
from headstart.pipeline.config import RunConfig, make_config, parsed
from headstart.pipeline.inputs import Input
from headstart.pipeline.phases import Phase
from headstart.pipeline.pipeline import Pipeline
from headstart.pipeline.run import compare as run_all
from headstart.pipeline.run import load_results
from headstart.results import Comparison, RunResult

_KEPT: list[tempfile.TemporaryDirectory[str]] = []  # gone when the process ends


def run(
    pipeline: str | Pipeline | Phase | Any,
    data: Any,
    *,
    test: Any = None,
    clients: int | None = None,
    alpha: float | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    **settings: Any,
) -> RunResult:
    """Run one pipeline on every seed and return its result.

    `pipeline`: notation, a `Pipeline`, one phase, or a head alone. `data`: a name, a path, arrays
    (X, y) or (X, y, client), or a DataFrame. `settings` are those of a run's configuration; an
    unknown one is refused, the nearest named.
    """
    how: dict[str, Any] = {"test": test, "clients": clients, "alpha": alpha, "seeds": seeds}
    return compare([pipeline], data, **how, seed=seed, out=out, plugins=plugins, **settings)[0]


def compare(
    pipelines: Sequence[str | Pipeline | Phase | Any],
    data: Any,
    *,
    test: Any = None,
    clients: int | None = None,
    alpha: float | None = None,
    seeds: int = 1,
    seed: int = 0,
    out: str | Path | None = None,
    plugins: Iterable[str | Path] = (),
    **settings: Any,
) -> Comparison:
    """Run several pipelines on the same splits and return their results, in their order."""
    for plugin in plugins:
        from headstart.registry import load_plugin

        load_plugin(plugin)
    if isinstance(pipelines, str):
        raise HeadstartError(f"pipelines: expected a list of them, got one ({pipelines!r})")
    read = [_pipeline(pipeline) for pipeline in pipelines]
    given = _input(data, test, _columns(settings))
    config = _config(data, test, given, clients, alpha, {"seed": seed, **settings})
    return Comparison(run_all(read, config, out or _temporary(), seeds, data=given))


def load_result(path: str | Path) -> RunResult | Comparison:
    """Read the results that a run or a comparison left in a folder; refused where it holds none."""
    results = load_results(Path(path))
    return results[0] if len(results) == 1 else Comparison(results)


def parse(notation: str) -> Pipeline:
    """Read a pipeline as the papers write it; an error points at the place it stumbled at."""
    return parsed(notation)


def _pipeline(pipeline: Any) -> Pipeline:
    if isinstance(pipeline, Pipeline):
        return parsed(pipeline)
    if isinstance(pipeline, Phase):
        return parsed(Pipeline(pipeline))
    if isinstance(pipeline, str | list):
        return parsed(pipeline)
    from headstart.pipeline.phases import InitHead

    return parsed(Pipeline(InitHead(pipeline)))


def _temporary() -> Path:
    _KEPT.append(tempfile.TemporaryDirectory(prefix="headstart-"))
    return Path(_KEPT[-1].name) / "run"


# -- data ------------------------------------------------------------------------------------------


def _columns(settings: Mapping[str, Any]) -> Columns:
    """The names that settings give to the columns of a DataFrame, as to those of a file."""
    return Columns(**{role: settings[role] for role in Columns().roles() if role in settings})


def _input(data: Any, test: Any, columns: Columns) -> Input | None:
    """Samples that are in memory; None where data is a name or a path."""
    if isinstance(data, str | Path):
        if test is not None and not isinstance(test, str | Path):
            raise DataError("test: expected a path beside data that is one, got arrays")
        return None
    if isinstance(test, str | Path):
        raise DataError("test: expected arrays beside data that are, got a path")
    samples = dataset(data, "data", columns)
    return Input(samples if test is None else samples.with_outside(dataset(test, "test", columns)))


def dataset(data: Any, name: str, columns: Columns) -> Dataset:
    """Arrays (X, y) or (X, y, client), or a DataFrame with a label column, as a Dataset."""
    if isinstance(data, Dataset):
        return data
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):
        return _of_frame(data, name, columns)
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise DataError(
            f"{name}: expected a name, a path, (X, y), (X, y, client) or a DataFrame, "
            f"got {type(data).__name__}"
        )
    features, labels, *client = data
    return Dataset(name, np.asarray(features), labels, *client)


def _of_frame(frame: Any, name: str, columns: Columns) -> Dataset:
    """Columns `label`, `client`, `domain` and `split`; all others are features."""
    columns.check(name, list(frame.columns))
    roles = {role: key for role, key in columns.roles().items() if key in frame.columns}
    features = frame.drop(columns=list(roles.values()))
    other = [str(key) for key, kind in features.dtypes.items() if kind.kind not in "fiub"]
    if other:
        raise DataError(
            f"{name}: expected numbers in the feature columns, got others in {other[0]}"
        )
    single = all(kind.kind == "f" and kind.itemsize <= 4 for kind in features.dtypes)
    values = {role: frame[key].to_numpy() for role, key in roles.items()}
    return Dataset(
        name,
        features.to_numpy(np.float32 if single else np.float64, na_value=np.nan),
        values["label"],
        values.get("client"),
        values.get("domain"),
        split_mask(values["split"], f"{name}: {columns.split!r}") if "split" in values else None,
    )


def _config(
    data: Any,
    test: Any,
    given: Input | None,
    clients: int | None,
    alpha: float | None,
    settings: dict[str, Any],
) -> RunConfig:
    named: dict[str, Any] = {"data": "arrays" if given else str(data)}
    if given is None and test is not None:
        named["test"] = str(test)
    if clients is not None or alpha is not None:
        if "partition" in settings:
            raise HeadstartError("partition: expected it, or clients and alpha, got both")
        dirichlet = {
            "clients": 10 if clients is None else clients,
            "alpha": 0.1 if alpha is None else alpha,
        }
        named["partition"] = {"name": "dirichlet", **dirichlet}
    elif named["data"] == "digits" and "partition" not in settings:
        named["partition"] = {"name": "dirichlet", "clients": 50, "alpha": 0.1}
    for key in ("pipeline", "data", "test"):
        if key in settings:
            raise HeadstartError(f"{key}: expected it as an argument of its own, once")
    return make_config({**named, **settings})
