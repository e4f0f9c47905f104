"""Context of cells and random features: against sums written out, cell by cell."""

import numpy as np
import pytest

from headstart.data import pixel_features as px
from headstart.errors import DataError

GRID = (4, 5)


@pytest.fixture
def shares():
    return px.softmax(np.random.default_rng(0).normal(size=(20, 3)))


def at(shares, row, column):
    rows, columns = GRID
    row, column = min(max(row, 0), rows - 1), min(max(column, 0), columns - 1)
    return shares[row * columns + column]


def test_neighbours_are_the_cells_so_many_steps_away(shares):
    found = px.neighbours(shares, GRID, (1, 3)).reshape(20, 17, 3)
    moves = [(0, 0)] + [
        (a * k, b * k) for k in (1, 3) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b
    ]
    for cell in range(20):
        row, column = divmod(cell, 5)
        expected = [at(shares, row + a, column + b) for a, b in moves]
        np.testing.assert_array_equal(found[cell], expected)


def test_boxes_are_means_of_squares_whose_borders_go_on(shares):
    found = px.boxes(shares, GRID, (1, 3, 7)).reshape(20, 3, 3)
    np.testing.assert_allclose(found[:, 0], shares, atol=1e-6)
    for cell in range(20):
        row, column = divmod(cell, 5)
        for place, half in ((1, 1), (2, 3)):
            own = range(-half, half + 1)
            expected = np.mean([at(shares, row + a, column + b) for a in own for b in own], axis=0)
            np.testing.assert_allclose(found[cell, place], expected, atol=1e-6)


def test_a_mirrored_image_has_mirrored_boxes(shares):
    mirrored = shares.reshape(*GRID, 3)[:, ::-1].reshape(20, 3)
    found = px.boxes(mirrored, GRID, (3,)).reshape(*GRID, 3)[:, ::-1]
    np.testing.assert_allclose(found.reshape(20, 3), px.boxes(shares, GRID, (3,)), atol=1e-6)


def test_context_has_a_row_for_each_cell_and_the_same_mean_in_all():
    scores = np.random.default_rng(1).normal(size=(20, 3)) * 100
    found = px.context(scores, GRID)
    assert found.shape == (20, 55 * 3 + 6)
    assert np.isfinite(found).all()
    mean = found[:, 54 * 3 : 55 * 3]
    np.testing.assert_allclose(mean, np.broadcast_to(px.softmax(scores).mean(0), (20, 3)))
    with pytest.raises(DataError, match="a row for each of 4×6 cells, got"):
        px.context(scores, (4, 6))


def test_directions_are_uncorrelated_with_unit_variance():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6)) + 3
    covariance = np.cov(z.T, bias=True)
    weights = rng.normal(size=(4, 6))
    for found in (px.principal(covariance, 3), px.discriminant(weights, covariance)):
        assert found.shape == (6, 3)
        np.testing.assert_allclose(np.cov((z @ found).T, bias=True), np.eye(3), atol=1e-6)


def test_hinges_bend_around_the_mean_with_the_spread_that_is_asked_for():
    rng = np.random.default_rng(3)
    z = (rng.normal(size=(4000, 2)) + 50).astype(np.float32)
    made = px.hinges(np.eye(2), np.array([50.0, 50.0]), 400, np.random.default_rng(0), 1.5)
    flat = z @ made.weights
    assert np.sqrt(flat.var(axis=0).mean()) == pytest.approx(1.5, rel=0.1)
    found = made(z)
    assert (found >= 0).all()
    assert 0.4 < (found > 0).mean() < 0.6
    both = made + made
    np.testing.assert_array_equal(both(z[:5]), np.concatenate([found[:5], found[:5]], axis=1))
