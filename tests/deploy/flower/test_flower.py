"""The federation over Flower's Grid, in one process: as simulated, whatever goes wrong."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart import Fed3R, FedNCM, HeadstartError, LinearHead, WireError, heads, registry
from headstart.data.samples import ArraySamples
from headstart.deploy.flower import waiting
from headstart.deploy.flower.collect import due
from headstart.deploy.flower.federation import FlowerFederation
from headstart.deploy.flower.messages import Question, Reply
from headstart.deploy.flower.recorded import LedgerStore
from headstart.deploy.flower.server import serve
from headstart.deploy.flower.settings import NodeSettings, ServerSettings, told
from headstart.deploy.flower.waiting import Waiting
from headstart.deploy.ledger import Ledger
from headstart.deploy.nodes import LONGEST, ClientFailure, Node, Registry, online
from headstart.federation import steps
from headstart.federation.protocol import STEPS, ClientData, Step, step_kind, tallies
from headstart.federation.recorded import Recorded
from headstart.federation.simulator import Simulator
from headstart.pipeline.config import make_config, parsed
from headstart.pipeline.experiment import prepare
from headstart.pipeline.personalize import linear_head
from headstart.pipeline.run import simulate
from headstart.results import SeedResult

from .fake_grid import FakeGrid, FakeNode, nodes_of, run_settings, write_samples

EXACT = steps.measure(Fed3R(), exact=True, bound=1.0)


@pytest.fixture(scope="module")
def experiment():
    """Digits at five clients, each with a part of its own to test on."""
    return prepare(
        make_config(
            {
                "data": "digits",
                "bound": 1.0,
                "held_out": 0.3,
                "cohort": 3,
                "partition": {"name": "dirichlet", "clients": 5, "alpha": 1.0},
            }
        )
    )


@pytest.fixture
def nodes(experiment, tmp_path):
    return nodes_of(experiment.clients, tmp_path)


def federation(nodes, **told):
    grid = FakeGrid(nodes, newest_first=told.pop("newest_first", False))
    names = {node.name: node.id for node in online(grid)}
    return FlowerFederation(grid, names, **{"deadline": 0.3, "poll": 0.01, **told})


def solved(experiment):
    """The head of all clients, calibrated."""
    head = Fed3R().solve(experiment.federation.total(EXACT).statistic)
    losses = experiment.federation.total(steps.calibrate(), steps.with_head(head))
    return head.calibrated(losses.statistic.values)


# -- the federation --------------------------------------------------------------------------------


@pytest.mark.parametrize("newest_first", [False, True])
def test_the_total_is_the_simulators_and_so_are_the_bytes(experiment, nodes, newest_first):
    over_grid = federation(nodes, newest_first=newest_first)
    for step in (EXACT, steps.measure(FedNCM()), steps.counts()):
        ours, theirs = over_grid.total(step), experiment.federation.total(step)
        assert ours.statistic.digest() == theirs.statistic.digest()
        assert (ours.up, ours.down) == (theirs.up, theirs.down)
        assert sorted(ours.clients) == sorted(theirs.clients)
    assert not over_grid.failures
    head = steps.with_head(solved(experiment))
    for step in (steps.calibrate(), steps.personal()):
        ours, theirs = (tallies(one, step, head) for one in (over_grid, experiment.federation))
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_client_that_is_told_to_be_silent_answers_with_nothing(experiment, nodes):
    hidden = replace(EXACT, silent=True)
    ours, theirs = federation(nodes).total(hidden), experiment.federation.total(hidden)
    assert ours.statistic.samples == 0
    assert ours.statistic.digest() == theirs.statistic.digest()


def test_every_step_says_what_it_is_answered_with():
    assert {"measure", "counts", "update", "refit", "home", "channels"} <= set(STEPS)
    for name in STEPS:
        assert step_kind(name).answer is not None
    asked = steps.measure(FedNCM())
    assert step_kind("measure").answer_type(asked) is FedNCM.statistic
    with pytest.raises(HeadstartError, match="step: expected one of"):
        list(federation([]).answers(Step("steal")))


def spoiled(content: RecordDict) -> RecordDict:
    payload = bytearray(content["arrays"]["upload"].data)
    payload[-1] ^= 1
    array = Array("uint8", (len(payload),), "headstart.wire", bytes(payload))
    return RecordDict({"about": content["about"], "arrays": ArrayRecord({"upload": array})})


def renamed(content: RecordDict) -> RecordDict:
    about = json.loads(content["about"]["json"])
    about["client"] = "client-0"
    return RecordDict(
        {"about": ConfigRecord({"json": json.dumps(about)}), "arrays": content["arrays"]}
    )


def impersonated(content: RecordDict) -> RecordDict:
    """As if from a node that was not told the question's nonce."""
    about = {**json.loads(content["about"]["json"]), "nonce": "guessed"}
    return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})


def emptied(content: RecordDict) -> RecordDict:
    return RecordDict({"about": content["about"]})


FAULTS = {
    "silent": "missing",
    "dead": "unreachable",
    spoiled: "digest",
    renamed: "identity",
    impersonated: "identity",
    emptied: "malformed",
}


@pytest.mark.parametrize(
    ("fault", "code"), FAULTS.items(), ids=lambda it: getattr(it, "__name__", it)
)
def test_what_goes_wrong_at_one_client_is_told_and_the_others_are_summed(
    experiment, nodes, fault, code
):
    nodes[2].fault = fault
    over_grid = federation(nodes)
    found = over_grid.total(EXACT)
    kept = {name: data for name, data in experiment.clients.items() if name != nodes[2].name}
    assert found.statistic.digest() == Simulator(kept).total(EXACT).statistic.digest()
    ((failure,),) = [over_grid.failures]
    assert (failure.client, failure.code) == (nodes[2].name, code)
    assert nodes[2].name in failure.text


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from([None, "dead", spoiled, renamed, emptied]), min_size=4, max_size=4),
    st.booleans(),
)
def test_the_total_is_always_that_of_whoever_answered_well(experiment, nodes, faults, newest_first):
    for node, fault in zip(nodes, [None, *faults], strict=True):
        node.fault = fault
    over_grid = federation(nodes, newest_first=newest_first)
    well = {node.name: experiment.clients[node.name] for node in nodes if not node.fault}
    assert (
        over_grid.total(EXACT).statistic.digest() == Simulator(well).total(EXACT).statistic.digest()
    )
    assert {failure.client for failure in over_grid.failures} == {
        node.name for node in nodes if node.fault
    }


def test_a_question_that_flower_will_not_carry_is_told(nodes):
    over_grid = federation(nodes)
    over_grid.grid.push_messages = lambda messages: []  # as for a message that is too large
    assert list(over_grid.answers(EXACT)) == []
    assert {failure.code for failure in over_grid.failures} == {"unreachable"}
    assert len(over_grid.failures) == len(nodes)


