"""Windows over the spatial axes of an image: padding, and one strided slice for each place of a kernel.

Images are (batch, channels, *space), with one to three axes of space.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel's sizes, steps and distances between its places, and the padding (before, after) of each axis."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def reach(self, axis: int) -> int:
        """How many elements the kernel spans."""
        return (self.sizes[axis] - 1) * self.dilations[axis] + 1

    def counts(self, space: Sequence[int]) -> tuple[int, ...]:
        """Outputs along each axis of an image of ``space``."""
        return tuple(
            (size + sum(pad) - self.reach(axis)) // stride + 1
            for axis, (size, pad, stride) in enumerate(zip(space, self.pads, self.strides, strict=True))
        )

    def padded(self, x: Array, value: float) -> Array:
        """The image with its border."""
        if not any(map(any, self.pads)):
            return x
        return np.pad(x, [(0, 0), (0, 0), *self.pads], constant_values=value)

    def slices(self, x: Array, counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Each place of the kernel, with what lies under it: (batch, channels, *counts)."""
        for place in itertools.product(*map(range, self.sizes)):
            index = [slice(None), slice(None)]
            for at, dilation, stride, count in zip(place, self.dilations, self.strides, counts, strict=True):
                first = at * dilation
                index.append(slice(first, first + (count - 1) * stride + 1, stride))
            yield place, x[tuple(index)]


def pairs(kind: str, pad: Sequence[int], window: Sequence[tuple[int, int, int, int]]) -> tuple[tuple[int, int], ...]:
    """The padding that a ``pad_type`` stands for; ``window`` has size, kernel, stride and dilation of each axis."""
    if kind == "valid":
        return tuple((0, 0) for _ in window)
    if kind == "custom":
        return tuple((pad[2 * axis], pad[2 * axis + 1]) for axis in range(len(window)))
    found = []
    for size, kernel, stride, dilation in window:
        whole = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
        small, large = whole // 2, whole - whole // 2
        found.append((small, large) if kind == "same" else (large, small))
    return tuple(found)
