"""Calibration data in two parts: one to measure ranges, one that no range has seen, to choose by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convertkit.data.held_out import held_out_positions, spread
from convertkit.errors import FeedError
from convertkit.stage import Feed, FeedSource


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
    """Feeds for measuring, and the held-out ones; of few feeds both parts are the whole."""
    count = len(source)
    refuse_constant(source)
    everything = frozenset(range(count))
    held_out = frozenset(held_out_positions(count))
    if not held_out:
        return Part(source, everything), tuple(source)
    return Part(source, everything - held_out), tuple(Part(source, held_out))


def thinned(part: Part, most: int) -> Part:
    """At most ``most`` feeds of a part, evenly spread."""
    positions = sorted(part.positions)
    return Part(part.source, frozenset(positions[index] for index in spread(len(positions), most)))
