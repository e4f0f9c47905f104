"""Fed3R-Sync through masks: the same groups, the same bits, the same head."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.costs import sync_bytes
from headstart.data.samples import ArraySamples
from headstart.errors import DataError, StepRefusedError
from headstart.federation import steps
from headstart.federation.grouped import Grouped
from headstart.federation.protocol import ClientData
from headstart.federation.simulator import Simulator
from headstart.privacy.groups import RoundHistory, check_sums
from headstart.privacy.masked import Masked, carry, seated
from headstart.privacy.refusals import Abort
from headstart.privacy.terms import Policy

from .parties import Round, statistics

CLASSES = [0, 1, 2, 3, 4]
EXACT = steps.measure(hs.Fed3R(), exact=True)


def federation(clients=12, dimension=6, seed=0):
    rng = np.random.default_rng(seed)
    data = {}
    for k in range(clients):
        n = int(rng.integers(0, 12))
        z, y = rng.normal(size=(n, dimension)), rng.integers(0, 5, n)
        data[f"c{k:02d}"] = ClientData(ArraySamples(z, y), ArraySamples(z[:2], y[:2]))
    return Simulator(data)


HEADS = [hs.Fed3R(), hs.LDA(), hs.FedNCM(), hs.SharedVariances(), hs.ETF()]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.name)
def test_group_sums_and_heads_are_those_of_plain_groups(head):
    sim, step = federation(), steps.measure(head, exact=True)
    secure = list(Masked(sim, 4, CLASSES).answers(step))
    plain = list(Grouped(sim, 4).answers(step))
    assert [set(answer.clients) for answer in secure] == [set(answer.clients) for answer in plain]
    assert [a.statistic.digest() for a in secure] == [a.statistic.digest() for a in plain]
    one = head.solve(hs.total(answer.statistic for answer in secure))
    two = head.solve(sim.total(step).statistic)
    assert np.array_equal(one.weights, two.weights)
    assert np.array_equal(one.bias, two.bias)


def test_its_total_is_the_simulators():
    sim = federation(clients=13)
    found, expected = (one.total(EXACT) for one in (Masked(sim, 5, CLASSES), sim))
    assert found.statistic.digest() == expected.statistic.digest()
    assert sorted(found.clients) == sorted(expected.clients)


def test_a_last_group_that_is_too_small_joins_the_one_before():
    sim = federation(clients=13)
    for size, sizes in ((4, [4, 4, 5]), (5, [5, 5, 3])):
        answers = Masked(sim, size, CLASSES).answers(EXACT)
        assert [len(answer.clients) for answer in answers] == sizes


def test_labels_may_be_text():
    sim = federation(clients=4)
    names = np.array(["ant", "bee", "cat", "dog", "eel"])
    data = {
        k: ClientData(ArraySamples(c.samples.features, names[c.samples.labels]))
        for k, c in sim.data.items()
    }
    named = Simulator(data)
    masked = Masked(named, 4, names).total(EXACT)
    assert masked.statistic.digest() == named.total(EXACT).statistic.digest()


def test_what_clients_send_is_counted():
    sim = federation(clients=4, dimension=30)
    up = Masked(sim, 4, CLASSES).total(EXACT).up
    assert sync_bytes(30, 5) < up / 4 < sync_bytes(30, 5) + 4096


def leaving(when):
    """{(round, stage): names}"""
    return lambda number, stage, asked: when.get((number, stage), ())


def test_whoever_leaves_is_left_out_and_named():
    sim = federation(clients=8)
    groups = Masked(sim, 4, CLASSES).groups(sim.clients)
    one, two = groups[0][0], groups[1][1]
    when = {(0, "mask"): [one], (1, "unmask"): [two]}
    sync = Masked(sim, 4, CLASSES, vanish=leaving(when))
    found = list(sync.answers(EXACT))
    assert sync.lost == {one: "mask"}  # who leaves after its vector came is in the sum
    assert [set(a.clients) for a in found] == [set(groups[0]) - {one}, set(groups[1])]
    for answer in found:
        plain = sim.total(EXACT, cohort=answer.clients)
        assert answer.statistic.digest() == plain.statistic.digest()


def test_a_group_of_which_too_few_remain_is_left_out_whole():
    sim = federation(clients=8)
    groups = Masked(sim, 4, CLASSES).groups(sim.clients)
    sync = Masked(sim, 4, CLASSES, vanish=leaving({(0, "share"): groups[0][:2]}))
    found = list(sync.answers(EXACT))
    assert [set(answer.clients) for answer in found] == [set(groups[1])]
    assert sync.lost == {
        **dict.fromkeys(groups[0][:2], "share"),
        **dict.fromkeys(groups[0][2:], "few"),
    }
    everybody = Masked(sim, 4, CLASSES, vanish=lambda number, stage, asked: asked)
    with pytest.raises(DataError, match=r"sum of some group, got none .advertise"):
        everybody.total(EXACT)


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (steps.measure(hs.FedCOF(), exact=True), "rows"),
        (steps.measure(hs.FedCOF()), "rows"),
        (steps.measure(hs.Fed3R()), "inexact"),
    ],
)
def test_rows_and_floats_are_refused_by_type(step, code):
    with pytest.raises(Abort) as refused:
        Masked(federation(), 4, CLASSES).total(step)
    assert refused.value.code == code


def test_what_clients_would_say_one_by_one_is_refused():
    """Nobody is asked: hits at home are each client's own."""
    step = steps.personal()
    sim = federation(clients=4)
    words = steps.with_head(hs.LDA().solve(sim.total(EXACT).statistic))
    masked = Masked(sim, 4, CLASSES)
    for ask in (masked.total, masked.answers):
        with pytest.raises(StepRefusedError, match=f"measure, counts.*, got '{step.name}'"):
            list(ask(step, words))


