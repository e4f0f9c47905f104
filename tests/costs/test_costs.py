"""What training costs: the papers' formulas by hand, and torch's own count of a real visit."""

import numpy as np
import pytest

from headstart import costs, gradient
from headstart.gradient.recipe import Pass, Recipe
from headstart.heads.fed3r import Fed3R
from headstart.heads.fedncm import FedNCM
from headstart.heads.random_features import Fed3RRandomFeatures

B, HEAD = 2_223_872, 1280 * 1203  # MobileNetV2 and iNaturalist
PHI, PSI, E = 332.9e6, 1.5e6, 5


@pytest.mark.parametrize(
    ("name", "train", "up", "down"),
    [
        ("fedavg", "model", B + HEAD, B + HEAD),
        ("fedavg", "extractor", B, B),
        ("fedavg", "head", HEAD, HEAD),
        ("fedprox", "model", B + HEAD, B + HEAD),
        ("fedadam", "model", B + HEAD, B + HEAD),
        ("scaffold", "model", 2 * (B + HEAD), 2 * (B + HEAD)),
        ("scaffold", "head", 2 * HEAD, 2 * HEAD),
        ("mime", "head", 2 * HEAD, 3 * HEAD),  # the gradient up; momentum and gradient down
        ("fedsim", "model", B, B),
        ("fedalt", "model", B, B),
        ("fedper", "model", B, B),
        ("fedrep", "model", B, B),
        ("local-only", "model", 0, 0),
    ],
)
def test_bytes_a_round(name, train, up, down):
    traffic = costs.round_bytes(gradient.make(name), train, B, HEAD)
    assert (traffic.up, traffic.down) == (4 * up, 4 * down)
    assert traffic.both == 4 * (up + down)


@pytest.mark.parametrize("name", ["fedsim", "fedalt", "pfedme"])
def test_the_part_that_is_not_personal_is_sent(name):
    """2b and 2dC: 17.8 and 12.3 MB a round at iNaturalist's size."""
    for personal, sent, megabytes in (("head", B, 17.8), ("extractor", HEAD, 12.3)):
        recipe = gradient.make(name, {"personal": personal})
        both = costs.round_bytes(recipe, "model", B, HEAD).both
        assert both == 4 * 2 * sent
        assert both / 1e6 == pytest.approx(megabytes, abs=0.05)


def test_mime_lite_hears_less_and_asks_less():
    full, lite = gradient.make("mime"), gradient.make("mime", {"lite": True})
    assert costs.round_bytes(lite, "head", B, HEAD).down == 4 * 2 * HEAD
    more = costs.sample_flops(full, "head", 0, PSI, E) - costs.sample_flops(lite, "head", 0, PSI, E)
    assert more == E * 3 * PSI  # g(θᵗ) at every step


@pytest.mark.parametrize(
    ("name", "train", "flops"),
    [
        ("fedavg", "model", 3 * E * (PHI + PSI)),
        ("fedavg", "extractor", 3 * E * (PHI + PSI)),
        ("fedavg", "head", E * (PHI + 3 * PSI)),
        ("scaffold", "head", E * (PHI + 3 * PSI)),
        ("fedsim", "model", 3 * E * (PHI + PSI)),
        ("fedalt", "model", 3 * E * (PHI + PSI)),
        ("pfedme", "model", 2 * 3 * E * (PHI + PSI)),
    ],
)
def test_the_papers_flops(name, train, flops):
    assert costs.formula_flops(gradient.make(name), train, PHI, PSI, E) == pytest.approx(flops)


def test_table_2_of_the_paper():
    """322.9/108.6: FedAvg against FedAvg of the head, with F_ψ of iNaturalist."""
    recipe = gradient.make("fedavg")
    whole, head = (costs.formula_flops(recipe, part, PHI, PSI, E) for part in ("model", "head"))
    assert whole / head == pytest.approx(322.9 / 108.6, rel=2e-3)


