"""Commands on a model, on features, and on the clients of a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headstart.cli import ledger
from headstart.cli.interrupt import saying
from headstart.cli.options import (
    ColumnOptions,
    Data,
    FeatureOptions,
    Text,
    Weights,
    with_options,
)
from headstart.console import bar, say, show_change, write_csv
from headstart.errors import HeadstartError

if TYPE_CHECKING:
    from headstart.data.table import Columns

Model = Annotated[Path, typer.Argument(help="model.safetensors, or a run folder")]
KEPT = "features made so far are kept, the same command goes on"


@with_options
def evaluate(
    model: Model,
    data: Data,
    columns: ColumnOptions,
    text: Text = None,
    weights: Weights = None,
) -> dict[str, Any]:
    """Test a model on labelled samples (their test part, if they say which it is)."""
    from headstart.data.cells import CellSet
    from headstart.evaluate import scores

    dense = _dense(model)
    if dense is not None:
        with saying(KEPT):
            return _said_pixels(*dense.tested(data, columns.named))
    head = _load(model)
    samples = _samples(head, data, columns.named, weights, text).data
    samples = samples if samples.test is None else samples.test_part()
    if isinstance(samples, CellSet):
        return _evaluate_pixels(head, samples)
    result = scores(head, samples.features, samples.labels)
    say(f"samples            {len(samples)}")
    say(f"accuracy           {result.accuracy:.4f}")
    say(f"balanced accuracy  {result.balanced_accuracy:.4f}")
    pairs = result.worst_pairs(5)
    for pair in pairs:
        say(f"mistake            {pair.true} as {pair.predicted}: {pair.samples}")
    return {
        "samples": len(samples),
        "accuracy": result.accuracy,
        "balanced_accuracy": result.balanced_accuracy,
        "mistakes": [pair._asdict() for pair in pairs],
    }


def _evaluate_pixels(head: Any, scenes: Any) -> dict[str, Any]:
    """The head on every pixel of the scenes' masks."""
    import numpy as np

    from headstart.evaluate import tested
    from headstart.statistics.confusion import Confusion

    result = tested(head, scenes.picked(np.arange(len(scenes))))
    return _said_pixels(len(scenes), Confusion(result.classes, result.confusion))


def _said_pixels(count: int, found: Any) -> dict[str, Any]:
    say(f"images             {count}")
    say(f"mIoU               {found.mean_iou:.4f}")
    say(f"pixel accuracy     {found.accuracy:.4f}")
    ious = found.iou.tolist()
    by_class = {str(name): iou for name, iou in zip(found.classes, ious, strict=True)}
    for name, iou in by_class.items():
        say(f"IoU                {iou:.4f} {name}")
    return {
        "images": count,
        "mean_iou": found.mean_iou,
        "pixel_accuracy": found.accuracy,
        "iou": by_class,
    }


