"""The contract suites, for one's own classes: no test runner is needed.

    from headstart.testing import check_head, check_method

    check_head(MyHead)              # a class, or an instance with other settings
    check_method("my-method")       # a name, or the function that makes the recipe

Each returns None, or raises an `AssertionError` that names every property that is broken and how.
They are the very checks that the methods of this package are held to. They need the `testing` extra
(Hypothesis), and those of methods `torch` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headstart import optional

__all__ = ["check_head", "check_method"]


def check_head(head: Any) -> None:
    """Hold a head to the contract: order, splits, subtraction, messages, bad input, files.

    `head`: an instance, or a class that needs no settings.
    """
    optional.check("testing")
    from headstart.testing.heads import checks_of

    made = head() if isinstance(head, type) else head
    _held(type(made).__qualname__, checks_of(made), made)


def check_method(
    method: str | Callable[..., Any], settings: Mapping[str, Any] | None = None
) -> None:
    """Hold a training method to the contract: grouping, order, seeds, interruptions, what is sent.

    `method`: its name, or the function that makes its recipe.
    """
    optional.check("testing")
    from headstart.gradient import METHODS
    from headstart.testing.methods import Case, checks_of

    name = method if isinstance(method, str) else METHODS.name_of(method)
    case = Case(name, dict(settings or {}))
    _held(name, checks_of(case), case)


def _held(what: str, checks: Iterable[Callable[[Any], None]], subject: Any) -> None:
    broken = {}
    for check in checks:
        try:
            check(subject)
        except Exception as error:  # one's own code may fail in any way
            message = str(error) if isinstance(error, AssertionError) else repr(error)
            broken[check] = message
    if broken:
        lines = [f"  {check.__name__}: {check.__doc__}\n    {broken[check]}" for check in broken]
        raise AssertionError(
            f"{what} breaks {len(broken)} of its promises:\n" + "\n".join(lines)
        ) from None
