"""One self-contained page for one result or many; figures and numbers as files beside it."""

from __future__ import annotations

from headstart.report.pages import page, write_report

__all__ = ["page", "write_report"]