def test_nobody_answers(nodes):
    for node in nodes:
        node.fault = "dead"
    with pytest.raises(HeadstartError, match=r"measure: .*Node Unavailable"):
        federation(nodes).total(EXACT)


def test_unknown_clients_and_deadlines_are_refused(nodes):
    with pytest.raises(HeadstartError, match="cohort: expected known clients, got nobody"):
        federation(nodes).total(EXACT, cohort=["nobody"])
    with pytest.raises(HeadstartError, match="deadline"):
        federation(nodes, deadline=0)


# -- the client's half -----------------------------------------------------------------------------


def test_a_client_of_few_samples_refuses_says_why_and_can_be_told_otherwise(tmp_path):
    few = ClientData(ArraySamples(np.eye(4)[[0, 1, 2, 3] * 2], np.array([0, 1] * 4)))
    lone = ClientData(ArraySamples(np.ones((20, 4)), np.array([0] * 19 + [1])))
    own = tmp_path / "own"
    own.mkdir()
    nodes = nodes_of({"few": few, "lone": lone}, own, small=False)
    over_grid = federation(nodes)
    assert list(over_grid.answers(EXACT)) == []
    assert [failure.code for failure in over_grid.failures] == ["small", "small"]
    assert "8 samples" in over_grid.failures[0].text
    assert "class of one sample" in over_grid.failures[1].text
    counted = over_grid.total(steps.measure(heads.make("etf")))  # counts alone may go
    assert counted.clients == over_grid.total(steps.counts()).clients == ("few", "lone")
    nodes[0].config["small"] = True
    assert [answer.clients for answer in over_grid.answers(EXACT)] == [("few",)]


def trainings():
    """Every other step whose answer holds features, on three classes of four dimensions."""

    from headstart.federation.channels import channels
    from headstart.gradient.models import Spec
    from headstart.gradient.refit import ACCEPTED, refit
    from headstart.gradient.steps import Job, broadcast, full_gradient, update

    job = Job("fedavg", Spec(3, 4))
    params = {"head.weight": np.zeros((3, 4), np.float32), "head.bias": np.zeros(3, np.float32)}
    words = broadcast(job, params, {}, np.arange(3))
    none = np.zeros(0, np.uint64)
    told = {"extractor": np.zeros(0, np.float32), "classes": np.arange(3), ACCEPTED: none}
    return {
        "update": (update(job, 0), words),
        "gradient": (full_gradient(job, 0), words),
        "refit": (refit(job.spec, Fed3R(), 0), told),
        "channels": (channels(), {}),
    }


@pytest.mark.parametrize("name", ["update", "gradient", "refit", "channels"])
def test_few_samples_are_not_shown_by_any_other_step_either(tmp_path, name):
    """a row of a head's update is, for one sample, its feature vector."""
    sample = np.array([[0.1, 0.7, 0.3, 0.9]])
    one = {"one": ClientData(ArraySamples(sample, np.array([1])))}
    nodes = nodes_of(one, tmp_path, small=False, train="model")
    over_grid = federation(nodes)
    step, words = trainings()[name]
    assert list(over_grid.answers(step, words)) == []
    (failure,) = over_grid.failures
    assert failure.code == "small"
    assert "1 samples (fewer than 10)" in failure.text
    assert SHOWS[name] in failure.text
    assert "no secure sums yet" in failure.text
    assert "small = true" in failure.text
    nodes[0].config["small"] = True
    if name == "channels":  # a node holds features, which have no colours
        assert list(over_grid.answers(step, words)) == []
        assert "channels: expected images" in over_grid.failures[-1].text
        return
    (sent,) = over_grid.answers(step, words)
    if name == "update":  # what the refusal kept from the server
        row = sent.statistic.vectors[0][4:8]
        assert np.allclose(row / np.linalg.norm(row), sample[0] / np.linalg.norm(sample[0]))


SHOWS = {
    "update": "a row of an update is a sum of features",
    "gradient": "a row of a gradient is a sum of features",
    "refit": "class of one sample",
    "channels": "the colours of so few images",
}


@pytest.fixture
def rotated(tmp_path):
    """A node of fewer samples than dimensions: the last bits it sends are those of its secret."""
    own = tmp_path / "rotated"
    own.mkdir()
    data = ClientData(
        ArraySamples(np.random.default_rng(0).uniform(size=(12, 20)), np.arange(12) % 2)
    )
    return nodes_of({"few": data}, own)


def test_a_secret_is_drawn_once_and_is_its_owners_alone(rotated):
    nodes = rotated
    path = Path(nodes[0].config["folder"]) / "secret"
    path.unlink()
    over_grid = federation(nodes[:1])
    (one,), (two,) = ([answer.payload for answer in over_grid.answers(EXACT)] for _ in "ab")
    assert one == two
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(path.read_bytes()) == 32
    path.unlink()
    (three,) = (answer.payload for answer in over_grid.answers(EXACT))
    assert three != one  # the rotation is another


def test_what_a_node_cannot_read_stays_in_its_own_log(nodes, tmp_path, caplog):
    path = tmp_path / "broken.csv"
    path.write_text("label,x\n1,private-cell\n")
    nodes[0].config["data"] = str(path)
    over_grid = federation(nodes[:1])
    assert list(over_grid.answers(EXACT)) == []
    (failure,) = over_grid.failures
    assert failure.code == "failed"
    assert "private-cell" not in failure.text
    assert "broken.csv" not in failure.text


def test_a_table_of_many_clients_gives_a_node_its_own_rows_only(experiment, tmp_path):
    clients = dict(list(experiment.clients.items())[:2])
    path = tmp_path / "all.npz"
    np.savez(
        path,
        features=np.concatenate([data.samples.features for data in clients.values()]),
        label=np.concatenate([data.samples.labels for data in clients.values()]),
        client=np.concatenate([np.full(len(d.samples), name) for name, d in clients.items()]),
    )
    own = tmp_path / "own"
    own.mkdir()
    nodes = nodes_of(clients, own, data=str(path))
    assert (
        federation(nodes).total(EXACT).statistic.digest()
        == Simulator(clients).total(EXACT).statistic.digest()
    )
    nodes[0].config["client"] = nodes[0].name = "stranger"
    over_grid = federation(nodes)
    assert len(list(over_grid.answers(EXACT))) == 1


