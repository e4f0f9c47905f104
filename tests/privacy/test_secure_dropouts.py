"""R5: whoever drops out, and when, the round ends in the survivors' exact sum or in a clean abort.

Every way to leave is walked: at each stage every subset of those still there, from each of the
states that the stage before can leave behind. What a client says does not depend on who leaves
beside it, so each answer is made once and heard by a copy of the server a subset.
"""

import copy
import itertools
from collections import Counter
from math import comb

import pytest

from headstart.privacy.masked import carry, seated
from headstart.privacy.refusals import Abort

from .parties import Round

STAGES = ("advertise", "share", "mask", "unmask")
SIGNED = ("advertise", "share", "mask", "confirm", "unmask")


def subsets(names):
    return itertools.chain.from_iterable(
        itertools.combinations(names, k) for k in range(len(names) + 1)
    )


def fork(server):
    """Another server in the same state."""
    twin = copy.copy(server)
    twin._came, twin._sum = dict(server._came), server._sum.copy()
    return twin


def walk(found, ends):
    """All that can happen from here; counts how it ended."""
    answers = {}
    for name, question in found.asked.items():
        client = found.clients[name]
        answers[name] = client.answer(question) if question else client.start()
    for staying in subsets(answers):
        branch = copy.copy(found)
        branch.server = fork(found.server)
        for name in staying:
            branch.server.receive(name, answers[name])
        stage = branch.server.stage
        if len(staying) < found.terms.threshold:
            with pytest.raises(Abort) as refused:
                branch.server.close()
            assert refused.value.code == "few"
            assert branch.server.stage == "done"
            with pytest.raises(Abort, match="order"):
                _ = branch.server.total
            ends[stage] += 1
            continue
        branch.asked = branch.server.close()
        if stage == "mask":
            branch.in_sum = list(staying)
        if branch.server.stage == "done":
            assert branch.server.survivors == found.in_sum
            assert branch.server.total.digest() == found.plain(found.in_sum).digest()
            ends["sum"] += 1
            continue
        assert list(branch.asked) == list(staying)
        memo = {id(found.terms): found.terms}
        branch.clients = {name: copy.deepcopy(found.clients[name], memo) for name in staying}
        walk(branch, ends)


@pytest.mark.parametrize(
    ("n", "threshold", "signed"),
    [
        *((n, n // 2 + 1, False) for n in (2, 3, 4, 5, 6)),
        *((n, 2 * n // 3 + 1, False) for n in (3, 6)),
        *((n, n // 2 + 1, True) for n in (3, 4)),
    ],
)
def test_everybody_may_leave_at_every_stage(n, threshold, signed):
    ends = Counter()
    walk(Round(n, threshold=threshold, signed=signed), ends)
    stages = SIGNED if signed else STAGES
    # j leave, each at one of the stages, and enough stay: that many ways to an exact sum
    ways = sum(comb(n, j) * len(stages) ** j for j in range(n - threshold + 1))
    assert ends["sum"] == ways
    assert set(ends) == {"sum", *stages}


def test_a_round_carried_in_one_process_ends_alike():
    found = Round(5, threshold=3)
    left = {"share": ["c4"], "mask": ["c1"]}
    sizes, lost = Counter(), {}
    total = carry(
        found.server,
        found.clients,
        seated(found.clients, lambda stage, asked: left.get(stage, ())),
        lambda name, size: sizes.update({name: size}),
        lost.__setitem__,
    )
    assert total.digest() == found.plain(["c0", "c2", "c3"]).digest()
    assert lost == {"c4": "share", "c1": "mask"}
    assert sizes["c0"] > sizes["c1"] > sizes["c4"] > 0


def test_a_vector_that_comes_late_is_not_counted_and_harms_nothing():
    found = Round(4).until("mask")
    late = found.clients["c1"].answer(found.asked.pop("c1"))
    found.stage()
    with pytest.raises(Abort) as refused:
        found.server.receive("c1", late)
    assert refused.value.code == "unknown"
    found.stage()
    assert found.server.survivors == ["c0", "c2", "c3"]
    assert found.server.total.digest() == found.plain(["c0", "c2", "c3"]).digest()
