"""Noise in shares under masks: whoever leaves, a sum is data and noise to the bit, or nothing."""

import hashlib
import itertools
from collections import Counter
from math import comb

import numpy as np
import pytest

import headstart as hs
from headstart.privacy.keys import Keys
from headstart.privacy.refusals import Abort
from headstart.privacy.sensitivity import Noise, unit_rows
from headstart.privacy.terms import Policy, Terms

from . import parties
from .parties import CLASSES, Round
from .test_secure_dropouts import STAGES, walk

SHARES = {"counts": 0.01, "sums": 0.79, "gram": 0.2}


def repeated(name):
    """Keys as they come, and noise that is the same whenever it is drawn. For tests alone."""
    keys = parties.entropy(name)
    return lambda size: keys(size) if size == 32 else hashlib.shake_256(name.encode()).digest(size)


def unit_statistics(n, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for k in range(n):
        size = int(rng.integers(0, 5))
        rows, labels = unit_rows(rng.normal(size=(size, 2))), rng.choice(CLASSES, size)
        found[f"c{k}"] = hs.Fed3R().measure(rows, labels, exact=True, bound=1.0)
    return found


class NoisyRound(Round):
    """A round whose members add noise; what it must give is computed beside it."""

    def __init__(self, n, threshold, colluding=0, **how):
        noise = Noise.plan(0.5, SHARES, colluding=colluding)
        super().__init__(n, threshold=threshold, stats=unit_statistics(n), noise=noise, **how)

    def entropy(self, name):
        return repeated(name)

    def plain(self, names):
        terms, layout, noise = self.terms, self.terms.layout, self.terms.noise
        total = np.zeros(layout.size, np.int64)
        for name in names:
            draw = repeated(name)
            Keys.draw(draw)
            numbers = noise.vector(layout, self.stats[name])
            total += noise.added(layout, numbers, draw, shares=terms.honest)
        return noise.restored(layout, total, len(names) / terms.honest)


@pytest.mark.parametrize(
    ("n", "threshold", "colluding"), [(2, 2, 1), (3, 2, 0), (4, 3, 1), (5, 4, 2), (6, 5, 1)]
)
def test_everybody_may_leave_at_every_stage(n, threshold, colluding):
    ends = Counter()
    walk(NoisyRound(n, threshold, colluding), ends)
    assert ends["sum"] == sum(comb(n, j) * len(STAGES) ** j for j in range(n - threshold + 1))


def test_honest_members_have_all_of_the_noise():
    """In whole numbers: (t − c) shares of any sum that opens have at least the variance σ²."""
    layout = Round(2, stats=unit_statistics(2)).terms.layout
    for members, colluding in itertools.product(range(2, 20), range(10)):
        names = [f"c{k:02d}" for k in range(members)]
        noise = Noise.plan(0.5, SHARES, colluding=colluding)
        for threshold in range(max(members // 2, colluding) + 1, members + 1):
            terms = Terms.plan(names, layout, threshold=threshold, noise=noise)
            for variance in noise.variances.values():
                assert terms.honest * -(-variance // terms.honest) >= variance
        if members > colluding:
            assert Terms.from_bytes(terms.to_bytes()).noise == noise


def test_noise_in_shares_is_that_of_the_survivors():
    found = NoisyRound(6, 5, 1).until("done").server.total
    single = Noise.plan(0.5, SHARES)
    assert found.sigma("sums") == pytest.approx(single.sigma("sums") * (6 / 4) ** 0.5)


def refused(code, make):
    with pytest.raises(Abort) as caught:
        make()
    assert caught.value.code == code


def test_terms_with_too_little_noise_are_refused():
    layout = Round(2, stats=unit_statistics(2)).terms.layout
    noise = Noise.plan(0.5, SHARES, colluding=2)
    plan = {"layout": layout, "threshold": 2}
    refused("terms", lambda: Terms.plan(["a", "b"], noise=noise, **plan))
    refused("terms", lambda: Terms.plan(["a", "b"], noise=Noise.plan(0.5, SHARES), **plan))
    coarse = Round(2).terms.layout  # on a lattice of bound 16
    more = {"layout": coarse, "threshold": 2, "noise": Noise.plan(0.5, SHARES, colluding=0)}
    refused("noise", lambda: Terms.plan(["a", "b"], **more))


def test_a_client_has_a_floor_of_its_own():
    for floor, ok in ((0.6, True), (0.5, True), (0.4, False)):
        policy = Policy(group=2, share=0.5, mu=floor)
        if ok:
            assert NoisyRound(3, 2, policy=policy).until("done").server.total.samples
        else:
            refused("noise", lambda policy=policy: NoisyRound(3, 2, policy=policy))
    refused("noise", lambda: Round(3, policy=Policy(group=2, share=0.5, mu=0.5)))
    with pytest.raises(hs.HeadstartError, match="mu: expected a number above 0"):
        Policy(mu=0)


def test_half_of_the_noise_is_found_out_by_its_variances():
    """A server that lowers σ² and calls it the same μ."""
    plan = Noise.plan(0.5, SHARES, colluding=0)
    less = Noise({k: v // 4 for k, v in plan.variances.items()}, 0.5, colluding=0)
    assert plan.unit_mu <= 0.5
    assert less.unit_mu > 0.99