def test_a_node_can_hold_out_a_part_of_its_own(experiment, tmp_path):
    name, data = next(iter(experiment.clients.items()))
    plain = replace(data, test=None)
    whole = tmp_path / "whole"
    whole.mkdir()
    nodes = nodes_of({name: plain}, whole, held_out=0.25)
    np.savez(nodes[0].config["data"], features=data.samples.features, label=data.samples.labels)
    head = solved(experiment)
    over_grid = federation(nodes)
    tested = tallies(over_grid, steps.personal(), steps.with_head(head))[name][0]
    assert tested == np.floor(0.25 * len(data.samples.labels) + 0.5)
    assert over_grid.total(EXACT).statistic.samples == len(data.samples.labels) - tested


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"client": "a"}, "data"),
        ({"data": "x"}, "client"),
        ({"client": "a", "data": "x"}, "folder"),
        ({"client": "a", "data": "x", "folder": "p", "train": "all"}, "train: expected one of"),
        ({"client": "a", "data": "x", "folder": "p", "calibrate": -1}, "a number of questions"),
        ({"client": "a", "data": "x", "colour": "red"}, "unknown key 'colour'"),
        ({"client": "a", "data": "x", "held-out": "half"}, "held-out: expected a float"),
        ({"client": "a", "data": "x", "small": 1}, "small: expected a bool"),
        ({"client": "a", "data": "x", "seed": True}, "seed: expected a int"),
        ({"client": "a", "data": "x", "small.too": 1}, "unknown key"),
    ],
)
def test_a_nodes_configuration_is_checked(values, said):
    with pytest.raises(HeadstartError, match=said):
        told(NodeSettings, values, "node")


# -- words -----------------------------------------------------------------------------------------


ARRAYS = st.dictionaries(
    st.text("abc/", min_size=1, max_size=4),
    st.sampled_from(
        [np.arange(6.0).reshape(2, 3), np.array(["a", "ü"]), np.zeros((0, 2)), np.float32(2)[None]]
    ),
    max_size=3,
)


@given(ARRAYS, st.text(max_size=20), st.none() | st.dictionaries(st.text(), st.integers()))
def test_questions_arrive_as_they_were_asked(arrays, training, news):
    step = Step("measure", {"head": "fed3r", "n": [1, 2.5]})
    asked = Question(step, arrays, "int8", training, 7, 5, news, "nonce")
    heard = Question.from_content(asked.to_content())
    assert {**vars(heard), "broadcast": 0} == {**vars(asked), "broadcast": 0}
    assert heard.broadcast.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(heard.broadcast[name], array)
        assert heard.broadcast[name].dtype == array.dtype


@given(st.text(max_size=20), st.binary(max_size=50), st.text(max_size=20))
def test_answers_arrive_as_they_were_given(client, payload, text):
    given_ = Reply(client, payload, {"name": "x"}, "small", text, "nonce")
    assert Reply.from_content(given_.to_content(), 50) == given_


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["client", "code", "text", "extractor", "nonce"]), inner
            )
        ),
    )
)
def test_whatever_a_client_says_is_an_answer_or_refused(about):
    record = ConfigRecord({"json": json.dumps(about)})
    array = Array("uint8", (1,), "headstart.wire", b"x")
    for content in (
        RecordDict({"about": record, "arrays": ArrayRecord({"upload": array})}),
        RecordDict({"about": record}),
        RecordDict({"arrays": ArrayRecord({"upload": array})}),
        RecordDict(
            {"about": ConfigRecord({"json": json.dumps(about)[:-1]}), "arrays": ArrayRecord()}
        ),
    ):
        with suppress(WireError):
            assert isinstance(Reply.from_content(content, 10).client, str)


@pytest.mark.parametrize("value", ["\ud800", float("nan")])
@pytest.mark.parametrize("key", ["client", "code", "text", "nonce", "extractor"])
def test_what_no_file_can_hold_is_no_answer(key, value):
    about = {"client": "a", "code": "", "text": "", "nonce": "", "extractor": None}
    about[key] = {"name": [value]} if key == "extractor" else value
    array = Array("uint8", (1,), "headstart.wire", b"x")
    content = RecordDict(
        {
            "about": ConfigRecord({"json": json.dumps(about)}),
            "arrays": ArrayRecord({"upload": array}),
        }
    )
    with pytest.raises(WireError) as caught:
        Reply.from_content(content, 10)
    assert caught.value.code == "malformed"


@given(st.text(st.characters(codec=None), max_size=20), st.text(st.characters(codec=None)))
def test_whatever_the_failure_its_words_are_one_line_of_a_log(code, text):
    failure = ClientFailure("a", code, text)
    assert (failure.code + failure.text).isprintable()
    assert ClientFailure("a", failure.code, failure.text) == failure
    if (code + text).isprintable():
        assert (failure.code, failure.text) == (code, text)


@given(st.text(st.characters(codec=None), min_size=LONGEST - 5, max_size=20 * LONGEST))
def test_a_line_about_a_failure_is_never_long(text):
    failure = ClientFailure("a", "failed", text)
    assert len(failure.text) <= LONGEST
    assert failure.text.isprintable()


def test_an_upload_beyond_the_limit_is_refused():
    with pytest.raises(WireError, match="at most 10 bytes, got 11"):
        Reply.from_content(Reply("a", b"x" * 11).to_content(), 10)


# -- names and keys --------------------------------------------------------------------------------


def test_a_name_belongs_to_the_key_it_first_came_with(tmp_path):
    registry = Registry.open(tmp_path / "nodes.json")
    a, b = Node("a", 1, "key-a"), Node("b", 2, "key-b")
    assert registry.known([a, b]) == ([a, b], [])
    again = Registry.open(tmp_path / "nodes.json")
    thief = Node("a", 9, "key-x")
    good, bad = again.known([thief, b])
    assert good == [b]
    assert [(failure.client, failure.code) for failure in bad] == [("a", "identity")]
    assert again.known([a])[0] == [a]
    assert again.known([a, thief])[0] == []  # one of the two is not who it says
    again.leave(lambda name: name == "a")
    assert Registry.open(tmp_path / "nodes.json").known([thief])[0] == [thief]


def test_a_forgotten_key_does_not_come_back_under_another_name(tmp_path):
    path = tmp_path / "nodes.json"
    registry = Registry.open(path, mark=lambda key: f"mark of {key[::-1]}")
    a, again = Node("a", 1, "key-a"), Node("alias", 2, "key-a")
    registry.known([a])
    registry.leave(lambda name: name == "a")
    kept = Registry.open(path, mark=registry.mark)
    good, bad = kept.known([again, Node("b", 3, "key-b")])
    assert [node.name for node in good] == ["b"]
    assert [(failure.client, failure.code) for failure in bad] == [("alias", "forgotten")]
    assert "key-a" not in path.read_text()
    kept.readmit = "alias"  # the operator says otherwise
    assert kept.known([again]) == ([again], [])
    assert Registry.open(path, mark=registry.mark).known([again]) == ([again], [])


def test_a_node_registered_without_a_name_is_called_by_its_key():
    (node,) = online(FakeGrid([FakeNode("", {}, b"key")]))
    assert node.name == f"node-{node.key[:12]}"


# -- the server's half -----------------------------------------------------------------------------


def served(grid, told):
    return serve(grid, told, "run", poll=0.01)


def heard_of(node):
    """What the server last told a node of its upload."""
    lines = (Path(node.config["folder"]) / "receipts.jsonl").read_text().splitlines()
    return json.loads(lines[-1])


def asked_of(node):
    """The steps that a node was asked for."""
    told = (Question.from_content(message.content).step for message in node.heard)
    return [step.name for step in told if step is not None]


def digest(clients):
    return Simulator(clients).total(EXACT).statistic.digest()


