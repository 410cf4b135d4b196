"""Calibration data in two parts: one to measure ranges, one that no range has seen, to choose by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convertkit.errors import FeedError
from convertkit.stage import Feed, FeedSource

_SHARE = 4
_MOST_HELD_OUT = 64
_LEAST = 8


@dataclass(frozen=True, slots=True)
class Part:
    """The feeds of ``source`` at some positions, in order; streamed like the source."""

    source: FeedSource
    positions: frozenset[int]

    def __len__(self) -> int:
        return len(self.positions)

    def __contains__(self, feed: object) -> bool:
        return any(each is feed for each in self)

    def __iter__(self) -> Iterator[Feed]:
        return (feed for index, feed in enumerate(self.source) if index in self.positions)


def refuse_constant(source: FeedSource) -> None:
    """``FeedError`` where no value differs from any other, or from the first sample's: nothing can be measured."""
    feeds = iter(source)
    first = next(feeds, None)
    if first is None:
        return
    if any(np.any(array != array.flat[0]) for array in first.values() if array.size):
        return
    if any(not np.array_equal(array, first[name]) for feed in feeds for name, array in feed.items()):
        return
    raise FeedError(
        f"{source.description} is one number throughout: ranges measured on it would be wrong on all other data"
    )


def split(source: FeedSource) -> tuple[Part, tuple[Feed, ...]]:
    """Feeds for measuring, and the held-out ones: every fourth, at most 64.

    With fewer than 8 feeds both parts are the whole: a range from half of them would be worse than
    a choice that is too sure of itself.
    """
    count = len(source)
    refuse_constant(source)
    everything = frozenset(range(count))
    if count < _LEAST:
        return Part(source, everything), tuple(source)
    wanted = min(count // _SHARE, _MOST_HELD_OUT)
    held_out = frozenset(index * count // wanted + count // wanted // 2 for index in range(wanted))
    return Part(source, everything - held_out), tuple(Part(source, held_out))