@with_options
def predict(
    model: Model,
    data: Data,
    columns: ColumnOptions,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV; none: print; of scenes, a folder")
    ] = None,
    text: Text = None,
    weights: Weights = None,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Predict the class of each sample, with its probability; labels are not needed."""
    dense = _dense(model)
    if dense is not None:
        from headstart.pipeline.segmenting import segment_densely

        named = replace(columns.named, labelled=False)
        with saying(KEPT), bar() as show:
            count = segment_densely(dense, data, _folder(output), named, show)
        say(f"{count} masks in {output}, each with an overlay")
        return {"masks": count, "out": output}
    head = _load(model)
    if "cells" in (head.provenance.get("extractor") or {}):
        from headstart.pipeline.segmenting import segment

        named = replace(columns.named, labelled=False)
        with saying(KEPT), bar() as show:
            count = segment(head, data, _folder(output), named, weights, show)
        say(f"{count} masks in {output}, each with an overlay")
        return {"masks": count, "out": output}
    source = _samples(head, data, replace(columns.named, labelled=False), weights, text)
    features = source.data.features
    names = source.names or tuple(map(str, range(len(features))))
    table = {"sample": names, "class": head.predict(features).tolist()}
    if head.temperature:
        table["probability"] = [f"{p:.4f}" for p in head.probabilities(features).max(axis=1)]
    write_csv(table, output)
    if output is not None:
        return {"samples": len(names), "out": output}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return [row | {key: float(row[key]) for key in row if key == "probability"} for row in rows]


def _samples(
    head: Any,
    data: str,
    columns: Columns,
    weights: str | None,
    text: str | None,
) -> Any:
    """Samples as the model takes them: through the extractor it was made with."""
    from headstart.pipeline.inputs import Extraction, holds_images, holds_text, read

    about = head.provenance.get("extractor")
    raw = "sentences" if text else "images" if holds_images(data) else None
    if raw and about is None:
        raise HeadstartError(f"data: {data} holds {raw}, but the model was fitted to features")
    extracted = raw or holds_text(data, about)
    how = Extraction(about["name"], weights, text=text) if extracted else None
    with saying(KEPT), bar() as show:
        return read(data, columns, how, show, about=about)


@with_options
def features(
    data: Data,
    output: Annotated[Path, typer.Option("--out", "-o", help="the .npz file to write")],
    made: FeatureOptions,
    columns: ColumnOptions,
    engine: Annotated[str, typer.Option(help="onnx or torch")] = "onnx",
) -> dict[str, Any]:
    """Images or sentences to a file of features, cached and resumable."""
    from headstart.pipeline.inputs import Extraction, read, write_features

    how = Extraction(
        made.extractor,
        made.weights,
        bool(made.download),
        engine,
        bool(made.skip_corrupt),
        made.text,
        made.views,
    )
    with saying(KEPT), bar("sentences" if made.text else "images") as show:
        source = read(data, columns.named, how, show)
    write_features(source, output)
    say(f"{len(source.data)} samples of dimension {source.data.dimension} in {output}")
    return {"samples": len(source.data), "dimension": source.data.dimension, "out": output}


def export(
    model: Model,
    output: Annotated[Path, typer.Option("--out", "-o", help="the .onnx file to write")],
    weights: Weights = None,
) -> dict[str, Any]:
    """Extractor and head as one ONNX file (the head alone, if images are not what it is for)."""
    from headstart.pipeline.exporting import export_model

    takes = export_model(_load(model), output, weights)
    say(f"{takes} to classes: {output}")
    return {"takes": takes, "out": output}


def add(
    run_folder: Annotated[Path, typer.Argument(help="a run folder")],
    data: Data,
    client: Annotated[str, typer.Option("--client", help="the new client's id")],
) -> dict[str, Any]:
    """A late client joins a saved run."""
    from headstart.pipeline.change import add as change

    with bar() as show:
        model = change(run_folder, client, data, show)
    return show_change(model, f"{client} is in", run_folder)


def forget(
    run_folder: Annotated[Path, typer.Argument(help="a run folder, or a ledger")],
    client: Annotated[str, typer.Argument(help="the client to take out")],
    data: Annotated[
        str | None, typer.Option("--data", help="its samples, if no upload was kept")
    ] = None,
) -> dict[str, Any]:
    """Take a client out of a saved run or a ledger, as if it had never joined."""
    from headstart.deploy.ledger_dir import is_ledger
    from headstart.pipeline.change import forget as change

    if is_ledger(run_folder):
        return ledger.forget_client(run_folder, client)
    with bar() as show:
        model = change(run_folder, client, data, show)
    return show_change(model, f"{client} is out", run_folder)


def _load(path: Path) -> Any:
    from headstart.heads.linear import LinearHead

    return LinearHead.load(_file(path))


def _dense(path: Path) -> Any:
    """A network that was trained on masks; None for a head."""
    from headstart.pipeline.dense_models import DenseModel

    return DenseModel.load(_file(path))


def _file(path: Path) -> Path:
    """Of a folder of several runs, the model of the first."""
    from headstart.pipeline.run import run_folders

    return run_folders(path)[0] / "model.safetensors" if path.is_dir() else path


def _folder(output: Path | None) -> Path:
    if output is None:
        raise HeadstartError("output: expected a folder for masks (--out), got none")
    return output
