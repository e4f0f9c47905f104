"""Heads by name: the package is listed once, however many clients ask for one."""

import pkgutil

import pytest

from headstart import HeadstartError, heads


def test_the_package_is_listed_once(monkeypatch):
    listed = []
    real = pkgutil.iter_modules
    monkeypatch.setattr(pkgutil, "iter_modules", lambda path: listed.append(path) or real(path))
    for _ in range(5):
        assert heads.make("fed3r", {"ridge": 0.5}).ridge == 0.5
    assert len(listed) <= 1


def test_what_a_caller_does_to_its_listing_is_its_own():
    heads.federated().clear()
    heads.catalogue().clear()
    assert heads.make("fedncm").name == "fedncm"
    with pytest.raises(HeadstartError, match=r"head: expected one of etf, .*, got 'krr'"):
        heads.make("krr")  # centralized
