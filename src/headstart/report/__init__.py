"""One self-contained HTML page a run: figures, tables and what the numbers do not protect."""

from __future__ import annotations

from headstart.report.html import write_report

__all__ = ["write_report"]
