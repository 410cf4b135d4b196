"""What a loop collects: one row of each turn, stacked along a new first axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.builder.core import numpy_dtype
from convertkit.targets.tflite.handlers.elementary import accepted
from convertkit.targets.tflite.lowering import dtype_name, shape_of
from convertkit.targets.tflite.tensor import DYNAMIC, DType, Tensor


class Collector(Protocol):
    """How the rows of one output are held while the loop runs."""

    def inside(self, name: str) -> list[Tensor]:
        """What the body gets."""

    def after(self, b: Builder, held: Sequence[Tensor], row: Tensor, turn: Tensor) -> list[Tensor]:
        """The same with one row more."""

    def before(self, b: Builder) -> list[Tensor]:
        """What the first turn starts from; asked when the body is written, so that a row is known."""

    def stacked(self, b: Builder, held: Sequence[Tensor], turns: Tensor, *, may_stop: bool) -> Tensor:
        """All rows of so many turns."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Room for every turn, which is known, as are the sizes of a row."""

    shape: tuple[int, ...]
    dtype: DType

    def inside(self, name: str) -> list[Tensor]:
        return [Tensor(name, self.shape, self.dtype)]

    def after(self, b: Builder, held: Sequence[Tensor], row: Tensor, turn: Tensor) -> list[Tensor]:
        places = [b.reshape(turn, (1,)), *(b.ints([0]) for _ in self.shape[1:])]
        return [b.dynamic_update_slice(held[0], b.expand_dims(row, 0), b.concatenation(places, 0))]

    def before(self, b: Builder) -> list[Tensor]:
        return [b.constant(np.zeros(self.shape, numpy_dtype(self.dtype)))]

    def stacked(self, b: Builder, held: Sequence[Tensor], turns: Tensor, *, may_stop: bool) -> Tensor:
        if not may_stop:
            return held[0]
        size = b.concatenation([b.reshape(turns, (1,)), *(b.ints([each]) for each in self.shape[1:])], 0)
        return b.slice_at(held[0], b.ints([0] * len(self.shape)), size, (DYNAMIC, *self.shape[1:]))


@dataclass(slots=True)
class Grown:
    """All elements so far, one behind the other, and the sizes of the last row: nothing is known before it runs.

    In front stands one that is none: a WHILE without a turn fails on tensors without elements.

    ``row`` is what is known of a row's sizes, None where not even their number is before the body is written; elements
    are ``held`` as a type that CONCATENATION takes.
    """

    row: tuple[int, ...] | None
    dtype: DType
    held: DType

    def inside(self, name: str) -> list[Tensor]:
        rank = DYNAMIC if self.row is None else len(self.row)
        return [Tensor(name, (DYNAMIC,), self.held), Tensor(f"{name}/sizes", (rank,), "int32")]

    def after(self, b: Builder, held: Sequence[Tensor], row: Tensor, turn: Tensor) -> list[Tensor]:
        self.row = row.shape
        flat = b.reshape(row, (DYNAMIC,))
        return [b.concatenation([held[0], b.cast(flat, self.held)], 0), b.shape_of(row)]

    def before(self, b: Builder) -> list[Tensor]:
        sizes = [max(size, 0) for size in self.row or ()]
        return [b.constant(np.zeros(1, numpy_dtype(self.held))), b.constant(np.array(sizes, np.int32))]

    def stacked(self, b: Builder, held: Sequence[Tensor], turns: Tensor, *, may_stop: bool) -> Tensor:
        sizes = b.concatenation([b.reshape(turns, (1,)), held[1]], 0)
        elements = b.slice(held[0], (1,), (DYNAMIC,))
        return b.cast(b.reshape_to(elements, sizes, (DYNAMIC, *(self.row or ()))), self.dtype)


def collector(b: Builder, value: ir.Value, turns: int | None) -> Collector:
    """How to hold the rows that ``value`` is, over ``turns`` turns (None: known at run time only)."""
    row = None if value.shape is None else shape_of(value)
    dtype = dtype_name(value.dtype or ir.DataType.FLOAT)
    if turns and row is not None and DYNAMIC not in row:
        return Filled((turns, *row), dtype)
    return Grown(row, dtype, accepted(b, "CONCATENATION", dtype))
