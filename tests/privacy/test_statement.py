"""The statement says what holds and what does not."""

import json
import math
from dataclasses import asdict

import pytest

import headstart as hs
from headstart.privacy.statement import NOT_COVERED, Statement

from .private_runs import FED3R, NCM, TRUSTS, UNITS, planned, private

LATER = ("clients", "rows", "given", "seeded")  # fields that older statements do not have


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("unit", UNITS)
def test_the_statement_says_what_holds_and_what_not(unit, trust):
    more = {"colluding": 1} if trust == "secure-sum" else {}
    release = private(trust, unit=unit, **more).total(FED3R).statistic
    said = Statement.of_plain(release.statement)
    text = str(said)
    assert (said.unit, said.trust, said.delta) == (unit, trust, 1e-5)
    for piece in (
        f"Unit: {unit}",
        f"add or remove one {unit}",
        "ε = 4 at δ = 1e-05 (μ = 0.9249)",
        "Spent so far: ε = 4",
        f"Trust: {trust}. ",
        "1200 planned samples, 6 clients, dimension 64, the list of 10 classes, the extractor",
        *NOT_COVERED,
    ):
        assert piece in text
    assert ("persons with more than one sample" in text) == (unit == "sample")
    assert ("4 members of a group" in text) == (trust == "secure-sum")  # 5 of 6, less one
    assert ("each client counts for" in text) == (unit == "client")
    assert sum(said.shares.values()) == pytest.approx(1.0)
    assert said.digest == release.digest()
    noise = math.sqrt({"server": 1, "secure-sum": 6 / 4, "client": 6}[trust])
    plain = planned(trust=trust, unit=unit, **more).noise("gram", 6)
    assert said.sigmas["gram"] == pytest.approx(noise * plain.sigma("gram"))
    model = hs.Fed3R().solve(release)
    again = hs.LinearHead.from_bytes(model.to_bytes())
    assert Statement.of_plain(again.provenance["private"]) == said
    assert again.provenance["total"] == release.digest()
    assert not again.provenance["exact"]


def test_noise_from_a_seed_is_called_what_it_is():
    said = Statement.of_plain(private(seeded="a seed").total(NCM).statistic.statement)
    assert "Warning: not private: seeded noise" in str(said)
    assert "seeded" not in str(Statement.of_plain(private().total(NCM).statistic.statement))


def test_every_field_is_plain_and_comes_back():
    """As JSON too, in which it stands in a saved head and in results.json."""
    release = private(unit="client", seeded="a seed").total(FED3R).statistic
    said = Statement.of_plain(release.statement)
    assert Statement.of_plain(json.loads(json.dumps(asdict(said)))) == said
    old = {key: value for key, value in asdict(said).items() if key not in LATER}
    assert "6 clients" not in str(Statement.of_plain(old))  # a head that was saved before


def test_a_large_epsilon_is_called_what_it_is():
    said = Statement.of_plain(private(epsilon=21.0).total(NCM).statistic.statement)
    assert "hardly a promise" in str(said)
    assert not Statement.of_plain(private().total(NCM).statistic.statement).warnings
