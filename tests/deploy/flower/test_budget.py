"""What a server may ask of a node, and how often: attacks that read samples, what stops them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headstart import Fed3R, LinearHead
from headstart.data.datasets import load
from headstart.data.samples import ArraySamples
from headstart.deploy.admission import Contract, UploadRejected
from headstart.deploy.flower import budget as budget_half
from headstart.deploy.flower import client as node_half
from headstart.deploy.flower.budget import FILE, KINDS, Budget, charged
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.server import serve
from headstart.deploy.nodes import online
from headstart.errors import HeadstartError
from headstart.federation import steps
from headstart.federation.protocol import OWN_STEPS, ClientData, Step, step_kind
from headstart.heads.linear import TEMPERATURES

from .attacks import foremost_sample, lone_sample
from .fake_grid import FakeGrid, nodes_of, write_samples
from .test_agreement import run_settings

DIMENSION = 64


@pytest.fixture(scope="module")
def digits():
    data = load("digits").train_part()
    return data.features[:300].astype(np.float64), data.labels[:300]


class Refused(Exception):
    """With the code of a node's refusal."""


class Server:
    """A curious server: it asks one node, and counts the answers that it gets."""

    def __init__(self, nodes) -> None:
        grid = FakeGrid(nodes)
        ids = {node.name: node.id for node in online(grid)}
        contract = Contract("1", steps.measure(Fed3R()).params, DIMENSION)
        self.federation = FlowerFederation(grid, ids, 0.3, poll=0.001, contract=contract)
        self.answers = []

    def __call__(self, head: LinearHead) -> np.ndarray:
        return self.ask(steps.calibrate(), steps.with_head(head)).values

    def ask(self, step, broadcast=None):
        for answer in self.federation.answers(step, broadcast or {}):
            self.answers.append(answer)
            return answer.statistic
        (*_, failure) = self.federation.failures
        raise Refused(failure.code, failure.text)


def node_of(tmp_path, x, y, test=None, **config):
    held = ClientData(ArraySamples(x, y), ArraySamples(*test) if test else None)
    return nodes_of({"site": held}, tmp_path, **{"small": False, **config})


# -- reading samples in losses ---------------------------------------------------------------------


def test_losses_give_a_lone_sample_back_and_a_small_client_refuses(digits, tmp_path):
    x, y = digits
    whole = lone_sample(lambda head: head.losses(x[:1], y[:1]), int(y[0]), DIMENSION)
    assert np.allclose(whole, x[0], atol=1e-9)  # 64 answers, if they were given
    server = Server(node_of(tmp_path, x[:1], y[:1]))
    with pytest.raises(Refused, match="small"):
        lone_sample(server, int(y[0]), DIMENSION)
    assert not server.answers


def test_losses_give_one_of_300_samples_back_and_the_budget_ends_it_at_four(digits, tmp_path):
    x, y = digits
    asked = []

    def unbounded(head):
        asked.append(head)
        return head.losses(x, y)

    found = foremost_sample(unbounded, 3, DIMENSION, reach=64.0)
    assert np.abs(x - found).max(axis=1).min() < 1e-9  # one of them, exactly
    assert len(asked) <= 125
    server = Server(node_of(tmp_path, x, y))
    with pytest.raises(Refused, match="budget"):
        foremost_sample(server, 3, DIMENSION, reach=64.0)
    assert len(server.answers) == 4


def test_an_owner_who_lets_few_samples_go_still_answers_four(digits, tmp_path):
    x, y = digits
    server = Server(node_of(tmp_path, x[:1], y[:1], small=True))
    with pytest.raises(Refused) as caught:
        lone_sample(server, int(y[0]), DIMENSION)
    code, text = caught.value.args
    assert (code, len(server.answers)) == ("budget", 4)
    assert "left: measure 8, calibrate 0, personal 16, training 100" in text
    assert "calibrate in node.toml" in text


