"""The checks themselves: a good head and method pass, and each promise is broken by somebody."""

import itertools
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import headstart as hs
from headstart import registry
from headstart.gradient.product import whole
from headstart.gradient.recipe import Average
from headstart.testing import check_head, check_method
from headstart.testing import heads as of_heads
from headstart.testing import methods as of_methods

pytestmark = pytest.mark.usefixtures("registered")
PLUGINS = Path(__file__).parents[1] / "plugin_files"
COUNTER = itertools.count(1)  # what no method may have: a memory that nobody knows of


def test_a_good_head_and_a_good_method_pass():
    registry.load_plugin(PLUGINS / "centred.py")
    registry.load_plugin(PLUGINS / "fed_nesterov.py")
    check_head(hs.FedNCM)
    check_head(hs.FedCOF(means=2))
    from headstart.heads import HEADS

    check_head(HEADS["centred-means"])
    check_method("FedNesterov", {"momentum": 0.5})


# -- heads -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """Class means, as good as any; what follows breaks one thing of it each."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "Plain"
    statistic: ClassVar[type] = hs.ClassSums

    def measure(self, features, labels, **how):
        return self.statistic.measure(features, labels, **how)

    def paper_upload_size(self, d, held, every):
        return d * held

    def solve(self, total):
        if not total.samples:
            raise hs.SolveError("total: expected at least one sample, got none")
        means = total.class_sums() / total.counts[:, None]
        about = hs.provenance(self, total)
        return hs.LinearHead(means, np.zeros(len(means)), total.classes, provenance=about)


@classmethod
def own_total(cls, statistics):
    found = hs.ClassSums.total(statistics)
    return cls(found.dimension, found.classes, found.counts, found.tables, found.lattice)


def sums(**changes):
    """Class sums with other methods, also in totals."""
    return type("Sums", (hs.ClassSums,), {"total": own_total, **changes})


def head(**changes):
    return dataclass(frozen=True)(type("Broken", (Plain,), changes))


def with_sums(**changes):
    return head(statistic=sums(**changes))


@classmethod
def first_counts_twice(cls, statistics):
    first, *rest = statistics
    return hs.ClassSums.total([first, first, *rest])


def centred_at_home(self, features, labels, **how):
    z, y = hs.ClassSums.measure(features, labels).dimension, np.asarray(features, float)
    mean = y.mean(axis=0) if len(y) else np.zeros(z)
    return hs.ClassSums.measure(y - mean, labels, **how)


def forgetful_sub(self, other):
    return self


def unchecked_sub(self, other):
    """Without looking whether it is a part."""
    try:
        return hs.ClassSums.__sub__(self, other)
    except hs.DataError:
        return self


def lenient_add(self, other):
    return self


def strict_about_empty(self, other):
    if not other.samples:
        raise hs.DataError("subtract: expected samples")
    return hs.ClassSums.__sub__(self, other)


def coarse_arrays(self, precision=None):
    arrays = hs.ClassSums.to_arrays(self, precision)
    return {**arrays, "sums": (arrays["sums"] * 0.9).astype(arrays["sums"].dtype)}


def first_sample_is_heavy(self, features, labels, **how):
    z = np.array(features, float)
    z[:1] *= 2
    return hs.ClassSums.measure(z, labels, **how)


def careless(self, features, labels, **how):
    z = np.nan_to_num(np.asarray(features, float))
    return hs.ClassSums.measure(z, labels, **how)


def clipped(self, features, labels, **how):
    most = abs(how.pop("bound", 16.0))
    return hs.ClassSums.measure(np.clip(features, -most, most), labels, bound=most, **how)


def spoiling(self, total):
    model = Plain.solve(self, total)
    for table in total.tables.values():
        table += 1
    return model


def noisy(self, total):
    model = Plain.solve(self, total)
    return replace(model, weights=model.weights + next(COUNTER))


def unguarded(self, total):
    """0/0 where a class mean is 0, 1/0 where there is one class."""
    model = Plain.solve(self, total)
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = model.weights / np.linalg.norm(model.weights, axis=1, keepdims=True)
        return replace(model, weights=unit)


def one_class_too_few(self, total):
    if len(total.classes) == 1:
        raise IndexError("index 1 is out of bounds")
    return Plain.solve(self, total)


def eager(self, total):
    if not total.samples:
        return hs.LinearHead(np.zeros((1, total.dimension)), np.zeros(1), np.array([0]))
    return Plain.solve(self, total)


def anonymous(self, total):
    return replace(Plain.solve(self, total), provenance={"method": "fed3r"})


def no_text(self, features, labels, **how):
    return hs.ClassSums.measure(features, np.asarray(labels).astype(int), **how)


def fresh_each_time(self, features, labels, **how):
    return hs.Moments.measure(features, labels, **{**how, "secret": None})


@classmethod
def unread(cls, data, limits=None):
    found = hs.ClassSums.from_bytes(data, limits)
    if found.samples > 60:
        raise hs.WireError("digest", "too many")
    return found


