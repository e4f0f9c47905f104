"""Closed-form personalizations by name: each makes a global head a client's own, alone."""

from headstart.personal.settings import Settings
from headstart.personal.variants import (
    VARIANTS,
    known,
    local_prior,
    only_local_labels,
    residual_ridge,
)

__all__ = ["VARIANTS", "Settings", "known", "local_prior", "only_local_labels", "residual_ridge"]
