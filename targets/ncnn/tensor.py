"""A value while a model is lowered: a blob that ncnn computes, or numbers that are known already."""

from __future__ import annotations

import math
from dataclasses import dataclass

from convertkit.artifact import Array
from convertkit.errors import Unsupported

MOST_DIMENSIONS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """``shape`` is ONNX's; ``sizes`` are those of the blob, the outermost first, as many elements in the same order.

    ``array`` holds constants, ``blob`` the name of what is computed; one of the two is there.  ``whole`` marks an input
    of integers, which only the places of an embedding are.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    blob: str = ""
    array: Array | None = None
    whole: bool = False

    @property
    def rank(self) -> int:
        """The number of ONNX's dimensions."""
        return len(self.shape)

    @property
    def known(self) -> Array:
        """The numbers of a constant; ``Unsupported`` where it is computed."""
        if self.array is None:
            raise Unsupported("an operand that is computed at run time where ncnn wants a stored one")
        return self.array


def kept_axes(shape: tuple[int, ...], wanted: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """The axes of ONNX that a blob has: without a batch of one, and where there are too many, without others of one.

    Those that are ``wanted`` stay.  ``Unsupported`` where more than four are left.
    """
    axes = [axis for axis in range(len(shape)) if axis or shape[0] != 1 or len(shape) == 1 or 0 in wanted]
    for axis in tuple(axes):
        if len(axes) > MOST_DIMENSIONS and shape[axis] == 1 and axis not in wanted:
            axes.remove(axis)
    if len(axes) > MOST_DIMENSIONS:
        raise Unsupported(f"a tensor of sizes {list(shape)}: a blob of ncnn has at most four dimensions")
    return tuple(axes)


def blob_axes(shape: tuple[int, ...], wanted: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """The axes of ONNX behind each of a blob that has the ``wanted`` ones by themselves.

    Where there are too many, neighbours are one; ``Unsupported`` where that does not help either.
    """
    several = [axis for axis, size in enumerate(shape) if size != 1 or axis in wanted]
    if len(several) <= MOST_DIMENSIONS:
        return tuple((axis,) for axis in kept_axes(shape, wanted))
    parts: list[tuple[int, ...]] = []
    for axis in several:
        if parts and axis not in wanted and parts[-1][-1] not in wanted:
            parts[-1] = (*parts[-1], axis)
        else:
            parts.append((axis,))
    if len(parts) > MOST_DIMENSIONS:
        raise Unsupported(f"a tensor of sizes {list(shape)}: a blob of ncnn has at most four dimensions")
    return tuple(parts)


def natural(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a blob for a shape; ``Unsupported`` for more than four dimensions, and for no elements."""
    check_elements(shape)
    return tuple(shape[axis] for axis in kept_axes(shape)) or (1,)


def check_elements(shape: tuple[int, ...]) -> None:
    """``Unsupported`` for a tensor without elements."""
    if math.prod(shape) == 0:
        raise Unsupported(f"a tensor of sizes {list(shape)}, without elements: ncnn has no empty blobs")


def constant(array: Array) -> Tensor:
    """A tensor of known numbers."""
    shape = tuple(int(size) for size in array.shape)
    return Tensor(shape, shape or (1,), array=array)
