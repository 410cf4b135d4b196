"""The minimum cut: exact, by trying all parts of small graphs, and of several best ones always the smallest."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from convertkit.mincut import MinCut

ARCS = dict[tuple[str, str], int]


def cut_of(arcs: ARCS) -> frozenset[object]:
    cut = MinCut()
    for (tail, head), capacity in arcs.items():
        cut.arc(tail, head, capacity)
    return cut.near("s", "t")


def cost(near: frozenset[object], arcs: ARCS) -> int:
    return sum(capacity for (tail, head), capacity in arcs.items() if tail in near and head not in near)


def test_no_part_is_cheaper_and_the_smallest_of_the_cheapest_is_taken() -> None:
    random = np.random.default_rng(0)
    for _ in range(400):
        inner = [f"n{index}" for index in range(int(random.integers(0, 6)))]
        nodes = ["s", "t", *inner]
        arcs: ARCS = {}
        for _ in range(int(random.integers(1, 16))):
            tail, head = (nodes[int(place)] for place in random.integers(0, len(nodes), 2))
            arcs[tail, head] = int(random.integers(0, 9)) << int(random.choice([0, 70]))
        parts = [
            frozenset[object](["s", *chosen])
            for size in range(len(inner) + 1)
            for chosen in itertools.combinations(inner, size)
        ]
        least = min(cost(part, arcs) for part in parts)
        best = [part for part in parts if cost(part, arcs) == least]
        assert cut_of(arcs) == frozenset.intersection(*best)


def test_capacities_add_up() -> None:
    cut = MinCut()
    for capacity in (2, 3):
        cut.arc("s", "n", capacity)
    cut.arc("n", "t", 4)
    assert cut.near("s", "t") == {"s", "n"}


def test_a_long_chain_is_cut_where_it_is_weakest() -> None:
    """No recursion: a graph has thousands of nodes."""
    arcs = {(f"n{index}", f"n{index + 1}"): 5 for index in range(20_000)}
    arcs |= {("s", "n0"): 9, ("n20000", "t"): 9, ("n700", "n701"): 4}
    near = cut_of(arcs)
    assert len(near) == 702
    assert "n700" in near


def test_capacities_are_not_negative() -> None:
    with pytest.raises(ValueError, match="-1"):
        MinCut().arc("s", "t", -1)