def test_a_run_gives_the_simulators_total_a_model_and_a_report(experiment, nodes, tmp_path):
    test = experiment.test
    np.savez(tmp_path / "test.npz", features=test.features, label=test.labels)
    told = run_settings(tmp_path, test_data=str(tmp_path / "test.npz"), personal=True)
    results = served(FakeGrid(nodes), told)
    assert isinstance(results, SeedResult)
    assert results.head.digest == digest(experiment.clients)
    assert sorted(results.split.clients) == sorted(experiment.clients)
    arrivals = results.head.arrivals
    assert [each.clients for each in arrivals] == [1, 2, 3, 4, 5]  # a head after each upload
    assert arrivals[-1].accuracy > arrivals[0].accuracy > 0.2
    model = LinearHead.load(tmp_path / "out" / "model.safetensors")
    head = Fed3R().solve(experiment.federation.total(EXACT).statistic)
    assert np.array_equal(model.weights, head.weights)
    assert model.temperature is not None
    assert results.accuracy == pytest.approx(head.accuracy(test.features, test.labels))
    assert results.personal.weighted("oll") >= results.personal.weighted("global")
    page = (tmp_path / "out" / "report.html").read_text()
    assert results.head.digest[:8] in page
    assert "As clients arrive" in page
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert {model.state for model in ledger.models()} == {"current", "older"}
        assert results.ledger == ledger.id
        members = ledger.members()
    for node in nodes:  # each was told that its upload is in
        receipt = heard_of(node)["receipt"]
        assert receipt["digest"] == members[node.name]


def test_the_missing_are_left_out_and_a_later_run_asks_only_them(experiment, nodes, tmp_path):
    nodes[1].fault, nodes[3].fault = "silent", "dead"
    late = nodes.pop()
    grid = FakeGrid(nodes)
    first = served(grid, run_settings(tmp_path, wanted=4))
    data = experiment.clients
    there = {node.name: data[node.name] for node in nodes if not node.fault}
    assert first.head.digest == digest(there)
    assert {(t.client, t.code) for t in first.failures} >= {
        (nodes[1].name, "missing"),
        (nodes[3].name, "unreachable"),
    }
    nodes[1].fault = nodes[3].fault = None
    grid.add(late)
    for node in nodes:
        node.heard.clear()
    second = served(grid, run_settings(tmp_path, wanted=5))
    assert second.head.digest == digest(data)
    assert [each.clients for each in second.head.arrivals] == [1, 2, 3, 4, 5]
    asked = {node.name: asked_of(node) for node in [*nodes, late]}
    for node in (nodes[1], nodes[3], late):
        assert asked.pop(node.name) == ["measure", "calibrate"]
    assert set(map(tuple, asked.values())) == {("calibrate",)}


def lines_of(caplog, word):
    return [text for _, _, text in caplog.record_tuples if text.startswith(f"headstart: {word}")]


def test_who_waits_says_for_whom_and_who_is_done_where_the_model_is(
    nodes, tmp_path, caplog, monkeypatch
):
    caplog.set_level("INFO", "flwr")
    monkeypatch.setattr(waiting, "PAUSE", 0.05)
    silent, *others = [node.name for node in nodes]
    nodes[0].fault = "silent"
    expected = " ".join([silent, *others, "site-z"])
    told = run_settings(tmp_path, nodes=expected, deadline=3.0)
    served(FakeGrid(nodes), told)
    assert lines_of(caplog, "waiting") == [
        f"headstart: waiting for {silent} (asked), site-z (not online); 4 of 5 uploads are in"
    ]
    (done,) = lines_of(caplog, "done")
    assert done == (
        f"headstart: done: {tmp_path / 'out' / 'model.safetensors'} is the model of 4 clients, "
        f"without {silent} and site-z; report.html is beside it"
    )


def test_who_is_forgotten_is_not_waited_for(nodes, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", "flwr")
    names = [node.name for node in nodes]
    served(FakeGrid(nodes), run_settings(tmp_path, nodes=" ".join(names)))
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.forget(names[0])
    monkeypatch.setattr(waiting, "PAUSE", 0.05)
    caplog.clear()
    served(FakeGrid(nodes[1:]), run_settings(tmp_path, nodes=" ".join(names)))
    assert lines_of(caplog, "waiting") == [
        "headstart: waiting for 1 more node (not online); 4 of 5 uploads are in"
    ]
    assert names[0] not in caplog.text


def test_a_round_of_training_says_whom_it_waits_for(nodes, caplog, monkeypatch):
    caplog.set_level("INFO", "flwr")
    monkeypatch.setattr(waiting, "PAUSE", 0.05)
    nodes[2].fault = "silent"
    assert len(list(federation(nodes, deadline=0.5).answers(EXACT))) == 4
    assert lines_of(caplog, "waiting") == [f"headstart: waiting for {nodes[2].name} (asked)"]


def test_a_line_names_so_many_and_is_not_said_twice():
    said, now = [], [0.0]
    wait = Waiting(said.append, pause=5, again=60, clock=lambda: now[0])
    many = [f"site-{number:02d}" for number in range(14)]
    for at, silent in ((0, many), (4, many), (5, many), (9, many), (50, many), (65, many)):
        now[0] = at
        wait({"asked": silent})
    first = ", ".join(many[:10])
    assert said == [f"waiting for {first} and 4 more (asked)"] * 2
    for at, silent in ((66, many[:2]), (70, many[:2]), (71, [])):
        now[0] = at
        wait({"asked": silent})
    assert said[2:] == ["waiting for site-00 and site-01 (asked)"]


def test_once_the_wanted_are_in_the_rest_is_not_waited_for_long(nodes, tmp_path):
    nodes[0].fault = "silent"
    told = run_settings(tmp_path, wanted=4, deadline=86400.0, patience=0.0)
    results = served(FakeGrid(nodes), told)
    assert len(results.split.clients) == 4
    assert [(t.client, t.code) for t in results.failures] == [(nodes[0].name, "missing")]


def test_a_run_that_was_cut_short_goes_on(experiment, nodes, tmp_path, monkeypatch):
    class Cut(Exception):
        pass

    from headstart.deploy.flower import output

    solved, calls = output.Output.solved, []

    def cut(*told):
        calls.append(told)
        if len(calls) == 3:
            raise Cut
        return solved(*told)

    monkeypatch.setattr(output.Output, "solved", cut)
    with pytest.raises(Cut):
        served(FakeGrid(nodes), run_settings(tmp_path))
    assert LinearHead.load(tmp_path / "out" / "model.safetensors")  # of the second upload
    assert served(FakeGrid(nodes), run_settings(tmp_path)).head.digest == digest(experiment.clients)


def test_an_upload_with_which_nothing_can_be_solved_is_named_and_the_last_model_stays(
    nodes, tmp_path, monkeypatch
):
    from headstart.errors import SolveError
    from headstart.heads.fed3r import Fed3R

    solve, calls = Fed3R.solve, []

    def third(head, total):
        calls.append(total)
        if len(calls) == 3:
            raise SolveError("ridge: not positive")
        return solve(head, total)

    monkeypatch.setattr(Fed3R, "solve", third)
    assert len(served(FakeGrid(nodes), run_settings(tmp_path)).split.clients) == 5
    lines = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    uploads = [event["client"] for event in events if event["event"] == "upload"]
    unsolved = [event for event in events if event["event"] == "unsolved"]
    assert [event["clients"] for event in unsolved] == [[uploads[2]]]
    assert LinearHead.load(tmp_path / "out" / "model.safetensors")


def test_a_refused_upload_is_told_why_and_is_not_in_the_total(experiment, nodes, tmp_path):
    smallest = min(experiment.clients.values(), key=lambda data: len(data.samples.labels))
    cap = len(smallest.samples)
    with pytest.raises(HeadstartError, match="collection: expected an upload"):
        served(FakeGrid(nodes), run_settings(tmp_path, samples=cap - 1, ledger=str(tmp_path / "b")))
    results = served(FakeGrid(nodes), run_settings(tmp_path, samples=cap, wanted=1))
    assert results.data.samples == cap
    refused = [node for node in nodes if node.name not in results.split.clients]
    assert {t.code for t in results.failures} == {"counts"}
    for node in refused:
        news = heard_of(node)
        assert news["refused"] == "counts"
        assert str(cap) in news["text"]


def test_features_of_another_extractor_are_refused(experiment, nodes, tmp_path, monkeypatch):
    def other(content):
        about = {**json.loads(content["about"]["json"]), "extractor": {"name": "x"}}
        return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})

    nodes[4].fault = other
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4))
    assert {(t.client, t.code) for t in results.failures} == {(nodes[4].name, "extractor")}
    kept = {node.name: experiment.clients[node.name] for node in nodes[:4]}
    assert results.head.digest == digest(kept)


