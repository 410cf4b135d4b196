"""Which samples of a calibration set no range is measured on."""

from __future__ import annotations

_SHARE = 4
_MOST = 64
_LEAST = 8


def held_out_positions(count: int) -> tuple[int, ...]:
    """Every fourth of ``count`` samples, at most 64, in order; none of fewer than 8.

    From so few samples a range of half of them would be worse than a choice that is too sure of itself.
    """
    if count < _LEAST:
        return ()
    wanted = min(count // _SHARE, _MOST)
    return tuple(index * count // wanted + count // wanted // 2 for index in range(wanted))


def spread(count: int, most: int) -> tuple[int, ...]:
    """At most ``most`` of ``count`` positions, evenly spread: stored data is often sorted by class."""
    wanted = min(count, most)
    return tuple(index * count // wanted for index in range(wanted))
