"""What every head promises, one function per promise, which takes a head."""

from __future__ import annotations

from headstart.heads.base import Head
from headstart.testing.heads.awkward import (
    awkward_clients,
    degenerate_features,
    nothing_from_nothing,
    one_class,
)
from headstart.testing.heads.comparing import Check, make_clients, quick
from headstart.testing.heads.files import (
    bad_inputs,
    features_beyond_the_bound,
    saved_heads,
)
from headstart.testing.heads.messages import (
    exact_messages_lose_nothing,
    looking_changes_nothing,
    messages_can_be_sent_on,
    messages_keep_their_precision,
    order_of_samples,
    retries_send_the_same_bytes,
    totals_can_be_saved,
)
from headstart.testing.heads.sums import (
    order_of_clients,
    order_of_clients_in_exact_mode,
    removal,
    removal_of_an_empty_client,
    removal_of_everybody,
    removal_of_strangers,
    splits,
    splits_in_exact_mode,
    unlike_statistics,
)

__all__ = ["checks_of", "make_clients", "quick"]

OF_ANY: tuple[Check, ...] = (
    order_of_clients_in_exact_mode,
    order_of_clients,
    unlike_statistics,
    messages_keep_their_precision,
    messages_can_be_sent_on,
    totals_can_be_saved,
    exact_messages_lose_nothing,
    retries_send_the_same_bytes,
    looking_changes_nothing,
    order_of_samples,
    awkward_clients,
    one_class,
    degenerate_features,
    nothing_from_nothing,
    saved_heads,
    bad_inputs,
    features_beyond_the_bound,
)
OF_SUMS: tuple[Check, ...] = (
    splits_in_exact_mode,
    splits,
    removal,
    removal_of_everybody,
    removal_of_an_empty_client,
    removal_of_strangers,
)


def checks_of(head: Head) -> tuple[Check, ...]:
    """What this head promises: one over sums also any split, and removal."""
    return OF_ANY + (OF_SUMS if head.statistic.is_sum else ())
