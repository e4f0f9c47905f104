"""A saved model as one ONNX file, with the extractor it was made with."""

from __future__ import annotations

from pathlib import Path

from headstart.errors import DataError
from headstart.export import export_head, export_onnx, export_scenes
from headstart.heads.linear import LinearHead
from headstart.pipeline.inputs import Extraction, extractor_of


def export_model(head: LinearHead, path: str | Path, weights: str | None = None) -> str:
    """Write extractor and head, or the head alone; what the file takes: "images" or "features".

    A trained network is refused: its file holds parameters that no extractor here has.
    """
    if not isinstance(head, LinearHead):
        raise DataError("export: expected a head on an extractor that did not train, got a network")
    about = head.provenance.get("extractor")
    if about is None or "text" in about:  # text is cut into tokens outside any ONNX graph
        export_head(head, path)
        return "features"
    if "cells" in about:
        network = extractor_of(about, Extraction(str(about["name"]), weights))
        export_scenes(network, head, path)
        return "images"
    export_onnx(extractor_of(about, Extraction(str(about["name"]), weights)), head, path)
    return "images"
