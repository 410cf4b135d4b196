"""``scatter`` in full generality.

A window that would reach outside the operand is dropped whole, as XLA does.  Rows that are dropped
go to one extra row that is cut off afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import int64s
from convertkit.converters.stablehlo.mlir import ints
from convertkit.converters.stablehlo.ops.indexing import (
    Addressing,
    addressed_positions,
    batch_shape,
    flattened,
    linear,
    start_columns,
)
from convertkit.converters.stablehlo.ops.regions import reducer_of, takes_second
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import (
    BOOL,
    U8,
    Complex,
    Operand,
    Tensor,
    is_float,
    splat,
)
from convertkit.errors import Unsupported

scatters = Handlers()

_REDUCTION = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "or": "max", "and": "min"}


@scatters.translates
def scatter(b: Builder, op: hlo.ScatterOp, *operands: Tensor) -> Operand | tuple[Operand, ...]:
    count = (len(operands) - 1) // 2
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    block = op.regions[0].blocks[0]
    if indices.shape == (0,) and None not in updates[0].shape and updates[0].shape == inputs[0].shape:
        # One update of the whole, as ``x.at[...].add(1)`` writes it.
        return b.regions.vectorized(b, block, (*inputs, *updates))
    plan = _Plan(b, op, inputs[0], indices, updates[0])
    reduction = _reduction(block, inputs[0], count)
    if reduction is not None:
        return tuple(plan.scatter(x, u, reduction) for x, u in zip(inputs, updates, strict=True))
    return _through_reading(b, plan, block, inputs, updates, _is_unique(op))


@scatters.complex
def complex_scatter(b: Builder, op: hlo.ScatterOp, *operands: Operand) -> Operand | tuple[Operand, ...]:
    count = (len(operands) - 1) // 2
    inputs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    assert isinstance(indices, Tensor)
    plan = _Plan(b, op, _real(inputs[0]), indices, _real(updates[0]))
    block = op.regions[0].blocks[0]
    x, update = inputs[0], updates[0]
    overwrites = takes_second(block)
    if count == 1 and (overwrites or reducer_of(block) == "add"):
        assert isinstance(x, Complex)
        assert isinstance(update, Complex)
        how = "none" if overwrites else "add"
        return Complex(plan.scatter(x.re, update.re, how), plan.scatter(x.im, update.im, how))
    return _through_reading(b, plan, block, inputs, updates, _is_unique(op))


def _real(x: Operand) -> Tensor:
    return x.re if isinstance(x, Complex) else x


def _is_unique(op: Any) -> bool:
    return "unique_indices" in op.attributes and str(op.attributes["unique_indices"]) == "true"


def _reduction(block: Any, x: Tensor, count: int) -> str | None:
    """ONNX's name for what the body does with the old and the new value."""
    if count == 1 and takes_second(block):
        return "none"
    kind = reducer_of(block) if count == 1 else None
    if kind is None or (kind in ("and", "or") and x.dtype != BOOL) or kind == "xor":
        return None
    if x.dtype == BOOL:
        return {"add": "max", "multiply": "min"}.get(kind, _REDUCTION[kind])
    return _REDUCTION[kind]


def _through_reading(
    b: Builder, plan: _Plan, block: Any, inputs: Sequence[Operand], updates: Sequence[Operand], unique: bool
) -> tuple[Operand, ...]:
    """Any body: read the old values, combine, write back; right only where no row is written twice."""
    if not unique and not plan.writes_once:
        raise Unsupported("a body without ONNX counterpart on indices that may repeat")
    old = [plan.each(x, plan.read) for x in inputs]
    new = [plan.each(u, plan.arranged) for u in updates]
    results = b.regions.vectorized(b, block, (*old, *new))
    return tuple(plan.write(x, result) for x, result in zip(inputs, results, strict=True))


