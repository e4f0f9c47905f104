"""Heads by name: the package is listed once, however many clients ask for one."""

import pkgutil

from headstart import heads


def test_the_package_is_listed_once(monkeypatch):
    listed = []
    real = pkgutil.iter_modules
    monkeypatch.setattr(pkgutil, "iter_modules", lambda path: listed.append(path) or real(path))
    for _ in range(5):
        assert heads.make("fed3r", {"ridge": 0.5}).ridge == 0.5
    assert len(listed) <= 1
