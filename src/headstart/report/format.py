"""Values as a reader wants them: shares, bytes, names; what is missing is a dash.

Most of these take a value and, where there are seeds, its standard deviation: 92.2 ± 0.4%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from headstart.results import Estimate

Write = Callable[[float, float | None], str]
MISSING = "–"


def finite(value: object) -> float | None:
    """A finite number, or None: neither NaN nor infinity reaches the page."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def written(value: float | None, write: Write) -> str:
    """An estimate with its deviation over seeds, a number, or the dash."""
    number = finite(value)
    spread = value.std if isinstance(value, Estimate) else None
    return MISSING if number is None else write(number, spread)


def clean(text: str) -> str:
    """One line without control characters."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def name(value: object, limit: int = 200) -> str:
    """A name on one line, without control characters, no longer than `limit`."""
    shown = clean(" ".join(str(value).split()))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def percent(share: float, spread: float | None = None) -> str:
    """Return a share as a percentage, with its spread if there is one."""
    return f"{_both(100 * share, spread and 100 * spread, 1)}%"


def points(difference: float, spread: float | None = None) -> str:
    """A difference of two shares in percentage points, with its sign."""
    shown = f"{100 * difference:+.1f}".replace("-", "−")
    shown = "±0.0" if shown[1:] == "0.0" else shown
    return shown if spread is None else f"{shown} ± {100 * spread:.1f}"


def size(count: float, spread: float | None = None) -> str:
    """Bytes with a decimal unit and three figures: 7.34 kB."""
    return _united(count, spread, "B")


def flops(count: float, spread: float | None = None) -> str:
    """FLOPs the same way, their unit left to the text around: 3.10 G."""
    return _united(count, spread, "")


def round_size(value: float) -> str:
    """Round bytes, as an axis has them: 20 kB."""
    return _united(value, None, "B", round_number=True)


def round_flops(value: float) -> str:
    """Return a number of operations with a unit, rounded."""
    return _united(value, None, "", round_number=True)


def seconds(value: float, spread: float | None = None) -> str:
    """Return a time in seconds, with its spread if there is one."""
    return f"{_both(value, spread, 2)} s"


def times(value: float, spread: float | None = None) -> str:
    """Return a ratio, with its spread if there is one."""
    return f"{_both(value, spread, 1)}×"


def count(value: float, spread: float | None = None) -> str:
    """Return a count, with one decimal if it has a spread."""
    return _both(value, spread, 1) if spread else plain(value)


def _united(value: float, spread: float | None, unit: str, round_number: bool = False) -> str:
    step = 0
    while abs(value) >= 999.5 and step < 4:
        value, step = value / 1000, step + 1
        spread = None if spread is None else spread / 1000
    digits = 0 if not step else 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    shown = f"{value:.3g}" if round_number and step else _both(value, spread or None, digits)
    return f"{shown} {('', 'k', 'M', 'G', 'T')[step]}{unit}".rstrip()


def _both(value: float, spread: float | None, digits: int) -> str:
    shown = f"{value:.{digits}f}"
    return shown if spread is None else f"{shown} ± {spread:.{digits}f}"


def plain(value: object) -> str:
    """Any value: whole numbers grouped, others to four figures, text on one line."""
    number = finite(value)
    if value is None or (number is None and isinstance(value, float)):
        return MISSING
    if number is None:
        return ("no", "yes")[value] if isinstance(value, bool) else clean(str(value))
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}".replace("-", "−")
    return scientific(number) if 0 < abs(number) < 1e-3 or abs(number) >= 1e6 else f"{number:.4g}"


def scientific(value: float) -> str:
    """Three figures and a power of ten, without markup: 2.70 × 10⁻⁴."""
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits} × {power(10.0 ** int(exponent))}".replace("-", "−")


def power(value: float) -> str:
    """A power of ten: 10⁻⁴."""
    raised = str(round(math.log10(value)))
    return f"10{raised.translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def short(value: float) -> str:
    """Three figures, as a power of ten when far from one."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else scientific(value)


def settings(values: Mapping[str, object]) -> str:
    """Settings on one line: clients = 50, alpha = 0.1."""
    shown = {key: "none" if value is None else plain(value) for key, value in values.items()}
    return ", ".join(f"{name(key)} = {value}" for key, value in shown.items())