def test_flops_pass_by_pass():
    alt, rep = gradient.make("fedalt"), gradient.make("fedrep", {"head_epochs": 2})
    first, second = PHI + 3 * PSI, 3 * (PHI + PSI)  # the head; then the extractor, through it
    assert costs.sample_flops(alt, "model", PHI, PSI, E) == pytest.approx(E * (first + second))
    assert costs.sample_flops(rep, "model", PHI, PSI, E) == pytest.approx(2 * first + E * second)
    inner = gradient.make("pfedme", {"inner_steps": 7})
    assert costs.sample_flops(inner, "head", 0, PSI, E) == pytest.approx(7 * E * 3 * PSI)
    ditto = gradient.make("ditto")
    assert costs.sample_flops(ditto, "head", 0, PSI, E) == pytest.approx(2 * E * 3 * PSI)


def test_kept_features_save_the_extractor_of_a_head_only():
    recipe = gradient.make("fedavg")
    kept = costs.sample_flops(recipe, "head", PHI, PSI, E, cached=True)
    assert kept == pytest.approx(3 * E * PSI)
    paid = costs.sample_flops(recipe, "head", PHI, PSI, E)
    assert paid - kept == pytest.approx(E * PHI)
    deep = [costs.sample_flops(recipe, "model", PHI, PSI, E, cached=c) for c in (True, False)]
    assert deep[0] == deep[1]


def test_a_method_nobody_has_written_yet_costs_itself():
    def thrice(gradient, params, local):
        gradient(params)
        gradient(params, half=0)
        gradient(params, half=1)
        return gradient(local.memory["past"])

    recipe = Recipe(
        correct=thrice,
        passes=(Pass(epochs=2), Pass("personal")),
        personal="head",
        memory={"past": "zeros"},
        extra_names=("a", "b"),
        broadcast_state=("c",),
        needs_full_gradient=True,
    )
    traffic = costs.round_bytes(recipe, "model", 100, 10)
    assert (traffic.up, traffic.down) == (4 * 100 * 4, 4 * 100 * 2)
    both, head, before = 3 * (7 + 1), 7 + 3 * 1, 3 * (7 + 1)
    assert costs.sample_flops(recipe, "model", 7, 1, 5) == 2 * 3 * both + 5 * 3 * head + before


def test_at_home():
    assert costs.local_flops("model", PHI, PSI, 25) == pytest.approx(3 * 25 * (PHI + PSI))
    assert costs.local_flops("head", PHI, PSI, 25) == pytest.approx(25 * (PHI + 3 * PSI))
    assert costs.local_flops("head", PHI, PSI, 25, cached=True) == pytest.approx(75 * PSI)


def test_a_client_is_expected_in_a_share_of_the_rounds():
    assert costs.visits(5000, 10, 9275) == pytest.approx(5.39, abs=0.01)


def test_measuring_a_closed_form():
    assert costs.measure_flops(Fed3R(), 1280, 5.886, PHI) == PHI + 1280 * 1281 / 2 + 1280 * 5.886
    random = Fed3RRandomFeatures(dimension=5000, bandwidth=20.0)
    assert costs.measure_flops(random, 1280, 6, PHI) == (
        PHI + 1280 * 5000 + 5000 * 5001 / 2 + 5000 * 6
    )
    assert costs.measure_flops(FedNCM(), 1280, 6, PHI) == PHI


# -- counted by torch ------------------------------------------------------------------------------


def visit(name, train, network=None, epochs=2):
    """(counted, by formula, F_ψ, what the message's weighting takes), a sample."""
    pytest.importorskip("torch")
    from headstart.gradient.engine import Training
    from headstart.gradient.flops import counted_flops, extractor_flops, head_flops
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job

    n, shape = 12, (3, 16, 16) if network else (5,)
    spec = Spec(7, 128 if network else 5, network=network)
    job = Job(name, spec, Training(epochs=epochs, batch=6), train)
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(n, *shape)).astype(np.float32)
    forward = (extractor_flops(network, shape) if network else 0.0, head_flops(spec))
    formula = costs.sample_flops(job.recipe, train, *forward, epochs)
    message = sum(int(np.prod(job.model.shapes[one])) for one in job.names.shared) / n
    return counted_flops(job, samples, rng.integers(0, 7, n)), formula, forward[1], message