def test_counts_of_classes_are_summed_under_masks():
    sim = federation()
    found = Masked(sim, 4, CLASSES).total(steps.counts()).statistic
    labels = np.concatenate([client.samples.labels for client in sim.data.values()])
    known, counted = np.unique(labels, return_counts=True)
    assert dict(zip(found.classes.tolist(), found.counts.tolist(), strict=True)) == dict(
        zip(known.tolist(), counted.tolist(), strict=True)
    )


def test_a_class_that_was_not_agreed_is_an_error():
    with pytest.raises(Abort, match="agreed beforehand, got 4 too") as refused:
        Masked(federation(), 4, [0, 1, 2, 3]).total(EXACT)
    assert refused.value.code == "layout"


@pytest.mark.parametrize("size", [0, 1, 2, 13])
def test_a_size_below_the_policy_or_beyond_the_clients_is_refused(size):
    with pytest.raises(hs.HeadstartError, match="group_size: expected 3 to 12 clients"):
        Masked(federation(), size, CLASSES)


def test_a_cohort_must_be_known():
    with pytest.raises(DataError, match="cohort: expected known clients, got nobody"):
        Masked(federation(), 4, CLASSES).total(EXACT, cohort=["nobody", "c00", "c01", "c02"])


# -- differences of sums ----------------------------------------------------------------------


def test_another_head_over_the_same_groups_is_answered():
    sync = Masked(federation(), 4, CLASSES)
    sync.total(EXACT)
    sync.total(steps.measure(hs.FedNCM(), exact=True))
    assert len(sync.opened) == 6


def test_a_cohort_without_one_client_is_refused():
    sim = federation(clients=8)
    sync = Masked(sim, 4, CLASSES)
    sync.total(EXACT)
    with pytest.raises(Abort) as refused:
        sync.total(EXACT, cohort=sim.clients[1:])
    assert refused.value.code == "differencing"


def test_nor_is_one_who_dropped_out_added_later_to_the_same_group():
    """The others go on without it, as the group that was opened."""
    sim = federation(clients=4)
    gone = sim.clients[2]
    sync = Masked(sim, 4, CLASSES, vanish=leaving({(0, "mask"): [gone]}))
    for _ in range(2):
        assert set(sync.total(EXACT).clients) == set(sim.clients) - {gone}
    assert sync.lost[gone] == "group"
    assert len(set(sync.opened)) == 1


@pytest.mark.parametrize(
    ("earlier", "group", "code"),
    [
        ([], "abc", None),
        (["abc"], "def", None),
        (["abc", "abc"], "cba", None),
        (["abcd"], "abc", "differencing"),
        (["abc"], "abcd", "differencing"),
        (["abcdef"], "abcxyz", "differencing"),
        (["abc", "def"], "abcdefg", "differencing"),
        ([], "ab", "group"),
    ],
)
def test_a_sum_has_the_members_of_an_earlier_one_or_none(earlier, group, code):
    if code is None:
        check_sums(earlier, group, 3)
        return
    with pytest.raises(Abort) as refused:
        check_sums(earlier, group, 3)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"rounds": {}}',
        '{"asked": {}}',
        '{"rounds": [], "asked": {}}',
        '{"rounds": {"zz": []}, "asked": {}}',
        '{"rounds": {"00": "ab"}, "asked": {}}',
        '{"rounds": {"00": [1]}, "asked": {}}',
        '{"rounds": {}, "asked": []}',
        '{"rounds": {}, "asked": {"zz": {}}}',
        '{"rounds": {}, "asked": {"00": []}}',
        '{"rounds": {}, "asked": {"00": {"share": 1}}}',
        "[" * 10**5,
    ],
)
def test_a_book_that_is_none_is_refused(text):
    with pytest.raises(DataError, match="history"):
        RoundHistory.from_text(text)


# -- any group, any values, any drop-outs ----------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 6),
    d=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    head=st.sampled_from(HEADS),
    when=st.lists(
        st.sampled_from(["never"] * 6 + ["advertise", "share", "mask", "unmask"]),
        min_size=6,
        max_size=6,
    ),
    data=st.data(),
)
def test_any_round_ends_in_the_exact_sum_or_an_abort(n, d, seed, head, when, data):
    threshold = data.draw(st.integers(n // 2 + 1, n))
    found = Round(n, threshold=threshold, stats=statistics(n, d, seed, head=head))
    gone = dict(zip(found.stats, when, strict=False))
    stages = ["advertise", "share", "mask", "unmask"]
    stay = min(sum(gone[name] not in stages[:k] for name in gone) for k in range(1, 5))

    def vanish(stage, asked):
        return [name for name in asked if gone[name] == stage]

    if stay < threshold:
        with pytest.raises(Abort, match="few"):
            carry(found.server, found.clients, seated(found.clients, vanish))
        return
    total = carry(found.server, found.clients, seated(found.clients, vanish))
    survivors = [name for name in gone if gone[name] in ("never", "unmask")]
    assert found.server.survivors == survivors
    assert total.digest() == found.plain(survivors).digest()


def test_a_smaller_share_lets_more_leave():
    sim = federation(clients=6)
    policy = Policy(group=3, share=0.5)
    gone = leaving({(0, "mask"): sim.clients[:2]})
    (found,) = Masked(sim, 6, CLASSES, policy=policy, vanish=gone).answers(EXACT)
    assert len(found.clients) == 4
    strict = Masked(sim, 6, CLASSES, vanish=gone)
    assert list(strict.answers(EXACT)) == []
    assert set(strict.lost.values()) == {"mask", "few"}
