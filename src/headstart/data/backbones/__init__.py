"""Extractors: published networks by name, any .onnx file, any function; sentences have their own.

Nothing here needs torch.

>>> from headstart.data import backbones
>>> sorted(backbones.names())[:4]
['efficientnet_lite0', 'efficientnet_lite1', 'efficientnet_lite2', 'mobilenet_v2']
"""

from headstart.data.backbones.catalogue import names
from headstart.data.backbones.extractor import Extractor, extractor, from_callable, from_onnx
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.backbones.text import (
    TextExtractor,
    known_norm,
    text_extractor,
    text_names,
)

__all__ = [
    "Extractor",
    "Preprocess",
    "TextExtractor",
    "extractor",
    "from_callable",
    "from_onnx",
    "known_norm",
    "names",
    "text_extractor",
    "text_names",
]
