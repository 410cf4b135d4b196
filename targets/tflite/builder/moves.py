"""Operators that move data and compute nothing; integers keep their scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.targets.tflite.builder.core import BuilderCore, static
from convertkit.targets.tflite.tensor import DYNAMIC, DType, QuantParams, Tensor, broadcast_shape


class Moves(BuilderCore):
    """Reshaping, cutting, joining, gathering, padding; constants are moved at conversion time."""

    # --- shapes ----------------------------------------------------------------------------------

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """``x`` with another shape; at most one size may be ``DYNAMIC``.  Chains of reshapes collapse."""
        shape = _completed(x.shape, tuple(shape))
        operation = self.producer(x)
        if operation is not None and operation.code == "RESHAPE" and operation.inputs[0] is not None:
            x = operation.inputs[0]
        if x.shape == shape and shape.count(DYNAMIC) <= 1:
            return x
        if x.constant is not None:
            return self.constant(x.constant.reshape(shape), _reshaped(x), x.dtype)
        stored = self.stored_weight(x)
        if stored is not None and (stored.quantization is None or stored.quantization.axis is None):
            return self.dequantize(self.reshape(stored, shape))
        if shape.count(DYNAMIC) > 1:
            raise UnknownSize(f"a reshape to {shape} has more than one size that is only known at run time")
        return self.emit("RESHAPE", (x, self.ints(shape)), shape, x.dtype, None, x.quantization)

    def reshape_to(self, x: Tensor, sizes: Tensor, shape: tuple[int, ...]) -> Tensor:
        """``x`` reshaped to the int32 vector ``sizes``, of which ``shape`` is what is known now."""
        return self.emit("RESHAPE", (x, sizes), shape, x.dtype, None, x.quantization)

    def relabelled(self, x: Tensor, quantization: QuantParams) -> Tensor:
        """The integers of ``x``, which stand for nothing yet, standing for reals."""
        if x.constant is not None:
            return self.constant(x.constant, quantization, x.dtype)
        sizes = self.ints(x.shape) if x.shape.count(DYNAMIC) <= 1 and 0 not in x.shape else self.shape_of(x)
        return self.emit("RESHAPE", (x, sizes), x.shape, x.dtype, None, quantization)

    def shape_of(self, x: Tensor, dtype: DType = "int32") -> Tensor:
        """The sizes of ``x`` as a vector of int32 or int64, a constant where they are known."""
        kinds = {"int32": (np.int32, 2), "int64": (np.int64, 4)}
        numpy_type, code = kinds[dtype]
        if x.is_static:
            return self.constant(np.array(x.shape, numpy_type))
        return self.emit("SHAPE", (x,), (x.rank,), dtype, {"out_type": code})

    def size_of(self, x: Tensor, axis: int) -> Tensor:
        """One size of ``x`` as an int32 vector of one element."""
        if x.shape[axis] != DYNAMIC:
            return self.ints([x.shape[axis]])
        return self.slice(self.shape_of(x), (axis,), (1,))

    def sizes(self, parts: Sequence[int | Tensor]) -> Tensor:
        """An int32 vector from known sizes and from tensors of shape (1,), such as ``size_of`` returns."""
        tensors = [self.ints([part]) if isinstance(part, int) else part for part in parts]
        return self.concatenation(tensors, 0)

    def expand_dims(self, x: Tensor, axis: int) -> Tensor:
        """A new axis of size 1 before ``axis`` of the result."""
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        if shape.count(DYNAMIC) <= 1:
            return self.reshape(x, shape)
        return self.emit("EXPAND_DIMS", (x, self.ints([axis])), shape, x.dtype, None, x.quantization)

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """``x`` without ``axes``, which have size 1."""
        shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
        if shape.count(DYNAMIC) <= 1:
            return self.reshape(x, shape)
        return self.emit("SQUEEZE", (x,), shape, x.dtype, {"squeeze_dims": tuple(axes)}, x.quantization)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """Axis i of the result is axis ``perm[i]`` of ``x``; only-ones moves become reshapes."""
        perm = tuple(perm)
        if perm == tuple(range(x.rank)):
            return x
        shape = tuple(x.shape[axis] for axis in perm)
        quantization = _permuted(x.quantization, perm)
        if x.constant is not None:
            return self.constant(x.constant.transpose(perm), quantization, x.dtype)
        stored = self.stored_weight(x)
        if stored is not None:
            return self.dequantize(self.transpose(stored, perm))
        kept = [axis for axis in perm if x.shape[axis] != 1]
        if kept == sorted(kept) and shape.count(DYNAMIC) <= 1:
            return self.reshape(x, shape)
        return self.emit("TRANSPOSE", (x, self.ints(perm)), shape, x.dtype, None, quantization)

    def reshape_weight(self, w: Tensor, shape: Sequence[int]) -> Tensor:
        """A weight with axes of size 1 added or dropped; its channel axis is found again by its size."""
        stored = self.stored_weight(w)
        if stored is not None:
            return self.dequantize(self.reshape_weight(stored, shape))
        if w.quantization is None or w.quantization.axis is None:
            return self.reshape(w, shape)
        channels = w.shape[w.quantization.axis]
        place = next(axis for axis, size in enumerate(shape) if size == channels)
        assert w.constant is not None, "quantized weights are constants"
        return self.constant(w.constant.reshape(shape), w.quantization.moved(place), w.dtype)

    def split_constant(self, x: Tensor, axis: int, count: int) -> list[Tensor]:
        """Equal parts of a tensor along ``axis``, cut now where it is constant, channel scales included."""
        step = x.shape[axis] // count
        if x.constant is None:
            return list(self.split(x, axis, [step] * count))
        parts = np.split(x.constant, count, axis)
        params = [x.quantization] * count
        if x.quantization is not None and x.quantization.axis == axis and len(x.quantization.scale) > 1:
            whole = x.quantization
            cuts = [slice(i * step, (i + 1) * step) for i in range(count)]
            points = whole.zero_point if len(whole.zero_point) > 1 else whole.zero_point * len(whole.scale)
            params = [QuantParams(whole.scale[cut], points[cut], axis) for cut in cuts]
        return [self.constant(part, own, x.dtype) for part, own in zip(parts, params, strict=True)]

    def broadcast_to(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """``x`` repeated to a static ``shape``."""
        shape = static(shape, "BROADCAST_TO")
        if x.shape == shape:
            return x
        if x.constant is not None:
            return self.constant(np.broadcast_to(x.constant, shape), x.quantization, x.dtype)
        return self.emit("BROADCAST_TO", (x, self.ints(shape)), shape, x.dtype, None, x.quantization)

    def broadcast_to_sizes(self, x: Tensor, sizes: Tensor, shape: tuple[int, ...]) -> Tensor:
        """``x`` repeated to the int32 vector ``sizes``, of which ``shape`` is what is known now."""
        return self.emit("BROADCAST_TO", (x, sizes), shape, x.dtype, None, x.quantization)

    def broadcast_args(self, x: Tensor, y: Tensor) -> Tensor:
        """The broadcast of two shapes, given as vectors."""
        return self.emit("BROADCAST_ARGS", (x, y), (max(x.shape[0], y.shape[0]),), x.dtype)

    # --- cutting and joining ---------------------------------------------------------------------

    def slice(self, x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
        """``size[i]`` elements from ``begin[i]``; a size of -1 means to the end.

        A STRIDED_SLICE where a size of ``x`` is dynamic: LiteRT does not allocate what SLICE makes of it before it
        runs, nor anything behind that, and XNNPACK leaves it out.
        """
        ends = [full if count == DYNAMIC else first + count for first, count, full in zip(begin, size, x.shape)]
        shape = tuple(DYNAMIC if end == DYNAMIC else end - first for first, end in zip(begin, ends, strict=True))
        if shape == x.shape and DYNAMIC not in shape:
            return x
        if x.constant is not None:
            cut = x.constant[tuple(slice(first, end) for first, end in zip(begin, ends, strict=True))]
            return self.constant(cut, x.quantization, x.dtype)
        if DYNAMIC in x.shape:
            first = sum(1 << axis for axis, start in enumerate(begin) if start == 0)
            last = sum(1 << axis for axis, end in enumerate(ends) if end == x.shape[axis])
            stops = [0 if end == DYNAMIC else end for end in ends]
            return self.strided_slice(x, begin, stops, [1] * x.rank, shape, begin_mask=first, end_mask=last)
        return self.emit("SLICE", (x, self.ints(begin), self.ints(size)), shape, x.dtype, None, x.quantization)

    def slice_at(self, x: Tensor, begin: Tensor, size: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A slice whose int32 ``begin`` and ``size`` are computed; ``shape`` is what is known now."""
        return self.emit("SLICE", (x, begin, size), shape, x.dtype, None, x.quantization)

    def strided_slice(
        self,
        x: Tensor,
        begin: Sequence[int],
        end: Sequence[int],
        strides: Sequence[int],
        shape: tuple[int, ...],
        *,
        begin_mask: int = 0,
        end_mask: int = 0,
        shrink_axis_mask: int = 0,
    ) -> Tensor:
        """NumPy's basic slicing; bit i of a mask leaves that side of axis i open.  ``shape`` is the result's."""
        options = {
            "begin_mask": begin_mask,
            "end_mask": end_mask,
            "ellipsis_mask": 0,
            "new_axis_mask": 0,
            "shrink_axis_mask": shrink_axis_mask,
            "offset": False,
        }
        inputs = (x, self.ints(begin), self.ints(end), self.ints(strides))
        return self.emit("STRIDED_SLICE", inputs, shape, x.dtype, options, x.quantization)

    def concatenation(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors joined along ``axis``; one tensor is itself, constants are joined now."""
        first = tensors[0]
        if len(tensors) == 1:
            return first
        axis %= first.rank
        sizes = [tensor.shape[axis] for tensor in tensors]
        total = DYNAMIC if DYNAMIC in sizes else sum(sizes)
        rest = broadcast_shape(*((*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :]) for tensor in tensors))
        shape = (*rest[:axis], total, *rest[axis + 1 :])
        constants = [tensor.constant for tensor in tensors if tensor.constant is not None]
        if len(constants) == len(tensors):
            return self.constant(np.concatenate(constants, axis), first.quantization, first.dtype)
        options = {"axis": axis}  # its kernel takes no activation, whatever the schema says
        return self.emit("CONCATENATION", tensors, shape, first.dtype, options, first.quantization)

    def split(self, x: Tensor, axis: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        """Consecutive parts of the given sizes; SPLIT where they are equal, else SPLIT_V."""
        parts: list[tuple[tuple[int, ...], DType]] = [
            ((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype) for size in sizes
        ]
        at = self.constant(np.array(axis, np.int32))
        count = {"num_splits": len(sizes)}
        if len(sizes) == 1:
            return (x,)
        if len(set(sizes)) == 1:
            return self.emit_many("SPLIT", (at, x), parts, count, x.quantization)
        return self.emit_many("SPLIT_V", (x, self.ints(sizes), at), parts, count, x.quantization)

    def pack(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors of one shape stacked along a new ``axis``."""
        first = tensors[0]
        axis %= first.rank + 1
        shape = (*first.shape[:axis], len(tensors), *first.shape[axis:])
        options = {"values_count": len(tensors), "axis": axis}
        return self.emit("PACK", tensors, shape, first.dtype, options, first.quantization)

    def unpack(self, x: Tensor, axis: int) -> tuple[Tensor, ...]:
        """The slices along a static ``axis``, without it."""
        axis %= x.rank
        (count,) = static(x.shape[axis : axis + 1], "UNPACK")
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        options = {"num": count, "axis": axis}
        return self.emit_many("UNPACK", (x,), [(shape, x.dtype)] * count, options, x.quantization)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """Each axis repeated so many times."""
        shape = tuple(DYNAMIC if size == DYNAMIC else size * n for size, n in zip(x.shape, repeats, strict=True))
        return self.emit("TILE", (x, self.ints(repeats)), shape, x.dtype, None, x.quantization)

    def tile_by(self, x: Tensor, repeats: Tensor) -> Tensor:
        """Each axis repeated a computed number of times."""
        return self.emit("TILE", (x, repeats), (DYNAMIC,) * x.rank, x.dtype, None, x.quantization)

    def pad_by(self, x: Tensor, amounts: Tensor, value: Tensor | None = None) -> Tensor:
        """Computed numbers of elements (rank, 2) before and after each axis."""
        given = (x, amounts) if value is None else (x, amounts, value)
        return self.emit("PAD" if value is None else "PADV2", given, (DYNAMIC,) * x.rank, x.dtype, None, x.quantization)

    def pad(self, x: Tensor, pads: Sequence[tuple[int, int]], value: Tensor | None = None) -> Tensor:
        """Elements before and after each axis: real zero, or the scalar ``value`` (PADV2)."""
        if not any(before or after for before, after in pads):
            return x
        amounts = self.constant(np.array(pads, np.int32).reshape(x.rank, 2))
        sizes = zip(x.shape, pads, strict=True)
        shape = tuple(DYNAMIC if size == DYNAMIC else size + before + after for size, (before, after) in sizes)
        if value is None:
            return self.emit("PAD", (x, amounts), shape, x.dtype, None, x.quantization)
        return self.emit("PADV2", (x, amounts, value), shape, x.dtype, None, x.quantization)

    def mirror_pad(self, x: Tensor, pads: Sequence[tuple[int, int]], *, symmetric: bool) -> Tensor:
        """Padding by reflection, the edge included (``symmetric``) or not."""
        amounts = self.constant(np.array(pads, np.int32).reshape(x.rank, 2))
        sizes = zip(x.shape, pads, strict=True)
        shape = tuple(DYNAMIC if size == DYNAMIC else size + before + after for size, (before, after) in sizes)
        return self.emit("MIRROR_PAD", (x, amounts), shape, x.dtype, {"mode": int(symmetric)}, x.quantization)

    # --- indexing --------------------------------------------------------------------------------

    def gather(self, x: Tensor, indices: Tensor, axis: int, batch_dims: int = 0) -> Tensor:
        """Slices of ``x`` along ``axis``; indices must be in [0, size)."""
        axis %= x.rank
        shape = (*x.shape[:axis], *indices.shape[batch_dims:], *x.shape[axis + 1 :])
        options = {"axis": axis, "batch_dims": batch_dims}
        return self.emit("GATHER", (x, indices), shape, x.dtype, options, x.quantization)

    def gather_nd(self, x: Tensor, indices: Tensor) -> Tensor:
        """Elements or slices at coordinates along the last axis of ``indices``."""
        shape = (*indices.shape[:-1], *x.shape[indices.shape[-1] :])
        return self.emit("GATHER_ND", (x, indices), shape, x.dtype, None, x.quantization)

    def scatter_nd(self, indices: Tensor, updates: Tensor, sizes: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Zeros of ``sizes`` with ``updates`` added at coordinates (duplicates add up)."""
        return self.emit("SCATTER_ND", (indices, updates, sizes), shape, updates.dtype, None, updates.quantization)

    def reverse(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """``x`` backwards along ``axes`` (REVERSE_V2)."""
        return self.emit("REVERSE_V2", (x, self.ints(axes)), x.shape, x.dtype, None, x.quantization)

    def reverse_sequence(self, x: Tensor, lengths: Tensor, *, seq_dim: int, batch_dim: int) -> Tensor:
        """The first ``lengths[b]`` elements of each sequence backwards."""
        options = {"seq_dim": seq_dim, "batch_dim": batch_dim}
        return self.emit("REVERSE_SEQUENCE", (x, lengths), x.shape, x.dtype, options, x.quantization)

    def fill(self, sizes: Tensor, value: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor of one value, a constant where its sizes are known."""
        if sizes.constant is not None and value.constant is not None:
            return self.constant(np.full(sizes.constant, value.constant), value.quantization, value.dtype)
        return self.emit("FILL", (sizes, value), shape, value.dtype)

    def range(self, start: Tensor, limit: Tensor, delta: Tensor, size: int) -> Tensor:
        """``start, start + delta, …`` below ``limit``; ``size`` may be ``DYNAMIC``."""
        return self.emit("RANGE", (start, limit, delta), (size,), start.dtype)

    def where(self, condition: Tensor) -> Tensor:
        """int64 coordinates of the true elements, one row each."""
        return self.emit("WHERE", (condition,), (DYNAMIC, condition.rank), "int64")

    def one_hot(self, indices: Tensor, depth: Tensor, on: Tensor, off: Tensor, axis: int) -> Tensor:
        """``on`` at the indexed place of a new axis, ``off`` elsewhere."""
        known = DYNAMIC if depth.constant is None else int(depth.constant)
        place = axis % (indices.rank + 1)
        shape = (*indices.shape[:place], known, *indices.shape[place:])
        return self.emit("ONE_HOT", (indices, depth, on, off), shape, on.dtype, {"axis": axis})

    def dynamic_update_slice(self, x: Tensor, update: Tensor, start: Tensor) -> Tensor:
        """``x`` with ``update`` written at ``start`` (clamped)."""
        return self.emit("DYNAMIC_UPDATE_SLICE", (x, update, start), x.shape, x.dtype, None, x.quantization)


def _completed(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """``new`` with its one unknown size computed, where ``old`` is static."""
    if new.count(DYNAMIC) != 1 or DYNAMIC in old:
        return new
    known = math.prod(size for size in new if size != DYNAMIC)
    return tuple(math.prod(old) // known if size == DYNAMIC and known else size for size in new)


def _permuted(quantization: QuantParams | None, perm: tuple[int, ...]) -> QuantParams | None:
    if quantization is None or quantization.axis is None:
        return quantization
    return quantization.moved(perm.index(quantization.axis))


def _reshaped(x: Tensor) -> QuantParams | None:
    if x.quantization is not None and x.quantization.axis is not None:
        raise Unsupported("a reshape of a tensor with one scale per channel")
    return x.quantization
