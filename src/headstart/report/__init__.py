"""One self-contained page for one result or many; figures and numbers as files beside it."""

from __future__ import annotations

from headstart.report.pages import figure, page, write_report

__all__ = ["figure", "page", "write_report"]
