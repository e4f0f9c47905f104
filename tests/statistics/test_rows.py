"""Rows of client means: what no client that follows its head can send is refused, with a code."""

from dataclasses import replace

import numpy as np
import pytest

import headstart as hs
from headstart.deploy.admission import Contract, UploadRejected, UploadValidator
from headstart.errors import SkippedWarning, WireError
from headstart.federation import steps
from headstart.federation.promises import promised
from headstart.statistics.client_means import ClientMeans
from headstart.statistics.wire import Limits

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).clip(-3, 3), np.arange(60) % 3


def door(**how):
    head = hs.FedCOF(**how)
    contract = Contract("1", steps.measure(head).params, 4, samples=100)
    return head, UploadValidator(contract)


def halved(found):
    """Each row twice, with half of its samples."""
    twice = np.repeat(np.arange(len(found.labels)), 2)
    return ClientMeans(4, found.labels[twice], found.counts[twice] / 2, found.means[twice])


LIES = {
    "counts": lambda found: replace(found, counts=found.counts + 0.5),
    "shape": lambda found: halved(found),
}


@pytest.mark.parametrize("code", LIES)
@pytest.mark.parametrize("means", [1, 2])
def test_rows_that_no_samples_give_are_refused(code, means):
    head, validator = door(means=means)
    honest = head.measure(X, Y)
    assert validator.check("ann", "1", honest.to_bytes()).samples == 60
    lie = LIES[code](honest)
    with pytest.raises(UploadRejected) as refused:
        validator.check("ann", "1", lie.to_bytes())
    assert refused.value.code == code
    with pytest.raises(WireError) as broken:
        promised(steps.measure(head), {})(lie, Limits(samples=100), 1)
    assert broken.value.code == code


def test_a_sum_of_clients_has_the_rows_of_each():
    head, _ = door(means=2)
    both = head.measure(X, Y) + head.measure(X + 0.1, Y)
    check = promised(steps.measure(head), {})
    check(both, Limits(samples=100), 2)
    with pytest.raises(WireError, match="rows"):
        check(both, Limits(samples=100), 1)


@pytest.mark.parametrize("noise", [("uniform", 0.5), ("gaussian", 1.0), ("laplace", 0.5)])
def test_counts_with_noise_need_not_be_whole(noise):
    head, validator = door(means=2, noise=noise)
    found = head.measure(X, Y)
    assert (found.counts % 1).any()
    validator.check("ann", "1", found.to_bytes())
    with pytest.raises(UploadRejected) as refused:
        validator.check("ann", "1", halved(found).to_bytes())
    assert refused.value.code == "shape"


def test_a_simulated_liar_is_left_out(monkeypatch):
    from headstart.data.samples import ArraySamples
    from headstart.federation import simulator as simulators
    from headstart.federation.protocol import ClientData, perform

    def performed(step, client, broadcast):
        found = perform(step, client, broadcast)
        return halved(found) if len(client.samples) == 30 else found

    monkeypatch.setattr(simulators, "perform", performed)
    parts = {"ann": slice(0, 30), "bob": slice(30, 50), "cis": slice(50, 60)}
    inner = simulators.Simulator(
        {name: ClientData(ArraySamples(X[at], Y[at])) for name, at in parts.items()}
    )
    with pytest.warns(SkippedWarning, match="ann: left out"):
        found = inner.total(steps.measure(hs.FedCOF()))
    assert found.clients == ("bob", "cis")