class _Plan:
    """Where each element of the updates goes: rows of the operand flattened over the addressed axes."""

    def __init__(self, b: Builder, op: Any, x: Tensor, indices: Tensor, update: Tensor) -> None:
        numbers = hlo.ScatterDimensionNumbers(op.scatter_dimension_numbers)
        inserted, batching = ints(numbers.inserted_window_dims), ints(numbers.input_batching_dims)
        window_dims, place = ints(numbers.update_window_dims), numbers.index_vector_dim
        batch_axes = [axis for axis in range(indices.rank) if axis != place]
        batch_of = dict(
            zip(batching, (batch_axes.index(axis) for axis in ints(numbers.scatter_indices_batching_dims)), strict=True)
        )
        kept = tuple(axis for axis in range(x.rank) if axis not in (*inserted, *batching))
        window = [b.size(update, window_dims[kept.index(axis)]) if axis in kept else 1 for axis in range(x.rank)]
        mapped = ints(numbers.scattered_dims_to_operand_dims)
        partial = [a for a in kept if a not in mapped and window[a] != x.shape[a] and x.shape[a] is not None]
        self._b, self._x = b, x
        addressing = Addressing(mapped, kept, batch_of, place, tuple(window))
        starts = start_columns(b, indices, addressing) if mapped else {}
        batch = batch_shape(indices, addressing)
        for axis in partial:
            starts[axis] = splat(0, batch, indices.dtype)
            starts[axis] = b.cast(starts[axis], int64s([0]).dtype)
        addressing = Addressing((*mapped, *partial), kept, batch_of, place, tuple(window))
        self._addressed = addressing.addressed or (0,)
        self._rest = [axis for axis in range(x.rank) if axis not in self._addressed]
        inner = [axis for axis in kept if axis in addressing.addressed]
        batches = [axis for axis in range(update.rank) if axis not in window_dims]
        self._order = [
            *batches,
            *(window_dims[kept.index(axis)] for axis in [*inner, *(a for a in self._rest if a in kept)]),
        ]
        self._rows, self._may_drop = self._address(addressing, starts, batch, len(inner))
        self.writes_once = self._rows.const is not None and len(np.unique(self._rows.const)) == self._rows.const.size

    def _address(
        self, addressing: Addressing, starts: dict[int, Tensor], batch: tuple[int | None, ...], inner: int
    ) -> tuple[Tensor, bool]:
        """Row numbers of every update, and whether some may have to be dropped."""
        b, x = self._b, self._x
        if not addressing.addressed:
            raise Unsupported("a scatter without indices")
        positions = addressed_positions(b, starts, addressing, x, batch)
        rows = linear(b, positions, x, addressing.addressed)
        outside: Tensor | None = None
        for axis in addressing.index_map:
            size, window = b.size(x, axis), addressing.window[axis]
            if isinstance(size, int) and isinstance(window, int):
                limit = b.cast(int64s([size - window]), rows.dtype)
                known = starts[axis].const
                if known is not None and bool(np.all((known >= 0) & (known <= size - window))):
                    continue
            else:
                limit = b.sub(*(each if isinstance(each, Tensor) else int64s([each]) for each in (size, window)))
            beyond = b.logical_or(b.less(starts[axis], 0), b.greater(starts[axis], b.squeeze(limit, [0])))
            outside = beyond if outside is None else b.logical_or(outside, beyond)
        if outside is None:
            return rows, False
        total = b.size(flattened(b, x, self._addressed, self._rest), 0) if None in x.shape else self._rows_of(x)
        dump = b.squeeze(total if isinstance(total, Tensor) else int64s([total]), [0])
        outside = b.unsqueeze(b.full(outside), [outside.rank + i for i in range(inner)])
        return b.where(outside, dump, rows), True

    def _rows_of(self, x: Tensor) -> int:
        return math.prod(x.shape[axis] or 0 for axis in self._addressed)

    def each(self, value: Operand, function: Any) -> Operand:
        """Apply to both parts of a complex value."""
        if isinstance(value, Complex):
            return Complex(function(value.re), function(value.im))
        result: Tensor = function(value)
        return result

    def arranged(self, update: Tensor) -> Tensor:
        """The updates with axes in the order of rows, then the rest."""
        return self._b.transpose(update, self._order)

    def _table(self, x: Tensor) -> Tensor:
        """The operand as rows, with the row that takes what is dropped."""
        b = self._b
        rows = flattened(b, x, self._addressed, self._rest)
        if not self._may_drop:
            return rows
        highs = [1] + [0] * (rows.rank - 1)
        return b.pad(rows, [0] * rows.rank, highs, b.like(x, 0))

    def _whole_rows(self, update: Tensor) -> Tensor:
        """Row numbers of the updates' full row shape."""
        b = self._b
        shape = update.shape[: update.rank - len(self._rest)]
        if self._rows.shape == shape and self._rows.is_full:
            return self._rows
        extent = None
        if None in shape:
            extent = b.take(b.shape_of(update), 0, 0, len(shape))
        return b.full(b.broadcast_in_dim(self._rows, shape, range(len(shape) - self._rows.rank, len(shape)), extent))

    def read(self, x: Tensor) -> Tensor:
        """The operand's values where updates go."""
        table = self._table(x)
        return self._b.op("Gather", [table, self._rows], self._rows.shape + table.shape[1:], x.dtype, {"axis": 0})

    def write(self, x: Operand, values: Operand) -> Operand:
        """Overwrite with values that are arranged already."""
        if isinstance(x, Complex) and isinstance(values, Complex):
            return Complex(self._put(x.re, values.re, "none"), self._put(x.im, values.im, "none"))
        assert isinstance(x, Tensor)
        assert isinstance(values, Tensor)
        return self._put(x, values, "none")

    def scatter(self, x: Tensor, update: Tensor, how: str) -> Tensor:
        """The operand with the updates combined in."""
        if x.dtype == BOOL and how != "none":
            wide = self.scatter(self._b.cast(x, U8), self._b.cast(update, U8), how)
            return self._b.cast(wide, BOOL)
        if how in ("max", "min") and is_float(x.dtype):
            return self._extreme(x, update, how)
        return self._put(x, self.arranged(update), how)

    def _extreme(self, x: Tensor, update: Tensor, how: str) -> Tensor:
        """NaN must win, but the kernel's comparison drops it; so NaN rows are marked apart."""
        b, values = self._b, self.arranged(update)
        best = self._put(x, values, how)
        marks = self._put(b.cast(b.is_nan(x), U8), b.cast(b.is_nan(values), U8), "max")
        return b.where(b.cast(marks, BOOL), float("nan"), best)

    def _put(self, x: Tensor, values: Tensor, how: str) -> Tensor:
        b, table = self._b, self._table(x)
        rows = self._whole_rows(values)
        if how == "none":
            index = b.unsqueeze(rows, [rows.rank])
            result = b.op("ScatterND", [table, index, values], table.shape, x.dtype)
        else:
            # ScatterND runs in parallel; repeated rows would race.
            flat_rows, flat = self._flat(rows, values, table)
            attributes: dict[str, Any] = {"axis": 0, "reduction": how}
            result = b.op("ScatterElements", [table, flat_rows, flat], table.shape, x.dtype, attributes)
        if self._may_drop:
            result = b.take(result, 0, 0, -1)
        moved = [*self._addressed, *self._rest]
        shape = tuple(x.shape[axis] for axis in moved)
        sizes = b.sizes([b.size(x, axis) for axis in moved])
        return b.transpose(b.reshape(result, shape, sizes), [moved.index(axis) for axis in range(x.rank)])

    def _flat(self, rows: Tensor, values: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and values as [number of rows, rest…]."""
        b = self._b
        count = None if None in rows.shape else int(np.prod([size or 0 for size in rows.shape], dtype=np.int64))
        rest_sizes = [b.size(table, axis) for axis in range(1, table.rank)]
        flat = b.reshape(values, (count, *table.shape[1:]), b.sizes([(-1), *rest_sizes]))
        column = b.reshape(rows, (count, *[1] * (table.rank - 1)))
        extent = b.shape_of(flat) if None in flat.shape else None
        return b.full(b.broadcast_in_dim(column, flat.shape, range(flat.rank), extent)), flat