def claiming(identity: str | None, payload: bytes | None = None):
    """A node that says what made its features, and may send something else."""

    def spoil(content: RecordDict) -> RecordDict:
        about = json.loads(content["about"]["json"])
        about["extractor"] = identity and {"name": identity, "identity": identity}
        changed = {"about": ConfigRecord({"json": json.dumps(about)})}
        if payload is not None:
            array = Array("uint8", (len(payload),), "headstart.wire", payload)
            changed["arrays"] = ArrayRecord({"upload": array})
        return RecordDict({**content, **changed})

    return spoil


def test_words_of_a_client_end_no_run_and_forge_no_line_of_the_log(nodes, tmp_path, caplog):
    def saying(**words):
        def spoil(content: RecordDict) -> RecordDict:
            about = {**json.loads(content["about"]["json"]), **words}
            return RecordDict({**content, "about": ConfigRecord({"json": json.dumps(about)})})

        return spoil

    nodes[0].fault = saying(code="failed", text="\ud800")
    nodes[1].fault = saying(code="a\nb", text="bad\nINFO : headstart: all is well\x1b[2J")
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=3))
    assert len(results.split.clients) == 3
    assert SeedResult.from_json((tmp_path / "out" / "results.json").read_text()) == results
    codes = {t.client: t.code for t in results.failures}
    assert codes == {nodes[0].name: "malformed", nodes[1].name: "failed"}
    said = [line for line in map(caplog.handler.format, caplog.records) if "all is well" in line]
    assert said
    assert all(line.isprintable() for line in said)


def test_a_label_that_no_file_can_hold_is_refused_before_it_is_durable(nodes, tmp_path):
    lone = ClientData(ArraySamples(np.ones((12, 64)), np.array(["\ud800"] * 12)))
    own = tmp_path / "own"
    own.mkdir()
    measured = Fed3R().measure(*lone.samples.read(), exact=True, bound=1.0, secret=b"")
    nodes[0].fault = claiming(None, measured.to_bytes())
    text = run_settings(tmp_path, wanted=1, labels="text", ledger=str(tmp_path / "text"))
    with pytest.raises(HeadstartError, match=r"UTF-8.*\[classes\]"):
        served(FakeGrid(nodes[:1]), text)
    assert len(served(FakeGrid(nodes[1:]), run_settings(tmp_path, wanted=4)).split.clients) == 4


def test_where_sums_are_not_exact_the_servers_bound_holds_as_well(experiment, nodes, tmp_path):
    """features a thousand times as large count a million times."""
    data = experiment.clients[nodes[0].name]
    large = (
        Fed3R().measure(1000 * data.samples.features, data.samples.labels, secret=b"").to_bytes()
    )

    def scaled(content: RecordDict) -> RecordDict:
        array = Array("uint8", (len(large),), "headstart.wire", large)
        return RecordDict({**content, "arrays": ArrayRecord({"upload": array})})

    nodes[0].fault = scaled
    results = served(FakeGrid(nodes), run_settings(tmp_path, exact=False, wanted=4))
    assert {(t.client, t.code) for t in results.failures} == {(nodes[0].name, "bound")}
    assert len(results.split.clients) == 4


def test_random_features_have_a_bound_of_their_own(nodes, tmp_path):
    """That of the features may be smaller than √(2/D)."""
    told = run_settings(tmp_path, pipeline="fed3r-rf(dimension=8)", exact=False, bound=0.01)
    assert not served(FakeGrid(nodes), told).failures


