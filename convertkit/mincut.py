"""The cheapest way to part a graph in two: a minimum cut, found as a maximum flow.

Y. Dinitz, "Algorithm for solution of a problem of maximum flow in a network with power estimation", 1970: a blocking
flow along all shortest paths at a time.  Capacities are integers, so the result is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable


class MinCut:
    """Collects arcs, then cuts; anything hashable is a node."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []
        self._heads: list[int] = []
        self._room: list[int] = []
        # An arc and the one back lie side by side: ``edge ^ 1`` is the other.

    def arc(self, tail: Hashable, head: Hashable, capacity: int) -> None:
        """What it costs more that ``tail`` is on the source's side and ``head`` is not; not below 0."""
        ends = self._place(tail), self._place(head)
        if capacity < 0:
            raise ValueError(f"a capacity of {capacity}")
        if capacity and ends[0] != ends[1]:
            for start, end, room in ((*ends, capacity), (*ends[::-1], 0)):
                self._edges[start].append(len(self._heads))
                self._heads.append(end)
                self._room.append(room)

    def near(self, source: Hashable, sink: Hashable) -> frozenset[Hashable]:
        """The nodes on the source's side of the cheapest cut; of several such cuts the one with the fewest."""
        start, end = self._place(source), self._place(sink)
        while self._augmented(start, end):
            pass
        reached = self._levels(start)
        return frozenset(node for node, place in self._places.items() if reached[place] >= 0)

    def _place(self, node: Hashable) -> int:
        if node not in self._places:
            self._places[node] = len(self._edges)
            self._edges.append([])
        return self._places[node]

    def _levels(self, start: int) -> list[int]:
        """How many arcs with room lead to each node, -1 where none do."""
        levels = [-1] * len(self._edges)
        levels[start] = 0
        queue = deque([start])
        while queue:
            place = queue.popleft()
            for edge in self._edges[place]:
                head = self._heads[edge]
                if self._room[edge] and levels[head] < 0:
                    levels[head] = levels[place] + 1
                    queue.append(head)
        return levels

    def _augmented(self, start: int, end: int) -> bool:
        """Send a blocking flow along shortest paths; False when the sink is out of reach."""
        levels = self._levels(start)
        if levels[end] < 0:
            return False
        nexts = [0] * len(self._edges)
        path: list[int] = []
        place = start
        while True:
            if place == end:
                amount = min(self._room[edge] for edge in path)
                for edge in path:
                    self._room[edge] -= amount
                    self._room[edge ^ 1] += amount
                path, place = [], start
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
