"""The cheapest choice of one of two worlds for every node: a minimum cut.

A node pays ``cost[world]`` for being in a world, and a pair of nodes pays for being in different
ones.  Such sums of submodular terms have an exact optimum.
"""

from __future__ import annotations

from convertkit.mincut import MinCut

_FOREVER = 1 << 60
_SOURCE, _LAST = "source", "channels-last"


class Choice:
    """Collects costs, then chooses; nodes are numbered from 0 in the order of :meth:`node`."""

    def __init__(self) -> None:
        self._cut = MinCut()
        self._alone: list[list[int]] = []

    def node(self) -> int:
        """A new node without costs."""
        self._alone.append([0, 0])
        return len(self._alone) - 1

    def pays(self, node: int, source: int, channels_last: int) -> None:
        """Add what the node costs in each world; only the difference counts, so a cost may be negative."""
        self._alone[node][0] += source
        self._alone[node][1] += channels_last

    def must(self, node: int) -> None:
        """The node is in the channels-last world."""
        self.pays(node, _FOREVER, 0)

    def differs(self, first: int, second: int, source_then_last: int, last_then_source: int) -> None:
        """What it costs that ``first`` is in the source's world and ``second`` is not, and the other way."""
        self._cut.arc(first, second, source_then_last)
        self._cut.arc(second, first, last_then_source)

    def worlds(self) -> list[int]:
        """The best world of each node: 0 the source's, 1 channels-last; ties between cuts go to channels-last."""
        for node, (source, channels_last) in enumerate(self._alone):
            self._cut.arc(_SOURCE, node, max(channels_last - source, 0))
            self._cut.arc(node, _LAST, max(source - channels_last, 0))
        near = self._cut.near(_SOURCE, _LAST)
        return [0 if node in near else 1 for node in range(len(self._alone))]
