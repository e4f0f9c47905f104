"""What a page receives of runs, ledgers and deployments: all of it, once, and no more."""

import json
import shutil

import pytest

from headstart import HeadstartError
from headstart.deploy.forgetting import forget
from headstart.deploy.ledger import Ledger
from headstart.live.sources import Feed, check
from headstart.live.tail import Tail
from headstart.pipeline.config import make_config
from headstart.pipeline.run import compare, run_config
from tests.deploy.ledger_world import ROUND, upload_of
from tests.live.helpers import deployment, fill, received, refuse, write_event


def config(**more):
    split = {"name": "dirichlet", "clients": 6, "alpha": 1.0}
    return make_config({"data": "digits", "partition": split, "pipeline": "fed3r", **more})


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


# -- what a run tells ------------------------------------------------------------------------------


def test_a_head_tells_every_upload_and_the_accuracy_after_it(tmp_path):
    result = run_config(config(), tmp_path / "run")
    found = received(Feed([tmp_path / "run"]))["run"]
    arrivals = result.runs[0].head.arrivals
    assert found["arrivals"] == [[a.clients, a.up, a.accuracy, a.classes] for a in arrivals]
    rows = {row["client"]: row for row in found["clients"]}
    assert {client: row["bytes"] for client, row in rows.items()} == {
        client.client: client.up for client in result.runs[0].clients
    }
    facts = found["facts"]
    assert (facts["status"], facts["in"], facts["clients"]) == ("finished", 6, 6)
    assert facts["accuracy"] == result.runs[0].accuracy
    assert facts["up"] == result.runs[0].curve[-1].up


def test_a_training_tells_every_point_of_its_curve(tmp_path):
    pytest.importorskip("torch")
    result = run_config(config(pipeline="Fed3R + FedAvg-7(head)", cohort=3), tmp_path / "run")
    found = received(Feed([tmp_path / "run"]))["run"]
    curve = result.runs[0].curve
    assert found["points"] == [[p.phase, p.round, p.accuracy, p.up, p.down] for p in curve]
    assert (found["facts"]["round"], found["facts"]["done"], found["facts"]["of"]) == (7, 7, 7)


@pytest.mark.parametrize("trust", ["server", "client"])
def test_a_private_run_tells_no_more_than_its_release(tmp_path, trust):
    private = {"epsilon": 8.0, "trust": trust}
    result = run_config(config(private=private, pipeline="fedncm"), tmp_path / "run")
    lines = events(tmp_path / "run")
    assert {line["event"] for line in lines} == {"start", "progress", "point", "finished"}
    assert all("client" not in line for line in lines)
    assert sum(line["event"] == "point" for line in lines) == len(result.runs[0].curve) == 1
    found = received(Feed([tmp_path / "run"]))["run"]
    assert found["clients"] == found["arrivals"] == []
    spent = found["facts"]["epsilon"]
    assert spent["of"] == 8.0
    assert spent["spent"] == pytest.approx(result.runs[0].privacy.spent_epsilon)


def test_a_masked_run_names_nobody(tmp_path):
    pytest.importorskip("cryptography")
    run_config(config(federation={"group_size": 3, "secure": True}), tmp_path / "run")
    found = received(Feed([tmp_path / "run"]))["run"]
    assert found["clients"] == []
    assert [row[0] for row in found["arrivals"]] == [3, 6]  # after each group
    assert found["facts"]["masked"] is True


def test_a_run_that_fails_tells_why_and_one_that_goes_on_takes_it_back(tmp_path, monkeypatch):
    from headstart.pipeline import run as running

    def fails(*args):
        raise HeadstartError("disk: full of client-1")

    with monkeypatch.context() as broken:
        broken.setattr(running, "save", fails)
        with pytest.raises(HeadstartError):
            run_config(config(), tmp_path / "run")
    feed = Feed([tmp_path / "run"])
    found = received(feed)["run"]["facts"]
    assert (found["status"], found["why"]) == ("stopped", "disk: full of client-1")
    run_config(config(), tmp_path / "run")
    found = received(feed)["run"]["facts"]
    assert (found["status"], found["in"]) == ("finished", 6)
    assert "why" not in found


