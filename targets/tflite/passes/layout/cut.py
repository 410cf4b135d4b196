"""The cheapest choice of one of two worlds for every node: a minimum cut.

A node pays ``cost[world]`` for being in a world, and a pair of nodes pays for being in different
ones.  Such sums of submodular terms have an exact optimum, found as a maximum flow (Dinic).
"""

from __future__ import annotations

from collections import deque

_FOREVER = 1 << 60


class Choice:
    """Collects costs, then chooses; nodes are numbered from 0 in the order of :meth:`node`."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]
        self._heads: list[int] = []
        self._room: list[int] = []
        self._alone: list[list[int]] = []

    def node(self) -> int:
        """A new node without costs."""
        self._edges.append([])
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
        self._edge(first + 2, second + 2, source_then_last)
        self._edge(second + 2, first + 2, last_then_source)

    def worlds(self) -> list[int]:
        """The best world of each node: 0 the source's, 1 channels-last; ties stay in the source's."""
        for node, (source, channels_last) in enumerate(self._alone):
            self._edge(0, node + 2, max(channels_last - source, 0))
            self._edge(node + 2, 1, max(source - channels_last, 0))
        while self._augmented():
            pass
        reached = self._levels()
        return [0 if reached[place] >= 0 else 1 for place in range(2, len(self._edges))]

    def _edge(self, tail: int, head: int, room: int) -> None:
        if room:
            for start, end, capacity in ((tail, head, room), (head, tail, 0)):
                self._edges[start].append(len(self._heads))
                self._heads.append(end)
                self._room.append(capacity)

    def _levels(self) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[0] = 0
        queue = deque([0])
        while queue:
            place = queue.popleft()
            for edge in self._edges[place]:
                head = self._heads[edge]
                if self._room[edge] and levels[head] < 0:
                    levels[head] = levels[place] + 1
                    queue.append(head)
        return levels

    def _augmented(self) -> bool:
        """Send a blocking flow along shortest paths; False when the sink is out of reach."""
        levels = self._levels()
        if levels[1] < 0:
            return False
        nexts = [0] * len(self._edges)
        path: list[int] = []
        place = 0
        while True:
            if place == 1:
                amount = min(self._room[edge] for edge in path)
                for edge in path:
                    self._room[edge] -= amount
                    self._room[edge ^ 1] += amount
                path, place = [], 0
            edge = self._next(place, levels, nexts)
            if edge >= 0:
                path.append(edge)
                place = self._heads[edge]
            elif not path:
                return True
            else:
                levels[place] = -1
                place = self._heads[path.pop() ^ 1]

    def _next(self, place: int, levels: list[int], nexts: list[int]) -> int:
        edges = self._edges[place]
        while nexts[place] < len(edges):
            edge = edges[nexts[place]]
            if self._room[edge] and levels[self._heads[edge]] == levels[place] + 1:
                return edge
            nexts[place] += 1
        return -1
