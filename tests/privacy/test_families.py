"""Every family of sums that clients let be opened: no combination of them shows too few.

Each client knows the sums it was in, and no others. A server may plan any groups in any order, and
in each round any of its members may leave before its vector, or after.
"""

import itertools

import numpy as np
import pytest

from headstart.privacy.groups import RoundHistory, check_sums
from headstart.privacy.refusals import Abort


def subsets(names, least):
    for size in range(least, len(names) + 1):
        yield from map(frozenset, itertools.combinations(names, size))


def fewest_shown(family, clients):
    """The fewest clients that a combination of these sums concerns, by all small weights."""
    rows = np.array([[client in group for client in clients] for group in family], int)
    weights = np.array(list(itertools.product((-2, -1, 0, 1, 2), repeat=len(rows))))
    shown = (weights @ rows != 0).sum(axis=1)
    return int(shown[shown > 0].min())


def accepted(records, planned, least):
    """Whether all members of a planned group join it, by what each has in its own history."""
    try:
        for name in planned:
            check_sums(records[name], planned, least)
    except Abort:
        return False
    return True


def parts_rule(records, planned, least):
    """What was checked before: no part of the sums that a client knows is too small."""
    for name in planned:
        known = [*records[name], planned]
        seen = {}
        for client in set().union(*known):
            at = tuple(client in group for group in known)
            seen[at] = seen.get(at, 0) + 1
        if min(seen.values()) < least:
            return False
    return True


def families(clients, least, rule):
    """All sets of opened sums that can be reached, without drop-outs."""
    todo, known = [frozenset()], {frozenset()}
    while todo:
        opened = todo.pop()
        records = {name: [group for group in opened if name in group] for name in clients}
        for planned in subsets(clients, least):
            after = opened | {planned}
            if after not in known and rule(records, planned, least):
                known.add(after)
                todo.append(after)
    return known - {frozenset()}


@pytest.mark.parametrize(("clients", "least"), [(3, 2), (4, 2), (5, 2), (6, 2), (6, 3), (7, 3)])
def test_no_family_that_can_be_opened_shows_fewer(clients, least):
    names = range(clients)
    found = families(names, least, accepted)
    assert len(found) > 1 or clients == least
    for family in found:
        assert fewest_shown(family, names) >= least


def test_clients_who_only_watch_for_small_parts_would_not_notice():
    """{0,1}, {2,3}, {0,…,4}: nobody knows a part that is too small, and 4 is the difference."""
    family = [frozenset({0, 1}), frozenset({2, 3}), frozenset(range(5))]
    records = {name: [] for name in range(5)}
    for planned in family:
        assert parts_rule(records, planned, 2)
        for name in planned:
            records[name].append(planned)
    assert fewest_shown(family, range(5)) == 1


@pytest.mark.parametrize(("clients", "least"), [(3, 2), (4, 2), (4, 3), (5, 3)])
def test_nor_with_drop_outs_at_any_stage(clients, least):
    """Planned U, vectors of S ⊆ U, shares of F ⊆ S: F know S, who left knows U or nothing."""
    names = tuple(range(clients))
    start = (frozenset(), (None,) * clients)  # opened sums; what each client has in its history
    todo, known = [start], {start}
    while todo:
        opened, records = todo.pop()
        for after in branches(opened, records, names, least):
            if after not in known:
                known.add(after)
                todo.append(after)
    families_found = {opened for opened, _ in known if opened}
    assert families_found
    for family in families_found:
        assert fewest_shown(family, names) >= least


def joins(record, group, least):
    history = RoundHistory({b"earlier": record} if record else {})
    try:
        history.add(b"now", group, least)
    except Abort:
        return False
    return True


def branches(opened, records, names, least):
    for planned in subsets(names, least):
        willing = [name for name in planned if joins(records[name], planned, least)]
        threshold = 2 * len(planned) // 3 + 1
        for masked in subsets(willing, max(least, threshold)):  # whose vectors came
            # a client that has two groups in its history would refuse both: one record each
            entered = tuple(planned if name in masked else records[name] for name in names)
            yield opened, entered
            ready = [name for name in masked if joins(records[name], masked, least)]
            for finished in subsets(ready, threshold):
                after = tuple(masked if name in finished else entered[name] for name in names)
                yield opened | {masked}, after
