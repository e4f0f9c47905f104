"""Gradients: slopes of losses, heads without autograd, and sums that stand for arrays."""

from dataclasses import replace

import pytest
import torch

from headstart.gradient.losses import Outputs
from headstart.gradient.models import Batch, Model, Spec
from headstart.gradient.objectives import LOSSES
from headstart.gradient.product import Product, onto, whole
from headstart.gradient.recipe import CROSS_ENTROPY, Term
from headstart.gradient.tree import each

from .helpers import batch_of, params_of


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.slope])
@pytest.mark.parametrize("masked", [False, True])
def test_a_slope_is_that_of_the_value(loss, masked):
    mask = torch.zeros(3, 1, 3)
    if masked:
        mask[0, 0, 2] = mask[2, 0, 0] = -torch.inf
    batch = batch_of(mask=mask)
    labels = torch.where(mask.isinf()[:, 0].gather(1, batch.y), torch.ones_like(batch.y), batch.y)
    weight = params_of()["head.weight"].transpose(1, 2)
    logits = (batch.x @ weight + mask).requires_grad_()
    seen = Outputs(batch.x, logits, weight.transpose(1, 2), labels, batch.weights)
    LOSSES[loss].value(seen, Term(loss)).backward()
    slope = LOSSES[loss].slope(logits.detach(), labels, batch.weights)
    torch.testing.assert_close(slope, logits.grad, rtol=1e-5, atol=1e-6)
    assert slope.abs().max() > 0.1
    assert (slope[mask.expand_as(slope).isinf()] == 0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_a_heads_gradient_without_autograd_is_autograds(temperature, monkeypatch):
    model, batch, params = Model(Spec(3, 4, temperature=temperature)), batch_of(), params_of()
    names = ("head.weight", "head.bias")
    fast = model.gradient(CROSS_ENTROPY, params, names, batch)
    plain = replace(LOSSES["cross-entropy"], slope=None)
    entry = replace(LOSSES.entry("cross-entropy"), load=lambda: plain)
    monkeypatch.setitem(LOSSES._known(), "crossentropy", entry)
    slow = model.gradient(CROSS_ENTROPY, params, names, batch)
    for name in names:
        torch.testing.assert_close(whole(fast[name]), slow[name], rtol=1e-5, atol=1e-6)
    assert isinstance(fast["head.weight"], Product)
    assert params["head.weight"].grad is None


def test_clients_trained_together_have_their_own_gradients():
    model, batch, params = Model(Spec(3, 4)), batch_of(), params_of()
    every = each(whole, model.gradient(CROSS_ENTROPY, params, params, batch))
    for k in range(3):
        one = Batch(batch.x[k : k + 1], batch.y[k : k + 1], batch.weights[k : k + 1])
        mine = {name: array[k : k + 1] for name, array in params.items()}
        for name, slope in model.gradient(CROSS_ENTROPY, mine, mine, one).items():
            own = every[name][k : k + 1]
            torch.testing.assert_close(own, whole(slope), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
@pytest.mark.parametrize("clients", [1, 3])
def test_halves_are_every_other_sample(count, clients):
    batch = batch_of(clients, 6)
    weights = torch.zeros(clients, 6)
    weights[:, :count] = 1 / count  # the others are padding
    batch = replace(batch, weights=weights)
    assert batch.half(None) is batch
    params, model = params_of(clients), Model(Spec(3, 4))
    for which in (0, 1):
        rows = list(range(which, count, 2)) or list(range(count))
        taken = torch.full((clients, len(rows)), 1 / len(rows))
        expected = model.gradient(
            CROSS_ENTROPY, params, params, Batch(batch.x[:, rows], batch.y[:, rows], taken)
        )
        found = model.gradient(CROSS_ENTROPY, params, params, batch.half(which))
        for name in params:
            pair = whole(found[name]), whole(expected[name])
            torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-6)


def test_a_product_adds_and_scales_like_the_array_it_stands_for():
    torch.manual_seed(0)
    slopes, features = torch.randn(3, 5, 2), torch.randn(3, 5, 4)
    product, dense = Product(slopes, features), slopes.transpose(1, 2) @ features
    a, b = torch.randn(2, 3, 2, 4)
    for work in (
        lambda g: g,
        lambda g: a + 0.5 * g,
        lambda g: g - a + b * 2.0,
        lambda g: (a - g * 3.0) * 0.1 + g,
        lambda g: g - g * 0.25,
        lambda g: 2.0 * (g + a) - (g - b),
    ):
        torch.testing.assert_close(whole(work(product)), work(dense), rtol=1e-5, atol=1e-5)
        for keep, by in ((0.9, -0.1), (1.0, 1.0), (0.0, 2.0)):
            place, expected = b.clone(), keep * b + by * work(dense)
            onto(place, work(product), keep, by)
            torch.testing.assert_close(place, expected, rtol=1e-5, atol=1e-5)


def test_zeros_added_to_a_product_change_no_bit():
    torch.manual_seed(0)
    product = Product(torch.randn(3, 5, 2), torch.randn(3, 5, 4))
    one = torch.randn(3, 2, 4)
    two = one.clone()
    onto(one, product, 0.99, -0.1)
    onto(two, product + torch.zeros(3, 2, 4), 0.99, -0.1)
    assert torch.equal(one, two)
