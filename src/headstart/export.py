"""A trained model as one ONNX file: extractor and head together, or either alone.

The head is computed in float64, as here: on the same features the file's scores are the head's.
Classes, preprocessing and temperature are properties of the file (JSON), so it needs no sidecar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.data.backbones import Extractor, extractor
from headstart.data.backbones.graphs import BATCH, FEATURES, serialize
from headstart.data.cells import STRIDE, CellExtractor
from headstart.errors import DataError
from headstart.files import write_bytes
from headstart.heads import features as cosines
from headstart.heads.linear import LinearHead
from headstart.optional import require

_OPSET, _IR = 20, 10


def export_onnx(source: Extractor | str, head: LinearHead, path: str | Path) -> None:
    """Preprocessed images (batch, 3, size, size) ↦ `scores` (batch, C) and `class` (batch,)."""
    source = extractor(source) if isinstance(source, str) else source
    check_fit(head, source.dimension)
    model = require("onnx").load_model_from_string(source.source.onnx())
    pieces = Pieces(_free_names(model))
    features = _pooled(model, source.source.output, pieces)
    _classify(pieces, features, head, source.dimension)
    write_bytes(path, _finish(model, pieces, head, source.properties()))


def export_scenes(source: CellExtractor, head: LinearHead, path: str | Path) -> None:
    """Preprocessed images (batch, 3, H, W) ↦ `class` (batch, H, W), places among the classes."""
    check_fit(head, source.channels)
    if head.feature_map:
        raise DataError("export: expected a head without random features for scenes, got one")
    onnx = require("onnx")
    model = onnx.load_model_from_string(source.source.onnx())
    pieces, kinds = Pieces(_free_names(model)), onnx.TensorProto
    z = pieces.step("Cast", source.source.output, to=kinds.DOUBLE)
    weights = pieces.constant("weights", np.ascontiguousarray(head.weights.T, np.float64))
    bias = pieces.constant("bias", np.asarray(head.bias, np.float64))
    cells = pieces.step("Add", pieces.step("MatMul", z, weights), bias)
    planes = pieces.step("Transpose", pieces.step("Cast", cells, to=kinds.FLOAT), perm=[0, 3, 1, 2])
    scale = pieces.constant("scale", np.array([1, 1, STRIDE, STRIDE], np.float32))
    how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    pixels = pieces.step("Resize", planes, "", scale, **how)
    pieces.node("ArgMax", [pixels], "class", axis=1, keepdims=0)
    model.graph.node.extend(pieces.nodes)
    model.graph.initializer.extend(pieces.constants)
    del model.graph.output[:]
    shape = [BATCH, source.preprocess.height, source.preprocess.width]
    model.graph.output.append(onnx.helper.make_tensor_value_info("class", kinds.INT64, shape))
    onnx.checker.check_model(model)
    write_bytes(path, serialize(model, {**source.properties(), **_properties(head)}))


def export_head(head: LinearHead, path: str | Path, *, dimension: int | None = None) -> None:
    """Features (batch, d) ↦ `scores` and `class`; d must be given when the head maps features."""
    if dimension is None and head.feature_map:
        raise DataError("dimension: expected that of the features the head's map takes, got None")
    d = head.dimension if dimension is None else dimension
    check_fit(head, d)
    onnx = require("onnx")
    pieces = Pieces("")
    _classify(pieces, FEATURES, head, d)
    entry = onnx.helper.make_tensor_value_info(FEATURES, onnx.TensorProto.FLOAT, [BATCH, d])
    graph = onnx.helper.make_graph([], "head", [entry], [])
    opset = [onnx.helper.make_opsetid("", _OPSET)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=_IR)
    write_bytes(path, _finish(model, pieces, head, {}))


def export_extractor(source: Extractor | str, path: str | Path) -> None:
    """Images ↦ features, for machines without torch: `from_onnx` reads it back."""
    source = extractor(source) if isinstance(source, str) else source
    model = require("onnx").load_model_from_string(source.source.onnx())
    write_bytes(path, serialize(model, source.properties()))


def check_fit(head: LinearHead, dimension: int) -> None:
    """The head takes features of this dimension (its map takes any)."""
    if head.feature_map is None and head.dimension != dimension:
        raise DataError(
            f"head: expected one for features of dimension {dimension}, got {head.dimension}"
        )


@dataclass
class Pieces:
    """Nodes and constants that are added to a graph, their names kept apart by a prefix."""

    prefix: str
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, name: str, values: NDArray[Any]) -> str:
        name = self.prefix + name
        self.constants.append(require("onnx").numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        make = require("onnx").helper.make_node
        name = f"{self.prefix}node_{len(self.nodes)}_{kind}"
        self.nodes.append(make(kind, inputs, [output], name, **attributes))
        return output

    def step(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node whose output needs no name of its own."""
        output = f"{self.prefix}{kind.lower()}_{len(self.nodes)}"
        return self.node(kind, list(inputs), output, **attributes)