def test_rounded_losses_hide_one_of_many_samples_but_not_a_lone_one(digits):
    """Rounding is no substitute for the budget; it says no more than a temperature needs."""
    x, y = digits

    def rounded(head):
        known = int(np.isin(y, head.classes).sum())
        return steps.coarse(head.losses(x, y), known, len(head.classes))

    found = foremost_sample(rounded, 3, DIMENSION, reach=64.0)
    assert np.linalg.norm(x - found, axis=1).min() > 1.0
    one = lone_sample(
        lambda head: steps.coarse(head.losses(x[:1], y[:1]), 1, 2), int(y[0]), DIMENSION
    )
    assert np.abs(one - x[0]).max() < 0.05


@pytest.mark.parametrize("parts", [1, 7, 40])
def test_a_temperature_of_rounded_losses_is_nearly_the_best(digits, parts):
    x, y = digits
    head = Fed3R().solve(Fed3R().measure(x[:150], y[:150]))
    x, y = x[150:], y[150:]
    exact, rounded = np.zeros((2, len(TEMPERATURES)))
    for at in range(parts):
        own = head.losses(x[at::parts], y[at::parts])
        exact += own
        rounded += steps.coarse(own, len(y[at::parts]), 10)
    cost = exact[np.argmin(rounded)] - exact.min()
    assert cost <= len(y) * np.log(10) / steps.LEVELS
    best, found = (head.calibrated(losses).temperature for losses in (exact, rounded))
    assert abs(np.log(found / best)) < 0.25


# -- what counts -----------------------------------------------------------------------------------


