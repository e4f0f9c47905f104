"""Refuses where the packages of secure sums are not installed; imported before they are."""

from headstart.optional import check

check("secure")