def test_a_cap_of_one_client_says_nothing_of_the_others(nodes, tmp_path):
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4, caps={nodes[0].name: 1}))
    assert {(t.client, t.code) for t in results.failures} == {(nodes[0].name, "counts")}
    assert sorted(results.split.clients) == sorted(node.name for node in nodes[1:])


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two nodes with images and an extractor, each in another place; and the server."""
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    onnx, image = pytest.importorskip("onnx"), pytest.importorskip("PIL.Image")
    kind, make = onnx.TensorProto.FLOAT, onnx.helper
    graph = make.make_graph(
        [
            make.make_node("AveragePool", ["x"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
            make.make_node("Flatten", ["p"], ["y"]),
        ],
        "pooled",
        [make.make_tensor_value_info("x", kind, ["n", 3, 8, 8])],
        [make.make_tensor_value_info("y", kind, ["n", 12])],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    rng = np.random.default_rng(0)
    for place in ("east", "west", "server"):
        (tmp_path / place).mkdir()
        onnx.save(model, str(tmp_path / place / f"{place}.onnx"))
        for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
            folder = tmp_path / place / "photos" / name
            folder.mkdir(parents=True)
            for i in range(8):
                pixels = np.array(colour) + rng.integers(-25, 25, (10, 10, 3))
                image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path


def test_nodes_with_images_and_a_server_that_tests_on_images(photos):
    nodes = [
        FakeNode(
            place,
            {
                "client": place,
                "data": str(photos / place / "photos"),
                "extractor": str(photos / place / f"{place}.onnx"),
                "folder": str(photos / place / "private"),
            },
            place.encode(),
        )
        for place in ("east", "west")
    ]
    told = run_settings(
        photos,
        dimension=12,
        bound=64.0,
        wanted=2,
        test_data=str(photos / "server" / "photos"),
        labels="text",
        extractor=str(photos / "server" / "server.onnx"),
    )
    results = served(FakeGrid(nodes), told)
    assert not results.failures
    assert results.data.samples == 32
    assert results.accuracy == 1.0
    about = LinearHead.load(photos / "out" / "model.safetensors").provenance["extractor"]
    assert about["name"] == told.extractor  # where `headstart predict` finds it
    for name in ("nodes.json", "contract.json"):  # where files are is their owners' own affair
        assert str(photos) not in (photos / "ledger" / name).read_text()


@pytest.mark.parametrize("name", [None, "", "../server/server.onnx", 3])
def test_a_clients_word_for_its_extractor_opens_no_file(photos, monkeypatch, name):
    """Left out, or a path: what is opened is what the server's own settings name."""
    said = {"identity": "x"} if name is None else {"identity": "x", "name": name}
    monkeypatch.setattr("headstart.deploy.flower.samples._public", lambda extractor: said)
    config = {
        "client": "east",
        "data": str(photos / "east" / "photos"),
        "extractor": str(photos / "east" / "east.onnx"),
        "folder": str(photos / "east" / "private"),
    }
    told = run_settings(
        photos,
        dimension=12,
        bound=64.0,
        wanted=1,
        labels="text",
        test_data=str(photos / "server" / "photos"),
        extractor=str(photos / "server" / "server.onnx"),
    )
    with pytest.raises(HeadstartError, match=r"expected those of server.onnx .*\[extractor\]"):
        served(FakeGrid([FakeNode("east", config, b"east")]), told)


def test_a_forgotten_client_is_not_asked_again(experiment, nodes, tmp_path):
    served(FakeGrid(nodes), run_settings(tmp_path))
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.forget(nodes[0].name)
    nodes[0].heard.clear()
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4))
    assert [each.clients for each in results.head.arrivals] == [1, 2, 3, 4]
    kept = {node.name: experiment.clients[node.name] for node in nodes[1:]}
    assert results.head.digest == digest(kept)
    assert nodes[0].heard == []
    assert nodes[0].name not in json.loads((tmp_path / "ledger" / "nodes.json").read_text())["keys"]


def test_a_forgotten_node_under_a_new_name_needs_the_operators_word(experiment, nodes, tmp_path):
    served(FakeGrid(nodes), run_settings(tmp_path))
    old = nodes[0].name
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.forget(old)
    nodes[0].name = nodes[0].config["client"] = "alias"
    nodes[0].heard.clear()
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=4))
    assert {(t.client, t.code) for t in results.failures} == {("alias", "forgotten")}
    assert nodes[0].heard == []
    kept = (tmp_path / "ledger" / "nodes.json").read_text()
    key = next(node.key for node in online(FakeGrid(nodes)) if node.name == "alias")
    assert old not in kept
    assert key not in kept
    fewer = experiment.clients[old]
    own = ArraySamples(fewer.samples.features[1:], fewer.samples.labels[1:])
    fewer = replace(fewer, samples=own)
    write_samples(nodes[0].config["data"], fewer)  # the same bytes would stay out
    results = served(FakeGrid(nodes), run_settings(tmp_path, wanted=5, readmit="alias"))
    assert "alias" in results.split.clients
    assert not results.failures


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dimension": 0}, "dimension"),
        ({"wanted": 0}, "wanted"),
        ({"deadline": 0.0}, "deadline"),
        ({"output": ""}, "output"),
        ({"pipeline": "Fed4R"}, "fed3r"),
        ({"patience": -1.0}, "patience"),
        ({"pipeline": "none + FedAvg-1(head)"}, "begins with a head"),
    ],
)
def test_a_runs_configuration_is_checked(tmp_path, changes, said):
    with pytest.raises(HeadstartError, match=said):
        served(FakeGrid([]), run_settings(tmp_path, **changes))


def test_test_samples_of_another_dimension_are_refused_before_anybody_is_asked(nodes, tmp_path):
    np.savez(tmp_path / "test.npz", features=np.ones((3, 5)), label=np.arange(3))
    with pytest.raises(HeadstartError, match="test-data: expected features of dimension 64, got 5"):
        served(FakeGrid(nodes), run_settings(tmp_path, test_data=str(tmp_path / "test.npz")))
    assert not any(node.heard for node in nodes)


def test_a_ledger_is_of_one_agreement(nodes, tmp_path):
    served(FakeGrid(nodes), run_settings(tmp_path))
    with pytest.raises(HeadstartError, match="begun with another step"):
        served(FakeGrid(nodes), run_settings(tmp_path, pipeline="fedncm"))
    with pytest.raises(HeadstartError, match="begun with another dimension"):
        served(FakeGrid(nodes), run_settings(tmp_path, dimension=65))


def test_caps_and_words_of_a_run_come_flat(tmp_path):
    values = {"dimension": 3, "ledger": "a", "output": "b", "test-data": "c", "caps.site-a": 7}
    found = told(ServerSettings, values, "run")
    assert found.caps == {"site-a": 7}
    assert found.test_data == "c"


def test_heads_are_solved_after_each_of_the_first_uploads_and_ever_more_rarely():
    solved, last = [], 0
    for number in range(1, 3001):
        if due(number, last):
            solved.append(number)
            last = number
    assert solved[:100] == list(range(1, 101))
    assert len(solved) < 200


# -- all phases ------------------------------------------------------------------------------------


PIPELINES = (
    "Fed3R + Scaffold-2(head, lr=0.01)",
    "OLL(Fed3R + FedAvg-2(head)) + FP-2(head)",
    "Fed3R + FedAvgM-1(head) + Ditto-2 + FP-1(head)",
    "Fed3R + prior",
)


@pytest.mark.parametrize("text", PIPELINES)
def test_every_phase_gives_over_the_grid_what_it_gives_simulated(experiment, nodes, tmp_path, text):
    """One client at a time, in one order, with the same secrets: the same bits."""
    alone = Simulator(experiment.clients, together=False)
    expected, state, context = simulate(replace(experiment, federation=alone), parsed(text))
    test = experiment.test
    np.savez(tmp_path / "test.npz", features=test.features, label=test.labels)
    told = run_settings(
        tmp_path, pipeline=text, personal=True, cohort=3, test_data=str(tmp_path / "test.npz")
    )
    found = served(FakeGrid(nodes, newest_first=True), told)
    assert not found.failures
    assert found.head.digest == digest(experiment.clients)
    ours = LinearHead.load(tmp_path / "out" / "model.safetensors")
    theirs = linear_head(context, state)
    assert np.array_equal(ours.weights, theirs.weights)
    assert np.array_equal(ours.bias, theirs.bias)
    assert found.personal == expected.personal
    for point, other in zip(found.curve, expected.curve, strict=True):
        assert asdict(point) == pytest.approx(asdict(other))


