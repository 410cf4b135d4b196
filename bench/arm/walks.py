"""Walks through the blocks that ran, each behind what it ran behind: what llvm-mca is given in place of the whole run.

Of a run it is known how often each block ran behind each other.  A walk goes where the run went, as often in
proportion: a loop of three turns is left after about three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Pair = tuple[str, str]
LEAD = 384
"""Instructions before the first that is looked at: more than any core here has in flight."""
BEHIND = 384
"""Instructions from the first on that is looked at, at least."""
_MOST_BLOCKS = 2000


@dataclass(frozen=True, slots=True)
class Walk:
    """Blocks one behind the other; times count from block ``first`` on."""

    blocks: tuple[str, ...]
    first: int

    def pairs(self) -> list[tuple[int, Pair]]:
        """The place of each block that counts, and what it is behind."""
        return [(place, (self.blocks[place - 1], self.blocks[place])) for place in range(self.first, len(self.blocks))]


@dataclass(slots=True)
class _Turns:
    """Who is next, by how often each was in the run and was taken here."""

    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    taken: dict[Pair, int] = field(default_factory=dict)

    def add(self, here: str, there: str, count: float) -> None:
        self.counts.setdefault(here, {})[there] = count

    def next(self, here: str) -> str | None:
        """The one that has been taken least often for its count; of equals the first."""
        there = self.counts.get(here)
        if not there:
            return None
        best = max(there, key=lambda each: there[each] / (self.taken.get((here, each), 0) + 1))
        self.taken[here, best] = self.taken.get((here, best), 0) + 1
        return best


def walks(pairs: Mapping[Pair, float], wanted: list[Pair], lengths: Mapping[str, int]) -> list[Walk]:
    """Walks that have every wanted pair where times count; ``lengths`` are instructions."""
    forward, back = _Turns(), _Turns()
    for (before, block), count in pairs.items():
        if before in lengths and block in lengths:
            forward.add(before, block, count)
            back.add(block, before, count)
    found, seen = [], set[Pair]()
    for pair in wanted:
        if pair in seen or pair[0] not in lengths:
            continue
        lead = _reached(back, pair[0], lengths, LEAD)
        more = _reached(forward, pair[1], lengths, BEHIND)
        walk = Walk((*reversed(lead), *more), len(lead))
        seen.update(each for _, each in walk.pairs())
        found.append(walk)
    return found


def _reached(turns: _Turns, start: str, lengths: Mapping[str, int], least: int) -> list[str]:
    blocks, instructions = [start], lengths[start]
    while instructions < least and len(blocks) < _MOST_BLOCKS:
        there = turns.next(blocks[-1])
        if there is None:
            break
        blocks.append(there)
        instructions += lengths[there]
    return blocks
