"""FedRep (Collins et al. 2021): first the personal head, for some epochs, then the extractor."""

from __future__ import annotations

from headstart.gradient.checks import whole
from headstart.gradient.methods.fedalt import fedalt
from headstart.gradient.recipe import Recipe


def fedrep(head_epochs: int = 5) -> Recipe:
    whole("head_epochs", head_epochs)
    return fedalt("head", head_epochs)