def test_a_pipeline_is_served_and_goes_on_without_a_client_that_dies(experiment, nodes, tmp_path):
    told = run_settings(tmp_path, pipeline="Fed3R + FedAvg-2(head) + FP-1(head)", personal=True)
    grid = FakeGrid(nodes)
    push = grid.push_messages

    def dying(messages):
        steps_ = [Question.from_content(message.content).step for message in messages]
        if any(step and step.name == "update" for step in steps_):
            nodes[0].fault = "dead"
        return push(messages)

    grid.push_messages = dying
    results = served(grid, told)
    assert [point.phase for point in results.curve] == [0, 1, 1, 2]
    assert nodes[0].name not in results.personal.clients
    assert len(results.personal.clients) == 4
    assert results.accuracy is None  # the server has nothing to test with
    assert LinearHead.load(tmp_path / "out" / "model.safetensors").weights.shape == (10, 64)
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.total().digest() == digest(experiment.clients)


def test_memories_of_one_training_are_not_those_of_the_next(nodes, tmp_path):
    grid, told = FakeGrid(nodes), run_settings(tmp_path, pipeline="Fed3R + Scaffold-2(head)")
    weights = []
    for run in ("one", "two"):
        serve(grid, told, run, poll=0.01)
        weights.append(LinearHead.load(tmp_path / "out" / "model.safetensors").weights)
    assert np.array_equal(*weights)


def test_phases_go_on_without_members_that_are_away_and_keep_their_classes(nodes, tmp_path):
    """The head has a row for a class that only a client knows that is not there any more."""
    text = "Fed3R + FedAvg-1(head)"
    served(FakeGrid(nodes), run_settings(tmp_path))
    results = served(FakeGrid(nodes[:2]), run_settings(tmp_path, pipeline=text, wanted=1))
    assert len(results.split.clients) == 5
    assert ["update" in asked_of(node) for node in nodes] == [True, True, False, False, False]
    assert LinearHead.load(tmp_path / "out" / "model.safetensors").weights.shape == (10, 64)


@pytest.mark.parametrize("head", ["fedncm", "fedcof", "etf", "lda"])
def test_every_kind_of_upload_tells_the_label_counts(experiment, nodes, tmp_path, head):
    """So that nobody is asked for them, and who is away is counted as well."""
    served(FakeGrid(nodes), run_settings(tmp_path, pipeline=head))
    for node in nodes:
        node.heard.clear()
    with Ledger.open(tmp_path / "ledger") as ledger:
        recorded = Recorded(federation(nodes[:2]), LedgerStore(ledger))
        found = {answer.clients[0]: answer.statistic for answer in recorded.answers(steps.counts())}
        total = recorded.total(steps.counts()).statistic
    assert not any(node.heard for node in nodes)
    expected = {one.clients[0]: one for one in experiment.federation.answers(steps.counts())}
    assert found.keys() == expected.keys()
    for name, answer in expected.items():
        assert found[name].digest() == answer.statistic.digest()
    assert total.digest() == experiment.federation.total(steps.counts()).statistic.digest()


def test_messages_carry_no_pickles(nodes):
    """What goes out and comes back is NumPy's own format, or the wire's."""
    over_grid = federation(nodes[:1])
    head = LinearHead(np.eye(2, 64), np.zeros(2), np.array([0, 1]))
    list(over_grid.answers(steps.calibrate(), steps.with_head(head)))
    (message,) = nodes[0].heard
    assert isinstance(message, Message)
    assert {array.stype for array in message.content["arrays"].values()} == {"numpy.ndarray"}


# -- a server that dies ----------------------------------------------------------------------------


class Died(Exception):
    """Of a server, in the middle of a training."""


def dying_after(grid: FakeGrid, rounds: int) -> FakeGrid:
    """A grid whose server dies when the clients of its `rounds`-th update have answered."""
    push, seen = grid.push_messages, []

    def counted(messages):
        steps_ = [Question.from_content(message.content).step for message in messages]
        ids = push(messages)
        seen.extend(step for step in steps_[:1] if step and step.name == "update")
        if len(seen) == rounds:
            raise Died
        return ids

    grid.push_messages = counted
    return grid


@pytest.mark.parametrize(
    ("text", "deaths"),
    [
        ("Fed3R + Scaffold-4(head, lr=0.01)", (1, 3)),  # client memories and the server's own
        ("Fed3R + FedDyn-4(head)", (3,)),
        ("Fed3R + FedAvg-2(head) + Ditto-3", (3, 2)),  # before the second training's checkpoint
    ],
)
def test_a_training_goes_on_after_the_servers_death(experiment, tmp_path, text, deaths):
    """To the same bits, wherever it died: the clients go back to the round of the checkpoint."""
    found = []
    for place, killed in (("whole", ()), ("killed", deaths)):
        own = tmp_path / place
        own.mkdir()
        nodes = nodes_of(experiment.clients, own)
        told = run_settings(own, pipeline=text, personal=True, cohort=3)
        for number, rounds in enumerate(killed):  # every run is new to Flower, and so is its state
            with pytest.raises(Died):
                serve(dying_after(FakeGrid(nodes), rounds), told, f"run {number}", poll=0.01)
        result = serve(FakeGrid(nodes), told, "last run", poll=0.01)
        assert not result.failures
        assert not (own / "out" / "checkpoint.safetensors").exists()
        found.append((result, LinearHead.load(own / "out" / "model.safetensors")))
    (whole, one), (resumed, two) = found
    assert np.array_equal(one.weights, two.weights)
    assert np.array_equal(one.bias, two.bias)
    assert resumed.personal == whole.personal
    assert resumed.curve == whole.curve


def test_a_node_that_lost_its_memories_says_so_in_one_line(experiment, nodes, tmp_path):
    told = run_settings(tmp_path, pipeline="Fed3R + Scaffold-3(head, lr=0.01)", cohort=5)
    with pytest.raises(Died):
        serve(dying_after(FakeGrid(nodes), 2), told, "one", poll=0.01)
    (Path(nodes[0].config["folder"]) / "memories.safetensors").unlink()
    results = serve(FakeGrid(nodes), told, "two", poll=0.01)
    assert {failure.client for failure in results.failures} == {nodes[0].name}
    assert "remembers nothing any more; begin a new training" in results.failures[0].text


def asked(nodes, question):
    """What a node says to a question."""
    content = question if isinstance(question, RecordDict) else question.to_content()
    over_grid = federation(nodes[:1])
    (id_,) = over_grid.grid.push_messages(
        [Message(content, dst_node_id=over_grid.nodes[nodes[0].name], message_type="query")]
    )
    (reply,) = over_grid.grid.pull_messages([id_])
    return Reply.from_content(reply.content, 10**6)