def heads_(count, dimension=DIMENSION):
    """Different heads, as of different totals."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(count, 10, dimension))
    return [LinearHead(w, np.zeros(10), np.arange(10), temperature=1.0) for w in rows]


def test_every_step_that_discloses_is_counted():
    for name in OWN_STEPS:
        kind = step_kind(name)
        assert bool(kind.discloses) == (kind.budget in KINDS), name
    assert charged(steps.calibrate()) == "calibrate"
    assert charged(steps.through(steps.calibrate(), {"network": "x"})) == "training"
    assert charged(replace(steps.calibrate(), silent=True)) == ""
    assert charged(steps.counts()) == ""


def test_a_step_of_a_plugin_that_says_no_budget_of_ours_counts_as_training(monkeypatch):
    for said in ("", "as much as you like"):
        kind = replace(step_kind("measure"), budget=said)
        monkeypatch.setattr(budget_half, "step_kind", lambda name, kind=kind: kind)
        assert charged(Step("mine")) == "training"


@pytest.mark.parametrize("kind", ["calibrate", "personal", "measure"])
def test_so_many_questions_are_answered_and_the_same_ones_again(digits, tmp_path, kind):
    x, y = digits
    nodes = node_of(tmp_path, x, y, (x[:40], y[:40]), **{kind: 2})
    server = Server(nodes)
    if kind == "measure":
        asked = [(steps.measure(Fed3R(ridge=ridge)), {}) for ridge in (0.1, 0.2, 0.3)]
    else:
        step = getattr(steps, kind)()
        asked = [(step, steps.with_head(head)) for head in heads_(3)]
    first = [server.ask(*one).digest() for one in asked[:2]]
    with pytest.raises(Refused, match="budget"):
        server.ask(*asked[2])
    again = Server(nodes)  # another run, other keys, a node that was started again
    assert [again.ask(*one).digest() for one in asked[:2]] == first
    with pytest.raises(Refused, match="budget"):
        again.ask(*asked[2])


def test_other_samples_in_the_same_place_are_no_new_budget(digits, tmp_path):
    """A sample more, and the difference of two answers would be that sample."""
    x, y = digits
    nodes = node_of(tmp_path, x[:200], y[:200], measure=2)
    step = steps.measure(Fed3R())
    Server(nodes).ask(step)
    write_samples(nodes[0].config["data"], ClientData(ArraySamples(x[:201], y[:201])))
    Server(nodes).ask(step)  # the same words, another answer: it counts
    write_samples(nodes[0].config["data"], ClientData(ArraySamples(x[:202], y[:202])))
    with pytest.raises(Refused, match="budget"):
        Server(nodes).ask(step)


def test_a_question_is_on_the_disk_before_it_is_answered(digits, tmp_path, monkeypatch):
    x, y = digits
    nodes = node_of(tmp_path, x, y, calibrate=1)
    head, other = heads_(2)

    class Killed(BaseException):
        pass

    def killed(*told):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(node_half, "perform", killed)
        with pytest.raises(Killed):
            Server(nodes)(head)
    assert Server(nodes)(head).any()  # the same question once more
    with pytest.raises(Refused, match="budget"):
        Server(nodes)(other)
    path = Path(nodes[0].config["folder"]) / FILE
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_count_is_no_new_budget(digits, tmp_path):
    x, y = digits
    nodes = node_of(tmp_path, x, y)
    path = Path(nodes[0].config["folder"]) / FILE
    for damage in ("", "{", '{"version": 1, "asked": 3}', '{"version": 9, "asked": {}}'):
        path.write_text(damage)
        with pytest.raises(Refused, match="budget: expected the count of answered questions"):
            Server(nodes)(heads_(1)[0])


def test_questions_at_the_same_time_are_counted_one_after_the_other(tmp_path):
    budget = Budget(tmp_path, dict.fromkeys(KINDS, 4))
    spent, refused = [], []

    def ask(number):
        try:
            budget.spend("calibrate", str(number))
            spent.append(number)
        except UploadRejected:
            refused.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(spent), len(refused)) == (4, 8)
    assert budget.left()["calibrate"] == 0
    kept = json.loads((tmp_path / FILE).read_text())["asked"]["calibrate"]
    assert sorted(kept) == sorted(map(str, spent))


def test_a_budget_that_cannot_be_written_is_an_answer_that_is_not_given(digits, tmp_path):
    x, y = digits
    nodes = node_of(tmp_path, x, y)
    (Path(nodes[0].config["folder"]) / FILE).mkdir()
    server = Server(nodes)
    with pytest.raises(Refused, match="failed"):
        server(heads_(1)[0])
    assert not server.answers


# -- small clients, and networks of the server's ---------------------------------------------------


@pytest.mark.parametrize("name", ["calibrate", "personal"])
def test_few_samples_answer_no_losses_and_no_hits(digits, tmp_path, name):
    x, y = digits
    head = heads_(1)[0]
    few = node_of(tmp_path, x[:9], np.arange(9) % 3, (x[:40], y[:40]))
    with pytest.raises(Refused, match="fewer than 10"):
        Server(few).ask(getattr(steps, name)(), steps.with_head(head))


def test_hits_of_few_test_samples_are_not_told(digits, tmp_path):
    x, y = digits
    nodes = node_of(tmp_path, x, y, (x[:9], y[:9]))
    server = Server(nodes)
    with pytest.raises(Refused, match="tests on 9 samples"):
        server.ask(steps.personal(), steps.with_head(heads_(1)[0]))
    assert server(heads_(1)[0]).any()  # the losses are those of the 300


def test_a_step_through_a_network_of_the_servers_needs_the_owners_word(digits, tmp_path):
    """Whoever chooses the extractor chooses what of each sample the answer shows."""
    pytest.importorskip("torch")
    from headstart.gradient.models import Spec

    x, y = digits
    nodes = node_of(tmp_path, x, y, training=1)
    spec, none = Spec(10, DIMENSION).plain(), {"extractor": np.zeros(0, np.float32)}
    step = steps.through(steps.measure(Fed3R()), spec)
    server = Server(nodes)
    with pytest.raises(Refused) as caught:
        server.ask(step, none)
    code, text = caught.value.args
    assert code == "train"
    assert "this node agreed that the head trains" in text
    nodes[0].config["train"] = "extractor"
    server.ask(step, none)
    with pytest.raises(Refused, match="budget: training"):  # and it was a round of training
        server.ask(replace(step, params={**step.params, "bound": 3.0}), none)


@pytest.mark.parametrize("named", ["job", "begin"])
def test_a_training_of_more_than_was_agreed_is_refused(named):
    def asked(part, network="mobilenet_v2"):
        plain = {"train": "head", "spec": {"network": None}}
        return Step("home", {"job": plain, named: {"train": part, "spec": {"network": network}}})

    may = {
        train: node_half.NodeSettings(client="a", data="b", folder="c", train=train)
        for train in ("head", "extractor", "model")
    }
    for train, part in (("head", "head"), ("head", "extractor"), ("extractor", "model")):
        with pytest.raises(UploadRejected) as caught:
            node_half.may_train(asked(part), may[train])
        assert caught.value.code == "train"
    for train, part in (("extractor", "extractor"), ("model", "model"), ("model", "extractor")):
        node_half.may_train(asked(part), may[train])
    node_half.may_train(asked("head", None), may["head"])  # a head on features as they are


# -- what the operator sees ------------------------------------------------------------------------


def test_the_report_names_who_answers_no_more_and_what_is_left(digits, tmp_path):
    x, y = digits
    held = {
        "east": ClientData(ArraySamples(x[:150], y[:150])),
        "west": ClientData(ArraySamples(x[150:], y[150:])),
    }
    nodes = nodes_of(held, tmp_path)
    nodes[1].config["calibrate"] = 0
    settings = run_settings(tmp_path, dimension=DIMENSION, wanted=2)
    result = serve(FakeGrid(nodes), settings, "run", poll=0.01)
    ((failure,),) = [result.failures]
    assert (failure.client, failure.code) == ("west", "budget")
    assert "left: measure 7, calibrate 0" in failure.text
    page = (tmp_path / "out" / "report.html").read_text()
    assert "budget: calibrate" in page
    assert result.head is not None


def test_a_training_stops_at_the_rounds_its_owner_allows(digits, tmp_path):
    pytest.importorskip("torch")
    x, y = digits
    held = {
        "east": ClientData(ArraySamples(x[:150], y[:150])),
        "west": ClientData(ArraySamples(x[150:], y[150:])),
    }
    nodes = nodes_of(held, tmp_path)
    nodes[1].config["training"] = 2
    settings = run_settings(
        tmp_path, dimension=DIMENSION, wanted=2, pipeline="Fed3R + FedAvg-4(head)", cohort=2
    )
    result = serve(FakeGrid(nodes), settings, "run", poll=0.01)
    assert [point.round for point in result.curve] == [0, 1, 2, 3, 4]
    assert [failure.code for failure in result.failures] == ["budget", "budget"]
    nodes[0].config["training"] = 0
    other = replace(settings, pipeline="Fed3R + FedProx-1(head)")
    with pytest.raises(HeadstartError, match="budget"):  # nobody is left to train with
        serve(FakeGrid(nodes), other, "another", poll=0.01)


def test_the_same_words_to_a_client_that_has_trained_since_are_another_question(digits, tmp_path):
    """What it remembers is in its answer: asked again and again, it would say ever more."""
    pytest.importorskip("torch")
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job, broadcast, update

    x, y = digits
    job = Job("scaffold", Spec(10, DIMENSION))
    params = {
        "head.weight": np.zeros((10, DIMENSION), np.float32),
        "head.bias": np.zeros(10, np.float32),
    }
    words = broadcast(job, params, {"control": params}, np.arange(10))
    nodes = node_of(tmp_path, x, y, training=2)
    server = Server(nodes)
    server.federation.begin_training("one")
    first = server.ask(update(job, 0), words).digest()
    second = server.ask(update(job, 0), words).digest()
    assert first != second
    with pytest.raises(Refused, match="budget"):
        server.ask(update(job, 0), words)
    server.federation.last["site"] = 1  # a server that has not heard the second answer
    assert server.ask(update(job, 0), words).digest() == second
