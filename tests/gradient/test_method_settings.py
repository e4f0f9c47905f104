"""Settings of methods that are wrong are named."""

import inspect

import pytest

from headstart import HeadstartError, gradient

WRONG = [
    ("fedavg", "server_rate", 0.0),
    ("silobn", "server_rate", 0.0),
    ("fedavgm", "momentum", 1.0),
    ("fedavgm", "momentum", -0.1),
    ("fedavgm", "server_rate", "fast"),
    ("fedadagrad", "tau", 0.0),
    ("fedadam", "second", 1.0),
    ("fedyogi", "second", float("nan")),
    ("fedyogi", "server_rate", -1.0),
    ("fedexp", "epsilon", 0.0),
    ("fedprox", "mu", -1.0),
    ("scaffold", "server_rate", 0.0),
    ("feddyn", "alpha", 0.0),
    ("mime", "beta", 1.0),
    ("mime", "lite", 1),
    ("ditto", "strength", -1.0),
    ("ditto", "server_rate", 0),
    ("per-fedavg", "alpha", -0.1),
    ("pfedme", "personal", "model"),
    ("pfedme", "strength", 0.0),
    ("pfedme", "inner_steps", 0),
    ("pfedme", "inner_steps", 1.5),
    ("pfedme", "inner_rate", 0.0),
    ("pfedme", "beta", 0.0),
    ("fedsim", "personal", "heads"),
    ("fedalt", "personal", None),
    ("fedalt", "personal_epochs", 0),
    ("fedrep", "head_epochs", 0),
    ("feddr-plus", "beta", 1.1),
    ("spherefed", "scale", 0.0),
    ("fedetf", "scale", -1.0),
    ("fedetf", "gamma", -1.0),
    ("fedntd", "beta", -1.0),
    ("fedntd", "tau", 0.0),
    ("moon", "mu", -1.0),
    ("moon", "tau", 0.0),
    ("fedsol", "rho", -1.0),
    ("fedsol", "tau", 0.0),
    ("local-only", "loss", "balanced"),
    ("ladd", "kd", -1.0),
    ("ladd", "entropy", -1.0),
    ("ladd", "teacher", -1.0),
    ("ladd", "sure", 1.5),
    ("ladd", "top", -0.1),
    ("ladd", "tau", 0.0),
    ("ladd", "printed", 1),
    ("fedavg", "term", "l2"),
]


@pytest.mark.parametrize(("name", "setting", "value"), WRONG)
def test_bad_settings_are_named(name, setting, value):
    with pytest.raises(HeadstartError, match=f"^{setting}: expected .*, got "):
        gradient.make(name, {setting: value})


def test_every_setting_can_be_wrong():
    every = gradient.METHODS
    known = {(n, s) for n in every for s in inspect.signature(every[n]).parameters}
    tried = {(name, setting) for name, setting, _ in WRONG}
    rates = {(n, s) for n, s in known if s in ("server_rate", "momentum", "tau")}  # one class each
    assert known - tried <= rates, "add a value that is refused to WRONG"
    for name, setting in sorted(known - tried):
        with pytest.raises(HeadstartError, match=setting):
            gradient.make(name, {setting: -1.0})


def test_unknown_names_are_named():
    with pytest.raises(HeadstartError, match=r"method: expected one of .*, got 'fedsgd'"):
        gradient.make("fedsgd")
    with pytest.raises(HeadstartError, match="fedprox: expected settings among mu, term, mix, got"):
        gradient.make("fedprox", {"lambda": 1.0})
    with pytest.raises(HeadstartError, match="fedbabu: expected settings among term, mix, got mu"):
        gradient.make("fedbabu", {"mu": 1.0})
    with pytest.raises(HeadstartError, match="mix: expected a term to mix with, got none"):
        gradient.make("fedbabu", {"mix": 0.5})
    with pytest.raises(HeadstartError, match="local-only: expected settings among loss, term, mix"):
        gradient.make("local-only", {"mu": 1.0})