def test_a_question_older_than_a_clients_memories_is_refused_in_one_line(nodes):
    from headstart.gradient.models import Spec
    from headstart.gradient.steps import Job, broadcast, update

    job = Job("scaffold", Spec(10, 64))
    params = {"head.weight": np.zeros((10, 64), np.float32), "head.bias": np.zeros(10, np.float32)}
    zeros = {"control": params}
    words = broadcast(job, params, zeros, np.arange(10))

    def said(turn: int, last: int) -> Reply:
        return asked(nodes, Question(update(job, turn), words, None, "a training", turn, last))

    first = said(1, 0)
    assert not first.code
    second = said(2, 1)
    assert said(2, 1) == second  # asked again: the same answer, from the same memories
    assert said(3, 2).payload != second.payload
    lost = said(2, 0)
    assert (lost.code, lost.payload) == ("failed", b"")
    assert lost.text.startswith("training: expected to go on after question 0")
    assert "\n" not in lost.text


def test_a_question_of_another_version_is_refused_in_one_line(nodes):
    content = Question(steps.counts()).to_content()
    about = {**json.loads(content["about"]["json"]), "version": 1}
    content["about"] = ConfigRecord({"json": json.dumps(about)})
    reply = asked(nodes, content)
    assert (reply.code, reply.payload) == ("failed", b"")
    assert reply.text == (
        "question: expected version 2 of the protocol, got 1; "
        "install the same version of Headstart everywhere"
    )


def test_a_deployed_result_tells_failures_arrivals_and_its_ledger(nodes, tmp_path):
    nodes[0].fault = "dead"
    results = served(FakeGrid(nodes), run_settings(tmp_path, pipeline="Fed3R + FedAvg-1(head)"))
    assert {(failure.client, failure.code) for failure in results.failures} == {
        (nodes[0].name, "unreachable")
    }
    assert [each.clients for each in results.head.arrivals] == [1, 2, 3, 4]
    with Ledger.open(tmp_path / "ledger", write=False) as ledger:
        assert results.ledger == ledger.id
        assert results.head.digest == ledger.total().digest()
        assert [each.client for each in results.clients] == sorted(ledger.members())
    assert SeedResult.from_json((tmp_path / "out" / "results.json").read_text()) == results
    page = (tmp_path / "out" / "report.html").read_text()
    assert results.pipeline == "Fed3R + FedAvg-1(ψ)"
    assert results.pipeline in page
    assert nodes[0].name in page
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert not left & {"total.safetensors", "clients.json", "uploads"}  # the ledger's alone


# -- plugins ---------------------------------------------------------------------------------------

CENTRED = Path(__file__).parents[2] / "plugin_files" / "centred.py"
HALF = CENTRED.with_name("fed_nesterov.py")


def other_plugin(folder, name="centred.py"):
    """A file of the same name, which says so when it is executed."""
    folder.mkdir()
    path = folder / name
    mark = f"from pathlib import Path\nPath({str(folder / 'executed')!r}).touch()\n"
    path.write_text(f"{CENTRED.read_text()}\n{mark}")
    return path


@pytest.fixture
def plugged(nodes):
    for node in nodes:
        node.config["plugins"] = f"{CENTRED}, {HALF}"
    return nodes


@pytest.mark.usefixtures("registered")
def test_a_head_and_a_method_of_plugin_files_run_on_nodes(experiment, plugged, tmp_path):
    said = "centred-means + fed-nesterov-2(ψ)"
    settings = run_settings(tmp_path, pipeline=said, plugins=f"{CENTRED},{HALF}", cohort=3)
    results = served(FakeGrid(plugged), settings)
    assert [point.round for point in results.curve] == [0, 1, 2]
    with Ledger.open(Path(settings.ledger), write=False) as ledger:
        assert ledger.contract.plugins == {
            path.name: registry.digest_of(path.read_bytes()) for path in (CENTRED, HALF)
        }
        assert (
            ledger.total().digest()
            == experiment.federation.total(Step("measure", ledger.contract.step)).statistic.digest()
        )
    alone = replace(experiment, federation=replace(experiment.federation, together=False))
    _, state, _ = simulate(alone, parsed(said))
    ours = LinearHead.load(tmp_path / "out" / "model.safetensors")
    assert np.array_equal(ours.weights, state.params["head.weight"].astype(np.float64))


@pytest.mark.usefixtures("registered")
def test_a_node_with_another_plugin_file_is_refused_in_a_line(plugged, tmp_path):
    other = other_plugin(tmp_path / "other")
    plugged[1].config["plugins"] = str(other)
    plugged[2].config["plugins"] = ""
    plugged[3].config["plugins"] = str(tmp_path / "not_here.py")
    settings = run_settings(tmp_path, pipeline="centred-means", plugins=str(CENTRED), wanted=2)
    served(FakeGrid(plugged), settings)
    with Ledger.open(Path(settings.ledger), write=False) as ledger:
        assert set(ledger.members()) == {plugged[0].name, plugged[4].name}
    found = SeedResult.from_json((Path(settings.output) / "results.json").read_bytes())
    said = {failure.client: (failure.code, failure.text) for failure in found.failures}
    code, text = said[plugged[1].name]
    assert code == "plugin"
    assert "\n" not in text
    assert "expected the server's centred.py (SHA-256 " in text
    assert f"got another (SHA-256 {registry.digest_of(other.read_bytes())[:12]}…)" in text
    assert "got none in node.toml" in said[plugged[2].name][1]
    assert "the log of this node says why" in said[plugged[3].name][1]
    assert str(tmp_path) not in said[plugged[3].name][1]
    assert not (tmp_path / "other" / "executed").exists()


@pytest.mark.usefixtures("registered")
def test_a_node_loads_what_its_own_configuration_names_and_nothing_else(nodes, tmp_path):
    """Whatever a server says in a question."""
    other = other_plugin(tmp_path / "other")
    named = {str(other): registry.digest_of(other.read_bytes())}
    over_grid = federation(nodes, plugins=named)
    assert list(over_grid.answers(EXACT)) == []
    assert {failure.code for failure in over_grid.failures} == {"plugin"}
    assert not (tmp_path / "other" / "executed").exists()
    assert registry.plugins() == ()
    nodes[0].config["plugins"] = str(other)
    assert [answer.clients for answer in over_grid.answers(EXACT)] == [(nodes[0].name,)]
    assert (tmp_path / "other" / "executed").exists()


@pytest.mark.usefixtures("registered")
def test_a_ledger_asks_for_the_plugins_it_was_begun_with(plugged, tmp_path):
    settings = run_settings(tmp_path, pipeline="centred-means", plugins=str(CENTRED))
    served(FakeGrid(plugged), settings)
    registry._unload("headstart_plugin_centred")
    registry._unload("headstart_plugin_fed_nesterov")
    with pytest.raises(HeadstartError, match=r"plugin: expected centred\.py .*; give --plugin"):
        Ledger.open(Path(settings.ledger), write=False)
    other = other_plugin(tmp_path / "other")
    with pytest.raises(HeadstartError, match=r"plugin: .*/other/centred\.py has changed"):
        served(FakeGrid(plugged), replace(settings, plugins=str(other)))
