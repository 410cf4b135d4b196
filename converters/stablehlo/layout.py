"""Moving data: reshape, transpose, slice, gather, concatenate, for static and dynamic dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.converters.stablehlo.arithmetic import Arithmetic
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import I64, Shape, Tensor, constant, size_of

_END = np.iinfo(np.int64).max
Size = int | Tensor
"""A dimension: a number, or an int64 tensor of shape [1] that the running model computes."""


def int64s(values: Sequence[int]) -> Tensor:
    """A constant vector of int64."""
    return constant(np.array(values, np.int64).reshape(-1))


class Layout(Arithmetic):
    """A tape with operators that move data; constants move at once, without a node."""

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Axis ``i`` of the result is axis ``perm[i]`` of ``x``."""
        if list(perm) == list(range(x.rank)):
            return x
        shape = tuple(x.shape[axis] for axis in perm)
        if not x.core_shape:
            return Tensor(x.core, (), shape, x.dtype, None if x.extent is None else self.gather(x.extent, perm))
        if x.const is not None:
            return constant(np.asarray(self._constant(x).transpose(perm)))
        moved = [axis for axis in perm if x.shape[axis] != 1]
        if _countable(shape) and moved == sorted(moved):
            return self.reshape(x, shape)
        source = self._without_units(x)
        if source is not None:
            return self.reshape(self.transpose(source, _same_move(source.shape, x.shape, perm)), shape)
        return self.op("Transpose", [x], shape, x.dtype, {"perm": list(perm)})

    def reshape(self, x: Tensor, shape: Shape, sizes: Tensor | None = None) -> Tensor:
        """The same elements in another shape; ``sizes`` is its int64 vector where dimensions are dynamic."""
        if x.shape == shape and _countable(shape):
            return x
        if not x.core_shape and None not in shape and (x.const is not None or not x.is_full):
            return Tensor(x.core, (), shape, x.dtype)
        if not x.is_full and None not in x.shape and size_of(x.core_shape) == size_of(x.shape) > 0:
            x = Tensor(x.core, x.core_shape, x.core_shape, x.dtype)  # broadcast along axes of size 1 only
            if x.shape == shape:
                return x
        if x.const is not None and None not in shape:
            return constant(self._constant(x).reshape([size or 0 for size in shape]))
        source = self._reshaped(x)
        if source is not None and _countable(shape):
            return self.reshape(source, shape)
        if sizes is None or sum(size is None for size in shape) < 2:
            sizes = int64s([-1 if size is None else size for size in shape])
        attributes = {"allowzero": 1} if 0 in shape else {}
        return self.op("Reshape", [x, sizes], shape, x.dtype, attributes)

    def _reshaped(self, x: Tensor) -> Tensor | None:
        """What ``x`` is another shape of, neither with more than one dynamic size."""
        node = x.core.producer() if isinstance(x.core, ir.Value) and x.is_full else None
        source = node.inputs[0] if node is not None and node.op_type == "Reshape" else None
        if source is None or source.shape is None:
            return None
        shape = tuple(size if isinstance(size, int) else None for size in source.shape)
        return Tensor(source, shape, shape, x.dtype) if _countable(shape) and _countable(x.shape) else None

    def _without_units(self, x: Tensor) -> Tensor | None:
        """What ``x`` has the sizes of, in the same order, axes of size 1 apart."""
        source = self._reshaped(x)
        return source if source is not None and _wide(source.shape) == _wide(x.shape) else None

    def _constant(self, x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        value = x.const
        assert value is not None
        return value

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Insert dimensions of size 1 at ``axes`` of the result."""
        if not axes:
            return x
        inserted, rest = set(axes), iter(x.shape)
        shape = tuple(1 if axis in inserted else next(rest) for axis in range(x.rank + len(axes)))
        if _countable(shape):
            return self.reshape(x, shape)
        return self.op("Unsqueeze", [x, int64s(sorted(axes))], shape, x.dtype)

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Remove dimensions of size 1."""
        shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
        if not axes:
            return x
        if shape == x.core_shape and max(axes) < len(axes) and isinstance(x.core, ir.Value):
            return Tensor(x.core, x.core_shape, shape, x.dtype)  # they were never inserted
        if _countable(shape):
            return self.reshape(x, shape)
        return self.op("Squeeze", [x, int64s(list(axes))], shape, x.dtype)

    def broadcast_in_dim(self, x: Tensor, shape: Shape, dims: Sequence[int], extent: Tensor | None = None) -> Tensor:
        """Axis ``i`` of ``x`` becomes axis ``dims[i]``; nothing is copied yet."""
        if list(dims) != sorted(dims):
            order = sorted(range(len(dims)), key=lambda axis: dims[axis])
            return self.broadcast_in_dim(self.transpose(x, order), shape, sorted(dims), extent)
        missing = x.rank - len(x.core_shape)
        held = list(dims)[missing:]
        core = Tensor(x.core, x.core_shape, x.core_shape, x.dtype)
        if held:
            core = self.unsqueeze(core, [axis - held[0] for axis in range(held[0], len(shape)) if axis not in held])
        return Tensor(core.core, core.shape, shape, x.dtype, extent)

    def slice(
        self, x: Tensor, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None = None
    ) -> Tensor:
        """``x[starts:stops:steps]`` over all axes; bounds are static and not negative."""
        steps = steps or [1] * x.rank
        bounds = list(zip(starts, stops, steps, strict=True))
        shape = tuple(max(0, -(-(stop - start) // step)) for start, stop, step in bounds)
        if shape == x.shape:
            return x
        if not x.core_shape:
            return Tensor(x.core, (), shape, x.dtype)
        if x.const is not None:
            return constant(np.asarray(x.const[tuple(slice(*bound) for bound in bounds)]))
        axes = [axis for axis in range(x.rank) if shape[axis] != x.shape[axis]]
        columns = ([bounds[axis][column] for axis in axes] for column in range(3))
        start, stop, step = map(int64s, columns)
        return self.op("Slice", [x, start, stop, int64s(axes), step], shape, x.dtype)

    def take(self, x: Tensor, axis: int, start: int, stop: int = _END, step: int = 1) -> Tensor:
        """Slice one axis; the bounds may be negative as in Python."""
        size = x.shape[axis]
        if size is None and (start, stop, step) == (-1, _END, 1):
            length: int | None = 1
        elif size is None:
            length = None if start < 0 or stop == _END or stop < 0 else -(-(stop - start) // step)
        else:
            length = len(range(*slice(start, None if stop in (_END, -_END) else stop, step).indices(size)))
        if length == size and step == 1 and size is not None:
            return x
        if x.const is not None:
            last = None if stop in (_END, -_END) else stop
            return constant(np.asarray(x.const[(slice(None),) * axis + (slice(start, last, step),)]))
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        bounds = [int64s([number]) for number in (start, stop, axis, step)]
        return self.op("Slice", [x, *bounds], shape, x.dtype)

    def reverse(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Turn the order of elements around along ``axes``."""
        if not axes or not x.core_shape:
            return x
        ends = [int64s([number] * len(axes)) for number in (-1, -_END)]
        return self.op("Slice", [x, *ends, int64s(axes), int64s([-1] * len(axes))], x.shape, x.dtype)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """The parts one after the other along ``axis``; empty parts vanish."""
        parts = [part for part in parts if part.shape[axis] != 0] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        sizes = [part.shape[axis] for part in parts]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        shape = (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1 :])
        if all(part.const is not None for part in parts) and math.prod(s or 0 for s in shape) < 1024:
            return constant(np.concatenate([self._constant(part) for part in parts], axis))
        return self.op("Concat", parts, shape, parts[0].dtype, {"axis": axis})

    def gather(self, x: Tensor, indices: Tensor | Sequence[int] | int, axis: int = 0) -> Tensor:
        """Select along one axis; the indices must be in bounds."""
        if isinstance(indices, int):
            picked = constant(np.array(indices, np.int64))
        else:
            picked = indices if isinstance(indices, Tensor) else int64s(indices)
        shape = (*x.shape[:axis], *picked.shape, *x.shape[axis + 1 :])
        if x.const is not None and picked.const is not None:
            return constant(np.take(x.const, np.array(picked.const), axis))
        return self.op("Gather", [x, picked], shape, x.dtype, {"axis": axis})

    def pad(self, x: Tensor, low: Sequence[int], high: Sequence[int], value: Tensor) -> Tensor:
        """Constant padding; amounts may not be negative."""
        if not any(low) and not any(high):
            return x
        shape = tuple(
            None if size is None else size + before + after
            for size, before, after in zip(x.shape, low, high, strict=True)
        )
        return self.op("Pad", [x, int64s([*low, *high]), self.reshape(value, ())], shape, x.dtype)

    # --- shapes ---------------------------------------------------------------------------------

    def shape_of(self, x: Tensor) -> Tensor:
        """The sizes as an int64 vector, constant where all are known."""
        if None not in x.shape:
            return int64s([size or 0 for size in x.shape])
        if x.extent is not None and not isinstance(x.core, ir.Value):
            return x.extent
        return self.raw("Shape", [self.full(x)], (Out((x.rank,), I64),))[0]

    def size(self, x: Tensor, axis: int) -> Size:
        """One dimension: a number where it is known, else a vector of length 1."""
        known = x.shape[axis]
        if known is not None:
            return known
        if not x.is_full and x.extent is not None:
            return self.take(x.extent, 0, axis, axis + 1)
        return self.raw("Shape", [self.full(x)], (Out((1,), I64),), {"start": axis, "end": axis + 1})[0]

    def sizes(self, parts: Sequence[Size]) -> Tensor:
        """A shape vector from single dimensions."""
        if all(isinstance(part, int) for part in parts):
            return int64s([part for part in parts if isinstance(part, int)])
        return self.concat([int64s([part]) if isinstance(part, int) else part for part in parts], 0)

    def iota(self, size: Size) -> Tensor:
        """0, 1, 2, … as int64."""
        if isinstance(size, int):
            return constant(np.arange(size, dtype=np.int64))
        bounds = [constant(np.array(0, np.int64)), self.squeeze(size, [0]), constant(np.array(1, np.int64))]
        return self.raw("Range", bounds, (Out((None,), I64),))[0]


def _countable(shape: Shape) -> bool:
    """Whether the number of elements tells every size: at most one is free, and then none is 0."""
    return None not in shape or (sum(size is None for size in shape) == 1 and 0 not in shape)


def _wide(shape: Shape) -> list[int | None]:
    return [size for size in shape if size != 1]


def _same_move(source: Shape, shape: Shape, perm: Sequence[int]) -> list[int]:
    """The permutation of ``source`` that ``perm`` is of ``shape``, which differs in axes of size 1; those come last."""
    wide = iter([axis for axis, size in enumerate(source) if size != 1])
    place = {axis: next(wide) for axis, size in enumerate(shape) if size != 1}
    moved = [place[axis] for axis in perm if axis in place]
    return moved + [axis for axis, size in enumerate(source) if size == 1]