BESIDE = {"fedntd": 1, "moon": 2, "fedsol": 1}  # models that terms look through


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in gradient.METHODS
        if gradient.make(n).personal in (None, "model")
        and not gradient.make(n).trains
        and not gradient.make(n).dense
    ],
)
def test_a_head_on_features_takes_two_thirds_of_the_formula(name):
    """3F_ψ holds the gradient by the features, which nobody needs: forward and by the weights."""
    counted, formula, psi, message = visit(name, "head")
    beside = 2 * BESIDE.get(name, 0) * psi  # forward only, in each of two epochs
    assert counted == pytest.approx((formula - beside) * 2 / 3 + beside + message)


def test_models_that_terms_look_through_are_a_forward_pass_each():
    plain = costs.sample_flops(gradient.make("dot-regression"), "extractor", PHI, PSI, E)
    assert plain == pytest.approx(3 * E * (PHI + PSI))
    for name, beside in (("feddr-plus", 1), ("moon", 2)):
        found = costs.sample_flops(gradient.make(name), "extractor", PHI, PSI, E)
        assert found == pytest.approx((3 + beside) * E * (PHI + PSI))
    twice = costs.sample_flops(gradient.make("fedsol"), "model", PHI, PSI, E)
    assert twice == pytest.approx((2 * 3 + 1) * E * (PHI + PSI))
    ahead = gradient.make("mime", {"term": "fd"})
    assert costs.sample_flops(ahead, "model", PHI, PSI, E) == pytest.approx(
        (2 * E + 1) * 4 * (PHI + PSI)
    )


@pytest.mark.parametrize(
    "name",
    ["fedavg", "scaffold", "mime", "fedsim", "fedrep", "ditto", "pfedme", "fedntd", "moon"],
)
def test_a_network_takes_the_formula_but_for_its_first_gradient(name):
    """No gradient by the pixels: the first convolution's share of 3F."""
    counted, formula, _, message = visit(name, "model", "small_cnn")
    assert 0.96 * formula < counted - message < formula
    if name == "fedavg":
        pixels = 2 * (16 * 16) * 32 * (3 * 9)  # E · places · channels · weights
        assert counted == pytest.approx(formula - pixels + message)


def test_the_head_of_a_network():
    counted, formula, psi, message = visit("fedavg", "head", "small_cnn")
    assert counted == pytest.approx(formula - 2 * psi + message)


def test_published_networks_are_counted_without_their_weights():
    """MobileNetV2 and ResNet-18: 300 and 1,814 million multiply-adds (their papers)."""
    pytest.importorskip("torch")
    from headstart.gradient.flops import extractor_flops

    assert extractor_flops("mobilenet_v2") == pytest.approx(300e6, rel=0.01)
    assert extractor_flops("resnet18") == pytest.approx(1.814e9, rel=0.01)
    large = extractor_flops("mobilenet_v2", (3, 448, 448))
    assert large == pytest.approx(4 * extractor_flops("mobilenet_v2"))


@pytest.mark.parametrize("n", [1, 3, 12])
@pytest.mark.parametrize(
    ("name", "train", "network"),
    [
        ("fedavg", "head", None),
        ("scaffold", "head", None),
        ("mime", "head", None),
        ("fedavg", "model", "small_cnn"),
        ("fedalt", "model", "small_cnn"),
    ],
)
def test_a_visit_counts_its_samples_and_once_its_message(name, train, network, n):
    """Whatever the batch and the rate: the count of a visit is a·n + m."""
    pytest.importorskip("torch")
    from headstart.gradient.engine import Training
    from headstart.gradient.flops import counted_flops, visit_flops
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job

    shape = (3, 8, 8) if network else (5,)
    spec = Spec(7, 128 if network else 5, network=network)
    job = Job(name, spec, Training(rate=0.5, epochs=2, batch=6), train)
    each, once = visit_flops(job, shape)
    samples = np.random.default_rng(1).normal(size=(n, *shape)).astype(np.float32)
    found = n * counted_flops(job, samples, np.arange(n) % 7)
    assert each * n + once == pytest.approx(found, rel=1e-9)
    assert once == sum(np.prod(job.model.shapes[one]) for one in job.names.shared)
