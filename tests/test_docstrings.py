"""What users call has a docstring: what the package exports, what is registered, what tests use."""

import importlib
import inspect
import sys

import pytest

import headstart as hs
from headstart import testing
from headstart.data.augment import AUGMENTATIONS
from headstart.data.datasets import DATASETS
from headstart.data.partition import PARTITIONERS
from headstart.gradient import METHODS
from headstart.heads import HEADS

PROTOCOLS = {
    "Federation": "federation.protocol",
    "Head": "heads.base",
    "Server": "gradient.recipe",
    "Samples": "data.samples",
    "Source": "data.backbones.sources",
    "Statistic": "statistics.base",
    "Summable": "statistics.base",
    "Writer": "writers",
}
EXPORTED = [name for name in hs.__all__ if name != "__version__"]
TESTING = testing.__all__


def documented(thing):
    """A docstring of its own: neither inherited nor the signature that dataclasses write."""
    text = (vars(thing) if inspect.isclass(thing) else {"__doc__": thing.__doc__}).get("__doc__")
    return bool(text) and not text.startswith(f"{thing.__name__}(")


def protocol(name):
    return getattr(importlib.import_module(f"headstart.{PROTOCOLS[name]}"), name)


def promised():
    """Functions that a protocol documents for all that implement it."""
    return {
        key
        for name in PROTOCOLS
        for key, value in vars(protocol(name)).items()
        if inspect.isfunction(value) and value.__doc__
    }


@pytest.mark.parametrize("name", EXPORTED)
def test_what_the_package_exports_has_a_docstring(name):
    assert documented(getattr(hs, name))


@pytest.mark.parametrize("name", EXPORTED)
def test_functions_of_exported_classes_have_docstrings(name):
    thing = getattr(hs, name)
    if not inspect.isclass(thing):
        pytest.skip("not a class")
    bare = [
        key
        for key, value in vars(thing).items()
        if key[0] != "_" and inspect.isfunction(value) and not inspect.getdoc(getattr(thing, key))
    ]
    assert [key for key in bare if key not in promised()] == []


@pytest.mark.parametrize("registry", [HEADS, AUGMENTATIONS, DATASETS, PARTITIONERS])
def test_what_is_registered_has_a_docstring(registry):
    assert [entry.name for entry in registry.entries() if not documented(entry.load())] == []


def test_a_method_is_documented_by_its_file():
    things = [entry.load() for entry in METHODS.entries()]
    assert [
        m.__name__ for m in things if not (m.__doc__ or sys.modules[m.__module__].__doc__)
    ] == []


@pytest.mark.parametrize("name", TESTING)
def test_what_plugins_are_tested_with_has_a_docstring(name):
    assert documented(getattr(testing, name))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_protocols_have_docstrings(name):
    assert documented(protocol(name))