BROKEN_HEADS = {
    "order_of_clients_in_exact_mode": with_sums(total=first_counts_twice),
    "order_of_clients": head(solve=noisy),
    "splits_in_exact_mode": head(measure=centred_at_home),
    "splits": head(measure=centred_at_home),
    "removal": with_sums(__sub__=forgetful_sub),
    "removal_of_everybody": with_sums(__sub__=forgetful_sub),
    "removal_of_an_empty_client": with_sums(__sub__=strict_about_empty),
    "removal_of_strangers": with_sums(__sub__=unchecked_sub),
    "unlike_statistics": with_sums(__add__=lenient_add),
    "messages_keep_their_precision": with_sums(to_arrays=coarse_arrays),
    "messages_can_be_sent_on": with_sums(to_arrays=coarse_arrays),
    "totals_can_be_saved": with_sums(from_bytes=unread),
    "exact_messages_lose_nothing": with_sums(to_arrays=coarse_arrays),
    "retries_send_the_same_bytes": head(measure=fresh_each_time, statistic=hs.Moments),
    "looking_changes_nothing": head(solve=spoiling),
    "order_of_samples": head(measure=first_sample_is_heavy),
    "awkward_clients": head(measure=no_text),
    "one_class": head(solve=one_class_too_few),
    "degenerate_features": head(solve=unguarded),
    "nothing_from_nothing": head(solve=eager),
    "saved_heads": head(solve=anonymous),
    "bad_inputs": head(measure=careless),
    "features_beyond_the_bound": head(measure=clipped),
}


def test_every_promise_of_a_head_has_somebody_who_breaks_it():
    every = {check.__name__ for check in of_heads.OF_ANY + of_heads.OF_SUMS}
    assert set(BROKEN_HEADS) == every
    assert all(check.__doc__ for check in of_heads.OF_ANY + of_heads.OF_SUMS)


@pytest.mark.parametrize("promise", BROKEN_HEADS)
def test_a_broken_head_is_caught(promise):
    check = getattr(of_heads, promise)
    check(Plain())
    with pytest.raises(Exception) as caught:  # noqa: PT011
        check(BROKEN_HEADS[promise]())
    assert str(caught.value)
    assert not isinstance(caught.value, (TypeError, NameError)), caught.value


def test_a_broken_head_is_told_all_that_it_breaks():
    with pytest.raises(AssertionError) as caught:
        check_head(head(measure=centred_at_home))
    said = str(caught.value)
    assert said.startswith("Broken breaks ")
    assert "splits: Any split solves to the head of the pooled data." in said
    assert "splits_in_exact_mode: " in said
    assert "one_class" not in said
    with pytest.raises(AssertionError, match=r"one_class: .*\n.*IndexError"):
        check_head(head(solve=one_class_too_few))


def test_checks_hold_where_asserts_are_switched_off():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.testing.test_checks import head, one_class_too_few, check_head\n"
        "check_head(head(solve=one_class_too_few))"
    )
    here = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-O", "-c", code, here], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Broken breaks 2 of its promises" in done.stderr


def test_without_hypothesis_a_line_says_what_to_install():
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import headstart as hs\n"
        "from headstart.testing import check_head\n"
        "try: check_head(hs.FedNCM)\n"
        "except hs.HeadstartError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "headstart[testing]"' in done.stdout


# -- methods ---------------------------------------------------------------------------------------


def method(**changes):
    def broken():
        return hs.Recipe(**changes)

    return broken


def across_clients(gradient, params, local):
    """What other clients of the same group do changes one's own step."""
    found = {name: whole(array) for name, array in gradient(params).items()}
    return {name: array + array.mean(dim=0, keepdim=True) for name, array in found.items()}


def ever_longer(gradient, params, local):
    return {name: whole(array) * next(COUNTER) for name, array in gradient(params).items()}


def still(gradient, params, local):
    """As far as the decay of the weights, the other way."""
    return {name: -0.01 * params[name] for name in gradient(params)}


def impatient(gradient, params, local):
    if max(float(array.abs().max()) for array in params.values()) > 1e6:
        raise ArithmeticError("too large")
    return gradient(params)


def by_place(gradient, params, local):
    """The first of a group is another's neighbour when it is asked in another order."""
    found = {name: whole(array).clone() for name, array in gradient(params).items()}
    for array in found.values():
        array[0] *= 2
    return found


@dataclass(frozen=True)
class Frozen(Average):
    """A server that changes nothing."""

    def step(self, params, state, sums):
        return dict(params), dict(state)


def tuples(widths=()):
    return hs.Recipe()


BROKEN_METHODS = {
    "together_or_alone": (method(correct=across_clients), {}),
    "any_number_of_threads": (method(correct=across_clients), {}),
    "order_and_groups": (method(correct=by_place), {}),
    "sums_are_enough": (method(correct=across_clients), {}),
    "clients_without_samples": (method(correct=ever_longer), {}),
    "seeds": (method(correct=ever_longer), {}),
    "interruptions": (method(correct=ever_longer), {}),
    "absurd_learning_rates": (method(correct=impatient), {}),
    "frozen_parts": (method(server=Frozen()), {}),
    "sizes_of_what_is_sent": (method(extra_names=("one",)), {}),
    "lengths_where_asked_for": (method(correct=still, send_norms=True), {}),
    "plain_values": (tuples, {"widths": (1, 2)}),
}


def test_every_promise_of_a_method_has_somebody_who_breaks_it():
    assert set(BROKEN_METHODS) == {check.__name__ for check in of_methods.CHECKS}
    assert all(check.__doc__ for check in of_methods.CHECKS)


@pytest.mark.parametrize("promise", BROKEN_METHODS)
def test_a_broken_method_is_caught(promise):
    from headstart.gradient import METHODS

    function, settings = BROKEN_METHODS[promise]
    check = getattr(of_methods, promise)
    check(of_methods.Case("fedavg"))
    case = of_methods.Case(METHODS.name_of(function), settings)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        check(case)
    assert str(caught.value)
    assert not isinstance(caught.value, (TypeError, NameError)), caught.value


def test_a_broken_method_is_told_all_that_it_breaks():
    with pytest.raises(AssertionError) as caught:
        check_method(tuples, {"widths": (1, 2)})
    said = str(caught.value)
    assert said.startswith(f"{__name__}:tuples breaks 1 of its promises")
    assert "plain_values: A job of this method travels as plain values" in said
