"""What a file is built for: chips by the toolkit's names, and its optimization levels."""

from __future__ import annotations

CHIPS = ("rk3562", "rk3566", "rk3568", "rk3576", "rk3588")
USUAL = "rk3588"
LEVELS = (0, 1, 2, 3)
CONSISTENT = 2
"""The highest level at which the toolkit keeps the accuracy, by its own words; 3 joins more operators."""
