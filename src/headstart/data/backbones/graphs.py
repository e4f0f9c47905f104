"""ONNX: a torch module as one file without sidecars or traces, and a session that runs it.

The batch dimension of an exported graph is free; a session pins it, so that one file serves every
batch size and each session has one fixed shape.
"""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import DataError
from headstart.optional import require

BATCH, IMAGES, FEATURES = "batch", "images", "features"
_LANES = 4
_VIEW = "view_"
_SIDECAR = b"\x0a\x08location\x12"  # the entry by which a tensor says that its data is elsewhere


def export(module: Any, size: int | tuple[int, int], properties: Mapping[str, str]) -> bytes:
    """The module's graph from `images` to `features`, with its weights and these properties."""
    height, width = (size, size) if isinstance(size, int) else size
    torch = require("torch", "vision")
    require("onnxscript")
    with _quiet():
        program = torch.onnx.export(
            module.eval(),
            (torch.zeros(2, 3, height, width),),
            dynamo=True,
            external_data=False,
            input_names=[IMAGES],
            output_names=[FEATURES],
            dynamic_shapes=({0: torch.export.Dim(BATCH)},),
            verbose=False,
        )
    return serialize(program.model_proto, properties)


def serialize(model: Any, properties: Mapping[str, str]) -> bytes:
    """The model's bytes; what the exporter noted about this machine's source files is left out."""
    graph = model.graph
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    del graph.value_info[:]
    require("onnx").helper.set_model_props(model, dict(properties))
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf's limit of 2 GiB; its exception type depends on its build
        raise DataError(f"model: cannot be one ONNX file: {error}") from error


def with_mirror(data: bytes, output: str) -> bytes:
    """The model whose output is the mean of an image's and of its mirror image's.

    Both views are one batch of twice the size, so that every weight is there once; a graph of a
    fixed batch size is refused.
    """
    onnx = require("onnx")
    model = onnx.compose.add_prefix(onnx.load_model_from_string(data), _VIEW)
    graph, node = model.graph, onnx.helper.make_node
    entry = graph.input[0]
    fixed = entry.type.tensor_type.shape.dim[0].dim_value
    if fixed:
        raise DataError(f"views: expected a graph of any batch size to mirror in, got {fixed}")
    images, features = entry.name.removeprefix(_VIEW), _VIEW + output
    # the graph's own names all begin with _VIEW now: these do not
    flip = {"starts": -1, "ends": np.iinfo(np.int64).min, "axes": 3, "steps": -1}
    for name, value in flip.items():
        number = onnx.numpy_helper.from_array(np.array([value], np.int64), f"flip_{name}")
        graph.initializer.append(number)
    mirror, halves = "flip_images", ["flip_one", "flip_other"]
    opset = max(each.version for each in model.opset_import if not each.domain)
    nodes = [
        node("Slice", [images, *(f"flip_{name}" for name in flip)], [mirror]),
        node("Concat", [images, mirror], [entry.name], axis=0),
        *graph.node,
        node("Split", [features], halves, axis=0, **({"num_outputs": 2} if opset >= 18 else {})),
        node("Mean", halves, [output]),
    ]
    outputs = [each for each in graph.output if each.name == features]
    outputs[0].name, entry.name = output, images
    for field, content in ((graph.node, nodes), (graph.output, outputs), (graph.value_info, [])):
        kept = [copy.deepcopy(each) for each in content]
        del field[:]
        field.extend(kept)
    return bytes(model.SerializeToString())


def read(path: Path) -> bytes:
    """The bytes of an ONNX file that holds all of its weights."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if _SIDECAR in data:
        raise DataError(
            f"{path}: expected an ONNX file with its weights inside, got some in a sidecar file; "
            "save it again with external_data=False"
        )
    return data


def session(data: bytes, where: str, *, threads: int | None, batch: int) -> Any:
    """An onnxruntime session on the CPU, for batches of exactly this size."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0: all cores
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.use_deterministic_compute = True
    options.add_free_dimension_override_by_name(BATCH, batch)
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise DataError(f"{where}: expected an ONNX model: {error}") from error


def parallel() -> tuple[int, int]:
    """How many batches run side by side, and the threads of each.

    A batch a core wastes nothing: threads that share a batch wait for each other whenever one of
    them is held up. A few are enough, for each takes the memory of a batch.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    side_by_side = min(cores or 1, _LANES)
    return side_by_side, max(1, (cores or 1) // side_by_side)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of packages it would use and of its own deprecated calls."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