def _classify(pieces: Pieces, features: str, head: LinearHead, dimension: int) -> None:
    double = require("onnx").TensorProto.DOUBLE
    z = pieces.step("Cast", features, to=double)
    if head.feature_map:
        z = _mapped(pieces, z, head.feature_map, dimension, double)
    weights = pieces.constant("weights", np.ascontiguousarray(head.weights.T, np.float64))
    product = pieces.step("MatMul", z, weights)
    bias = pieces.constant("bias", np.asarray(head.bias, np.float64))
    pieces.node("Add", [product, bias], "scores")
    pieces.node("ArgMax", ["scores"], "class", axis=1, keepdims=0)


def _mapped(
    pieces: Pieces, z: str, map_: cosines.RandomFeatures, dimension: int, double: int
) -> str:
    """√(2/D)·cos(zω + β); ω is whole multiples of one unit, and these fit in float32."""
    steps, phases = cosines._frequencies(dimension, map_.dimension, map_.seed)
    narrow = steps.astype(np.float32)
    exact = narrow if np.array_equal(narrow, steps) else np.asarray(steps)
    whole = pieces.step("Cast", pieces.constant("steps", exact), to=double)
    product = pieces.step("MatMul", z, whole)
    # one a cosine: a single factor would be fused into the product by onnxruntime, as float32
    unit = pieces.constant("unit", np.full(map_.dimension, 1.0 / (cosines._GRID * map_.bandwidth)))
    angles = pieces.step("Mul", product, unit)
    shifted = pieces.step("Add", angles, pieces.constant("phases", phases))
    scale = pieces.constant("scale", np.full(map_.dimension, np.sqrt(2.0 / map_.dimension)))
    return pieces.step("Mul", pieces.step("Cos", shifted), scale)


def _pooled(model: Any, output: str, pieces: Pieces) -> str:
    """The name of the features; maps (4-D) are averaged over the image first."""
    entry = next(entry for entry in model.graph.output if entry.name == output)
    if len(entry.type.tensor_type.shape.dim) != 4:
        return output
    return pieces.step("Flatten", pieces.step("GlobalAveragePool", output))


def _free_names(model: Any) -> str:
    """A prefix that no name of the graph has; and `scores` and `class` must be free."""
    taken = {name for node in model.graph.node for name in (*node.output, node.name)}
    taken |= {entry.name for entry in (*model.graph.input, *model.graph.initializer)}
    if {"scores", "class"} & taken:
        raise DataError("extractor: its graph already has a `scores` or `class`")
    prefix = "head_"
    while any(name.startswith(prefix) for name in taken):
        prefix = "_" + prefix
    return prefix


def _finish(model: Any, pieces: Pieces, head: LinearHead, about: Mapping[str, str]) -> bytes:
    onnx = require("onnx")
    entry, kinds = onnx.helper.make_tensor_value_info, onnx.TensorProto
    model.graph.node.extend(pieces.nodes)
    model.graph.initializer.extend(pieces.constants)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    rows = batch.dim_value or batch.dim_param or BATCH
    del model.graph.output[:]
    model.graph.output.append(entry("scores", kinds.DOUBLE, [rows, len(head.classes)]))
    model.graph.output.append(entry("class", kinds.INT64, [rows]))
    onnx.checker.check_model(model)
    return serialize(model, {**about, **_properties(head)})


def _properties(head: LinearHead) -> dict[str, str]:
    return {
        "classes": json.dumps(head.classes.tolist()),
        "temperature": json.dumps(head.temperature),
        "provenance": json.dumps(head.provenance, sort_keys=True),
    }