def test_forgetting_takes_the_reasons_of_stops_along(tmp_path):
    from headstart.pipeline.folder import RunFolder

    run_config(config(), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.event("stopped", why="something about client-5")
    folder.purge()
    assert "something" not in (tmp_path / "run" / "events.jsonl").read_text()


# -- reading as it grows ---------------------------------------------------------------------------


def test_nothing_is_sent_twice_and_a_cut_line_is_waited_for(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert tail.new() == (False, [])
    path.write_bytes(b'{"a": 1}\n{"a"')
    assert tail.new() == (False, [{"a": 1}])
    assert tail.new() == (False, [])
    with open(path, "ab") as file:
        file.write(b': 2}\nnonsense\n[3]\n"\xff"\n{"a": 4}\n')
    assert tail.new() == (False, [{"a": 2}, {"a": 4}])
    path.with_name("other").write_bytes(b'{"a": 5}\n')
    path.with_name("other").replace(path)
    assert tail.new() == (True, [{"a": 5}])
    path.unlink()
    assert tail.new() == (True, [])


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text('{"event": "start", "pipeline": "secret"}\n')
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("data: digits\n")
    (run / "events.jsonl").symlink_to(tmp_path / "secret")
    assert received(Feed([run])) == {}


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "point", "round": NaN, "accuracy": 1e999, "up": "x"}',
        '{"event": "progress", "work": [1], "done": -1, "of": {}, "time": "never"}',
        '{"event": "upload", "client": {"a": 1}, "bytes": true}',
        '{"event": "__init__"}',
        '{"event": ["start"], "time": 5}',
        '{"event": "solved", "accuracy": ' + "9" * 400 + "}",
        '{"event": "failure", "client": "\\ud800", "code": null}',
    ],
)
def test_nonsense_in_a_file_is_shown_as_nothing_worse_than_nothing(tmp_path, line):
    (tmp_path / "events.jsonl").write_text(line + "\n")
    for message in Feed([tmp_path]).poll():
        json.dumps(message, allow_nan=False).encode()


@pytest.mark.parametrize(
    "config",
    [
        *("private: " + "[" * 3000, "private: 2001-99-99", "private: 5", "private: [1]", "\0"),
        *("[1]", "private: " + "9" * 5000, "private: {1: 2}"),
        "a: &a [x]\nprivate: {epsilon: *a, delta: [1]}",
    ],
)
def test_a_private_run_with_a_nonsensical_configuration_is_still_shown(tmp_path, config):
    (tmp_path / "config.yaml").write_text(config)
    write_event(tmp_path, "start", private=True, clients=2)
    found = received(Feed([tmp_path]))
    assert [one["facts"]["status"] for one in found.values()] == ["running"]


def test_numbers_that_are_finite_one_by_one_are_told_when_they_are_not_together(tmp_path):
    lines = [(0, 1, "00"), (1e-300, 10**299, "01")]
    for done, of, second in lines:
        with (tmp_path / "events.jsonl").open("a") as file:
            event = {"event": "progress", "work": "w", "done": done, "of": of}
            file.write(json.dumps({**event, "time": f"2026-01-01T00:00:{second}"}) + "\n")
    (message,) = Feed([tmp_path]).poll()
    assert message["facts"]["left"] is None
    json.dumps(message, allow_nan=False)


@pytest.mark.parametrize(
    "app", ["a = " + "[" * 5000, "a = " + "9" * 5000, "[tool.flwr.app]\nconfig = 5"]
)
def test_a_deployment_whose_settings_cannot_be_read_is_shown_without_them(tmp_path, app):
    (tmp_path / "fed" / "app").mkdir(parents=True)
    (tmp_path / "fed" / "app" / "pyproject.toml").write_text(app)
    assert Feed([tmp_path / "fed"]).poll() == []


def test_runs_side_by_side_and_those_that_appear_later(tmp_path):
    feed = Feed([tmp_path / "both"])
    assert feed.poll() == []
    compare(["fed3r", "fedncm"], config(), tmp_path / "both")
    found = [message for _ in range(8) for message in feed.poll()]
    assert {m["name"] for m in found if "view" in m} == {"both / 01", "both / 02"}
    assert [m["report"] for m in found if "report" in m] == [0]


