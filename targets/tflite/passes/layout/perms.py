"""Permutations of axes: axis ``i`` of the stored tensor is axis ``perm[i]`` of the source's."""

from __future__ import annotations

Perm = tuple[int, ...]


def identity(rank: int) -> Perm:
    """Stored as the source has it."""
    return tuple(range(rank))


def channels_last(rank: int) -> Perm:
    """N, spatial axes, C."""
    return (0, *range(2, rank), 1)


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes ``perm``."""
    result = [0] * len(perm)
    for place, axis in enumerate(perm):
        result[axis] = place
    return tuple(result)


def between(have: Perm, want: Perm) -> Perm:
    """What to transpose a tensor stored as ``have`` by, to store it as ``want``."""
    place = inverse(have)
    return tuple(place[axis] for axis in want)


def is_identity(perm: Perm) -> bool:
    """Whether nothing moves."""
    return perm == identity(len(perm))


def dropped(perm: Perm, axes: list[int]) -> Perm:
    """The permutation of what is left when the source's ``axes`` go."""
    kept = [axis for axis in range(len(perm)) if axis not in axes]
    return tuple(kept.index(axis) for axis in perm if axis not in axes)


def widened(perm: Perm, axes: list[int]) -> Perm:
    """The permutation with the source's new ``axes`` of size 1, each where the source has it where possible."""
    rank = len(perm) + len(axes)
    old = [axis for axis in range(rank) if axis not in axes]
    order = [old[axis] for axis in perm]
    for axis in sorted(axes):
        order.insert(axis, axis)
    return tuple(order)
