"""Padding as MIL has it."""

from __future__ import annotations

from convertkit.targets.forms.windows import Pads


def flat(pads: Pads) -> tuple[int, ...]:
    """Before and after of one axis, then of the next one."""
    return tuple(each for pad in pads for each in pad)
