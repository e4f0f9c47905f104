"""Optional packages, imported when first needed; a missing one is an error that says what to do."""

from __future__ import annotations

import importlib
from typing import Any

from headstart.errors import DataError

_EXTRAS = {
    "PIL": "vision",
    "onnxruntime": "vision",
    "safetensors": "text",
    "cryptography": "secure",
    "hypothesis": "testing",
}
_PIP = {"PIL": "pillow"}


def need(module: str) -> Any:
    """The module, or an error naming the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is installed, and broken in another way
        raise DataError(
            f"{_PIP.get(package, package)} is needed here and not installed: "
            f'pip install "headstart[{_EXTRAS.get(package, "torch")}]"'
        ) from None