def test_a_copy_tells_the_same_as_the_run(tmp_path):
    run_config(config(), tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    mine, copied = (received(Feed([tmp_path / name]))[name] for name in ("run", "copy"))
    for message in (mine, copied):
        del message["now"], message["name"], message["view"]
    assert mine == copied


# -- ledgers and deployments -----------------------------------------------------------------------


def test_a_ledger_tells_who_is_in_and_who_was_refused_while_it_is_written(tmp_path):
    fill(tmp_path / "ledger", "ann", refused=["cid"])
    feed = Feed([tmp_path / "ledger"])
    found = received(feed)["ledger"]
    assert {row["client"]: row["state"] for row in found["clients"]} == {
        "ann": "in",
        "cid": "refused",
    }
    assert "expected 6, got 3" in found["clients"][-1]["why"]
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert received(feed) == {}
        ledger.accept("bob", ROUND, "key", upload_of(2))
        found = received(feed)["ledger"]
        assert [row["client"] for row in found["clients"]] == ["bob"]
        assert not found["reset"]
        ledger.accept("cid", ROUND, "key", upload_of(3))
        facts = received(feed)["ledger"]["facts"]
        assert (facts["in"], facts["refused"]) == (3, 0)
        assert facts["up"] == sum(entry.size for entry in ledger.entries())
        assert facts["samples"] == ledger.total().samples


def test_who_was_forgotten_is_gone_from_the_ledger_and_from_the_run_beside_it(tmp_path):
    server = deployment(tmp_path / "fed", "ann bob")
    fill(server / "ledger", "ann", "bob")
    for name in ("ann", "bob"):
        write_event(server / "output", "upload", client=name)
    feed = Feed([tmp_path / "fed"])
    assert {row["client"] for row in received(feed)["fed"]["clients"]} == {"ann", "bob"}
    forget(server / "ledger", "bob")
    found = received(feed)
    for name in ("fed", "fed: ledger"):
        assert found[name]["reset"]
        assert {row["client"] for row in found[name]["clients"]} == {"ann"}
    assert found["fed: ledger"]["facts"]["forgotten"] == 1
    again = received(Feed([tmp_path / "fed"]))
    assert "bob" not in json.dumps(again)


def test_a_deployment_tells_who_is_silent_or_refused_and_why(tmp_path):
    server = deployment(tmp_path / "fed")
    fill(server / "ledger", "ann", refused=["cid"])
    out = server / "output"
    write_event(out, "start", pipeline="fed3r", members=0, wanted=3, deadline=60.0)
    write_event(out, "upload", client="ann", members=1)
    write_event(out, "failure", client="cid", code="shape", text="cid: expected 6, got 3")
    write_event(out, "silent", client="dan", why="not online")
    feed = Feed([tmp_path / "fed"])
    found = received(feed)["fed"]
    rows = {row["client"]: (row["state"], row["why"]) for row in found["clients"]}
    assert rows == {
        "ann": ("in", ""),
        "bob": ("silent", "no answer yet"),
        "cid": ("refused", "cid: expected 6, got 3"),
        "dan": ("silent", "not online"),
    }
    facts = found["facts"]
    assert (facts["in"], facts["refused"], facts["silent"]) == (1, 1, 2)
    assert facts["until"] == pytest.approx(facts["started"] + 60)
    write_event(out, "start", pipeline="fed3r", members=1, wanted=3, deadline=60.0)
    found = received(feed)["fed"]["facts"]
    assert (found["in"], found["refused"]) == (1, 0)  # it may come in now


def test_damage_is_shown_and_not_raised(tmp_path):
    fill(tmp_path / "ledger", "ann")
    (tmp_path / "ledger" / "contract.json").write_text("{}")
    feed = Feed([tmp_path / "ledger"])
    found = received(feed)["ledger"]["facts"]
    assert found["status"] == "stopped"
    assert "damaged" in found["why"]
    assert received(feed) == {}


def test_a_refusal_that_came_before_the_page_is_found_after_many(tmp_path):
    fill(tmp_path / "ledger", "ann")
    feed = Feed([tmp_path / "ledger"])
    received(feed)
    with Ledger.open(tmp_path / "ledger") as ledger:
        refuse(ledger, "eve")
    assert received(feed)["ledger"]["facts"]["refused"] == 1


@pytest.mark.parametrize("what", ["nothing", "file", "empty"])
def test_what_cannot_be_watched_is_one_line(tmp_path, what):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeadstartError, match=r"^watch: expected a (run|folder)") as caught:
        check(tmp_path / what)
    assert "\n" not in str(caught.value)
    if what != "file":
        check(tmp_path / what, wait=True)
