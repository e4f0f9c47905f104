"""Discrete Gaussian noise: its distribution, its bytes, and where its randomness comes from."""

import ast
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy

from headstart import HeadstartError
from headstart.privacy import noise
from headstart.privacy.noise import LEAST, discrete_gaussian

from .parties import entropy

SOURCE = Path(noise.__file__).parent


def pmf(variance, reach):
    """P(x) of N_Z for |x| ≤ reach."""
    x = np.arange(-reach, reach + 1)
    mass = np.exp(-(x**2) / (2 * float(variance)))
    return mass / mass.sum()


@pytest.mark.parametrize("variance", [LEAST, 10**5, 32**2 * 257, 10**9, 10**19])
def test_a_table_holds_its_distribution(variance):
    levels = noise._levels(variance)
    link = Fraction(variance, sum(256**j for j in range(levels)))
    assert 32**2 <= link < 32**2 * 258
    table = noise._table(link)
    exact = np.diff([0, *table.whole]) / 2.0**128
    assert np.allclose(exact, pmf(link, -table.first), rtol=0, atol=1e-15)
    assert table.whole[-1] == 2**128
    assert exact.min() < 2**-120  # tails are cut where 128 bits end


@pytest.mark.parametrize("sigma", [32.0, 40.0])
def test_a_chain_of_two_is_a_wide_one(sigma):
    """Exact convolution of x₀ + 16·x₁ against N_Z(257σ²), out to eight deviations."""
    reach = int(12 * sigma)
    one = pmf(sigma**2, reach)
    wide = np.zeros(32 * reach + 1)
    wide[::16] = one
    found = np.convolve(wide, one)
    x = np.arange(len(found)) - len(found) // 2
    near = np.abs(x) <= 8 * sigma * math.sqrt(257)
    target = np.exp(-(x[near] ** 2) / (2 * 257 * sigma**2))
    target /= math.sqrt(2 * math.pi * 257) * sigma
    assert np.abs(found[near] / target - 1).max() < 1e-12


@pytest.mark.parametrize("variance", [LEAST, 300_000, 10**7])
def test_draws_have_the_distribution(variance):
    """χ² of 200,000 draws in bins of an eighth of a deviation, from fixed bytes."""
    draws = discrete_gaussian(variance, 200_000, entropy(f"chi {variance}"))
    sigma = math.sqrt(variance)
    edges = np.round(np.arange(-4, 4.125, 0.125) * sigma).astype(int)
    counted = np.histogram(draws, np.concatenate([[-np.inf], edges + 0.5, [np.inf]]))[0]
    reach = int(14 * sigma)
    below = np.concatenate([[0.0], np.cumsum(pmf(variance, reach))[edges + reach], [1.0]])
    assert scipy.stats.chisquare(counted, 200_000 * np.diff(below)).pvalue > 1e-3
    assert np.var(draws) == pytest.approx(variance, rel=0.02)
    assert scipy.stats.kurtosis(draws) == pytest.approx(0, abs=0.06)


def test_wide_draws_have_the_deviation_and_no_pattern():
    draws = discrete_gaussian(16 * 10**18, 100_000, entropy("wide"))
    assert np.std(draws) == pytest.approx(4e9, rel=0.02)
    low = np.bincount(draws % 16, minlength=16)  # of a lattice much finer than the noise
    assert scipy.stats.chisquare(low).pvalue > 1e-3


def test_the_same_bytes_give_the_same_draws_and_others_do_not():
    one, two, other = (discrete_gaussian(10**6, 1000, entropy(name)) for name in "aab")
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert not np.array_equal(discrete_gaussian(10**6, 99), discrete_gaussian(10**6, 99))


def test_the_second_word_decides_where_the_first_does_not():
    """Bytes whose upper word is one of the table's: the draw is what 128 bits say."""
    table = noise._table(Fraction(LEAST))
    at = len(table.whole) // 2
    upper, lower = divmod(table.whole[at], 2**64)
    for add, expected in ((0, at + 1), (-1, at)):
        word = iter([upper.to_bytes(8, "little"), (lower + add).to_bytes(8, "little")])
        drawn = table.draw(1, lambda size, word=word: next(word))
        assert drawn[0] == expected + table.first


@pytest.mark.parametrize("variance", [LEAST - 1, 0, -1, 1e6, 2**120])
def test_noise_finer_than_the_lattice_or_beyond_its_bits_is_refused(variance):
    with pytest.raises(HeadstartError, match="variance: expected"):
        discrete_gaussian(variance, 1)


@pytest.mark.parametrize("file", ["noise.py", "sensitivity.py", "unit_sums.py", "differential.py"])
def test_no_noise_comes_from_a_generator_that_can_be_guessed(file):
    for node in ast.walk(ast.parse((SOURCE / file).read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.split(".")[0] == "random" or name == "numpy.random" for name in names)
        assert not (isinstance(node, ast.Attribute) and node.attr == "random")
