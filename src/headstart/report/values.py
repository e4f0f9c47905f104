"""Plain values as a reader wants them: shares, bytes, names; what is missing is a dash."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Results: TypeAlias = Mapping[str, Any]
MISSING = "–"


def part(results: Results, key: str) -> Results:
    """An optional part of the results, empty when it is missing."""
    found = results.get(key)
    return found if isinstance(found, Mapping) else {}


def rows(results: Results, key: str) -> list[Any]:
    """An optional list of the results, empty when it is missing."""
    found = results.get(key)
    return list(found) if isinstance(found, (list, tuple)) else []


def main_head(results: Results) -> Results:
    """The head the report is about: the one marked main, or else the first."""
    heads = rows(results, "heads")
    return next((head for head in heads if head.get("main")), heads[0] if heads else {})


def head_title(head: Results) -> str:
    return name(head.get("title") or head.get("name") or "head")


def number(value: Any) -> float | None:
    """A finite number, or None: neither NaN nor infinity reaches the page."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def name(value: Any, limit: int = 200) -> str:
    """A name on one line, without control characters, no longer than `limit`."""
    words = " ".join(str(value).split())
    shown = "".join(char if char.isprintable() else "�" for char in words)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def text(value: Any, limit: int = 200) -> str:
    """A name, safe inside HTML."""
    return html.escape(name(value, limit))


def percent(value: Any, digits: int = 1) -> str:
    share = number(value)
    return MISSING if share is None else f"{100 * share:.{digits}f}%"


def points(difference: float) -> str:
    """A difference of two shares, in percentage points, with its sign."""
    shown = f"{100 * difference:+.1f}".replace("-", "−")
    return "±0.0 points" if shown[1:] == "0.0" else f"{shown} points"


def size(value: Any) -> str:
    """Bytes with a decimal unit and three figures: 7.34 kB."""
    count = number(value)
    return MISSING if count is None else _united(count, _figures, "B")


def round_size(value: float) -> str:
    """Round bytes, as an axis has them: 20 kB."""
    return _united(value, lambda count: f"{count:.3g}", "B")


def flops(value: Any) -> str:
    """FLOPs the same way, their unit left to the words around: 3.10 G."""
    count = number(value)
    return MISSING if count is None else _united(count, _figures)


def round_flops(value: float) -> str:
    return _united(value, lambda count: f"{count:.3g}")


def _united(count: float, write: Callable[[float], str], unit: str = "") -> str:
    for prefix in ("", "k", "M", "G"):
        if abs(count) < 999.5:
            return f"{write(count) if prefix else f'{count:.0f}'} {prefix}{unit}".rstrip()
        count /= 1000
    return f"{write(count)} T{unit}"


def _figures(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def plain(value: Any) -> str:
    """A value in a table: whole numbers grouped, others to four figures, the rest as it is."""
    found = number(value)
    if value is None or (found is None and isinstance(value, float)):
        return MISSING
    if found is None:
        return name({True: "yes", False: "no"}[value] if isinstance(value, bool) else value)
    if found == int(found) and abs(found) < 1e15:
        return f"{int(found):,}".replace("-", "−")
    return scientific(found) if 0 < abs(found) < 1e-3 or abs(found) >= 1e6 else f"{found:.4g}"


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


def settings(values: Results) -> str:
    """Settings on one line: clients = 50, alpha = 0.1."""
    shown = {key: "none" if value is None else plain(value) for key, value in values.items()}
    return ", ".join(f"{name(key)} = {value}" for key, value in shown.items())
