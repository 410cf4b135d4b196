"""How a Reshape carries a permutation: through groups of axes that have the same product on both sides."""

from __future__ import annotations

from convertkit.targets.tflite.passes.layout.perms import Perm

Sizes = tuple[int | str, ...]
Group = tuple[tuple[int, ...], tuple[int, ...]]
"""Axes before and axes after that hold the same elements in the same order."""


def groups(before: Sizes, after: Sizes) -> tuple[Group, ...] | None:
    """The finest split of both shapes into groups of equal products; None where named sizes mix with others.

    Axes of size 1 belong to the group in front of them (behind it, at the start).
    """
    result: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        first: list[int] = []
        second: list[int] = []
        left, right = 1, 1
        if i < len(before) and j < len(after) and before[i] == after[j]:
            result.append(((i,), (j,)))
            i, j = i + 1, j + 1
            continue
        while True:
            if left == right and (first or second) and (left > 1 or _only_ones(before[i:], after[j:])):
                break
            if left <= right and i < len(before):
                size = before[i]
                first.append(i)
                i += 1
                if isinstance(size, str):
                    return None
                left *= size
            elif j < len(after):
                size = after[j]
                second.append(j)
                j += 1
                if isinstance(size, str):
                    return None
                right *= size
            else:
                return None
        result.append((tuple(first), tuple(second)))
    return tuple(result)


def _only_ones(before: Sizes, after: Sizes) -> bool:
    return all(size == 1 for size in (*before, *after))


def carried(before: Sizes, after: Sizes, perm: Perm) -> Perm | None:
    """How the reshaped tensor is stored when the one before is stored as ``perm`` and nothing moves.

    None where the reshape would have to move elements.
    """
    found = groups(before, after)
    if found is None:
        return None
    order: list[int] = []
    place = {axis: index for index, axis in enumerate(perm)}
    kept = {axis for axis in perm if before[axis] != 1}
    for group in sorted(found, key=lambda group: _rank(group, place, kept)):
        axes = [axis for axis in group[0] if axis in kept]
        places = [place[axis] for axis in axes]
        stretch = [axis for axis in perm if axis in kept]
        start = stretch.index(axes[0]) if axes else 0
        if places != sorted(places) or (axes and stretch[start : start + len(axes)] != axes):
            return None
        order.extend(group[1])
    return tuple(order)


def _rank(group: Group, place: dict[int, int], kept: set[int]) -> tuple[int, int]:
    """Groups come in the stored order of what they hold; empty ones stay where the source has them."""
    real = [place[axis] for axis in group[0] if axis in kept]
    if real:
        return min(real), 0
    ones = [place[axis] for axis in group[0]]
    return (min(ones), 1) if ones else (group[1][0] - 1, 2)
