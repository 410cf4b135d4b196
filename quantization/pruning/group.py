"""Channels that go together, and how groups of them become one where they meet."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array


class Group:
    """Channels that are kept or removed together: ``size`` of them, ``frozen`` where all must stay."""

    def __init__(self, size: int, *, frozen: bool = False) -> None:
        self.size, self._frozen = size, frozen
        self._joined: Group | None = None
        self._places: Array = np.arange(size)
        self._unit: Array = np.arange(size)

    @property
    def root(self) -> Group:
        """The group that this one was joined to."""
        return self if self._joined is None else self._joined.root

    @property
    def frozen(self) -> bool:
        """Whether no channel of it may go."""
        return self.root._frozen

    @property
    def unit(self) -> Array:
        """Of each channel, the number of the unit that it is a part of."""
        return np.asarray(self.root._unit[self._inside(np.arange(self.size))])

    @property
    def units(self) -> int:
        """How many can be removed one by one."""
        return int(self.root._unit.max()) + 1 if self.size else 0

    def freeze(self) -> None:
        """Keep every channel."""
        self.root._frozen = True

    def tie(self, labels: Array) -> None:
        """Let channels of the same label, (size,), go together."""
        root = self.root
        if root is not self:
            places = self._inside(np.arange(self.size))
            _, firsts, label = np.unique(labels, return_index=True, return_inverse=True)
            wide = np.arange(root.size)
            wide[places] = places[firsts][label]
            root.tie(wide)
            return
        found, before = np.asarray(labels), None
        while before is None or not np.array_equal(found, before):  # the finest partition that is coarser than both
            before = found
            for each in (root._unit, labels):
                least = np.full(int(each.max()) + 1, self.size)
                np.minimum.at(least, each, found)
                found = least[each]
        _, first, root._unit = np.unique(found, return_index=True, return_inverse=True)
        root._unit = np.argsort(np.argsort(first))[root._unit]

    def join(self, other: Group) -> None:
        """Let both be one: their channels meet, index by index."""
        if not (self._is_whole and other._is_whole):
            self.join_some(np.arange(self.size), other, np.arange(other.size))
            return
        one, two = self.root, other.root
        if one is not two:
            one._frozen |= two._frozen
            two._joined = one
            one.tie(two._unit)

    def join_some(self, mine: Array, other: Group, theirs: Array) -> None:
        """Let channels ``mine[i]`` of this group and ``theirs[i]`` of the other be one; each comes once on its side."""
        one, two = self.root, other.root
        mine, theirs = self._inside(mine), other._inside(theirs)
        if one is two:
            for here, there in zip(mine.tolist(), theirs.tolist(), strict=True):
                labels = np.arange(one.size)
                labels[there] = here
                one.tie(labels)
            return
        places = np.full(two.size, -1)
        places[theirs] = mine
        alone = np.flatnonzero(places < 0)
        places[alone] = one.size + np.arange(len(alone))
        one._unit = np.concatenate([one._unit, one._unit.max(initial=-1) + 1 + np.arange(len(alone))])
        one._places, one.size = np.arange(len(one._unit)), len(one._unit)
        one._frozen |= two._frozen
        unit, two._joined, two._places = two._unit, one, places
        two.tie(unit)

    @property
    def _is_whole(self) -> bool:
        """Whether the group that it was joined to has these channels, in this order, and no others."""
        return self.root.size == self.size and np.array_equal(self._inside(np.arange(self.size)), np.arange(self.size))

    def _inside(self, channels: Array) -> Array:
        """Where channels of this group are in the one that it was joined to."""
        group: Group | None = self
        while group is not None:
            channels, group = group._places[channels], group._joined
        return channels
