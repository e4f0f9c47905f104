"""Extractors: published networks by name, any .onnx file, any function; sentences have their own.

Nothing here needs torch.

>>> from headstart.data import backbones
>>> sorted(backbones.names())
['efficientnet_lite0', 'mobilenet_v2', 'resnet18', 'squeezenet1_1', 'vit_b_16']
"""

from headstart.data.backbones.catalogue import names
from headstart.data.backbones.extractor import Extractor, extractor, from_callable, from_onnx
from headstart.data.backbones.preprocess import Preprocess
from headstart.data.backbones.text import (
    TextExtractor,
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
    "names",
    "text_extractor",
    "text_names",
]
