"""Why a party of a secure sum stops: one exception, a stable code each."""

from __future__ import annotations

from headstart.errors import WireError

CODES = {
    # of what a client is asked to add
    "rows": "statistics that are rows: a sum cannot hide them",
    "inexact": "statistics that are not exact integers",
    "layout": "statistics that do not fit the agreed layout",
    "overflow": "sums that could leave 62 bits",
    # of the terms of a round
    "terms": "terms that no round can have",
    "threshold": "a threshold below the client's own floor",
    "group": "a group below the client's minimum",
    "differencing": "a sum over some of the members of an earlier one: their difference would tell",
    "noise": "less noise than the client wants, or noise that does not fit the sum",
    "budget": "a release beyond the privacy budget, or one that was cut short",
    # of the lists and messages within it
    "round": "a message of another round",
    "unknown": "an id that does not belong there",
    "duplicate": "an id or a key that stands twice",
    "overlap": "one peer among the survivors and the dropped: both kinds of shares asked for it",
    "self": "the client's own id where it cannot stand, or missing where it must",
    "cover": "lists that leave somebody out",
    "changed": "other survivors than were confirmed",
    "replay": "a round, a stage or a message for the second time",
    "stories": "another question of a stage that was answered: the server tells two stories",
    "history": "a history that lacks what this client has answered: an older one, or another's",
    "order": "a stage before its turn",
    "over": "this client has aborted, and stays so",
    # of secrets
    "keys": "keys that were altered, or that nobody can agree on",
    "sealed": "a sealed share that does not open",
    "signature": "a signature that is missing or false",
    "share": "shares that do not give back the secret they are of",
    "few": "fewer members left than the threshold",
    # of a sum that was opened
    "void": "a sum that no samples have: some member lied, and nobody can tell which",
}


class Abort(WireError):
    """A secure sum that this party does not carry on; `code` is one of CODES."""
