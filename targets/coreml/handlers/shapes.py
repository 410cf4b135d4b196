"""ONNX operators that change shapes, or tell them, as MIL."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import MOVES, flat_axes, integers, known
from convertkit.targets.coreml.tensor import HELD, Tensor, constant

shapes = Registry()


@shapes.lowers("Identity", since=MOVES)
def identity(b: Builder, x: Tensor) -> Tensor:
    return x if x.array is not None else b.op("identity", x=x)


@shapes.lowers("Reshape", since=13)
def reshape_13(b: Builder, x: Tensor, shape: Tensor) -> Tensor:
    """A 0 is always the size that is there."""
    return reshape(b, x, shape)


@shapes.lowers("Reshape", since=MOVES[1:])
def reshape(b: Builder, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """A 0 is the size that is there; where that is dynamic, the new sizes are put together when the model runs."""
    if shape.array is None:
        return _at_run_time(b, x, shape)
    sizes: list[int | None] = []
    for place, size in enumerate(integers(shape, "shape")):
        sizes.append(x.shape[place] if size == 0 and not allowzero else size)
    if None not in sizes:
        return b.reshape(x, [size for size in sizes if size is not None])
    if -1 not in sizes and sizes.count(None) == 1:
        return b.reshape(x, [-1 if size is None else size for size in sizes])
    told = b.sizes_of(x)
    parts = [
        b.op("slice_by_index", x=told, begin=(place,), end=(place + 1,))
        if size is None
        else constant(np.array([size], np.int32))
        for place, size in enumerate(sizes)
    ]
    return b.op("reshape", x=x, shape=b.concat(parts, 0))


def _at_run_time(b: Builder, x: Tensor, shape: Tensor) -> Tensor:
    if shape.shape[0] is None:
        raise Unsupported("a number of dimensions that is computed at run time")
    return b.op("reshape", x=x, shape=shape)


@shapes.lowers("Flatten", since=(13, *MOVES[4:]))
def flatten(b: Builder, x: Tensor, *, axis: int = 1) -> Tensor:
    at = axis % x.rank if axis != x.rank else axis
    before, after = x.shape[:at], x.shape[at:]
    rows = -1 if None in before else math.prod(size for size in before if size is not None)
    columns = -1 if None in after else math.prod(size for size in after if size is not None)
    if rows == columns == -1:
        raise UnknownSize("dynamic dimensions on both sides of the axis")
    return b.reshape(x, (rows, columns))


@shapes.lowers("Transpose", since=(13, *MOVES[4:]))
def transpose(b: Builder, x: Tensor, *, perm: tuple[int, ...] | None = None) -> Tensor:
    if x.rank < 2:
        return b.op("identity", x=x)
    order = tuple(reversed(range(x.rank))) if perm is None else perm
    return b.op("transpose", x=x, perm=order)


@shapes.lowers("Squeeze", since=(13, *MOVES[4:]))
def squeeze(b: Builder, x: Tensor, axes: Tensor | None) -> Tensor:
    named = (
        tuple(axis for axis, size in enumerate(x.shape) if size == 1)
        if axes is None
        else flat_axes(integers(axes, "axes"), max(x.rank, 1))
    )
    return b.op("squeeze", x=x, axes=named) if named else b.op("identity", x=x)


@shapes.lowers("Unsqueeze", since=(13, *MOVES[4:]))
def unsqueeze(b: Builder, x: Tensor, axes: Tensor) -> Tensor:
    named = integers(axes, "axes")
    rank = x.rank + len(named)
    if rank > 5:
        raise Unsupported(f"{rank} dimensions: Core ML's tensors have at most 5")
    return b.op("expand_dims", x=x, axes=tuple(sorted(flat_axes(named, rank))))


@shapes.lowers("Concat", since=13)
def concat(b: Builder, *inputs: Tensor, axis: int) -> Tensor:
    full = [each for each in inputs if 0 not in each.shape]
    return b.concat(full, axis % inputs[0].rank) if len(full) > 1 else b.op("identity", x=full[0])


@shapes.lowers("Shape", since=(15, *MOVES[3:]))
def shape_(b: Builder, x: Tensor, *, end: int | None = None, start: int = 0) -> Tensor:
    part = x.shape[start:end]
    if None not in part:
        return constant(np.array(part, np.int64))
    told = b.sizes_of(x)
    first, last, _ = slice(start, end).indices(x.rank)
    return told if (first, last) == (0, x.rank) else b.op("slice_by_index", x=told, begin=(first,), end=(last,))


@shapes.lowers("Size", since=(13, *MOVES[3:]))
def size(b: Builder, x: Tensor) -> Tensor:
    return b.op("reduce_prod", x=b.sizes_of(x), axes=(0,), keep_dims=False)


@shapes.lowers("Constant", since=(13, *MOVES[3:]))
def constant_(
    b: Builder,
    *,
    sparse_value: object = None,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
    value_string: str | None = None,
    value_strings: tuple[str, ...] | None = None,
) -> Tensor:
    if value is not None:
        return constant(value)
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64)):
        if given is not None:
            return constant(np.array(given, dtype))
    if value_ints is not None:
        return constant(np.array(value_ints, np.int64))
    raise Unsupported("a constant that is text or sparse")


@shapes.lowers("ConstantOfShape", since=(9, *MOVES[4:], 20))
def constant_of_shape(b: Builder, shape: Tensor, *, value: Array | None = None) -> Tensor:
    number = np.zeros(1, np.float32) if value is None else value
    if shape.array is not None:
        return constant(np.full(integers(shape, "shape"), number.reshape(()), number.dtype))
    kind = HELD.get(number.dtype.name, number.dtype.name)
    return b.op("fill", shape=shape, value=number.reshape(()).astype(kind)[()])


@shapes.lowers("Range", since=11)
def range_(b: Builder, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return b.op("range_1d", start=start, end=limit, step=delta)


@shapes.lowers("Range", since=27)
def range_27(b: Builder, start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    return range_(b, start, limit, delta)


@shapes.lowers("Expand", since=13)
def expand(b: Builder, x: Tensor, shape: Tensor) -> Tensor:
    """A tile along the axes that grow; with sizes that are only known then, a product with ones or a selection."""
    if shape.array is None or None in x.shape:
        return _expanded(b, x, shape)
    sizes = integers(shape, "shape")
    result = b.spread(x, np.broadcast_shapes(x.sizes, sizes))
    return b.op("identity", x=x) if result is x else result


def _expanded(b: Builder, x: Tensor, shape: Tensor) -> Tensor:
    """``x`` beside ones of that shape: broadcasting is what arithmetic does."""
    if x.dtype == "bool":
        return b.cast(_expanded(b, b.cast(x, "int32"), shape), "bool")
    ones = b.op("fill", shape=shape, value=b.real(1, x))
    return b.op("mul", x=x, y=ones)


@shapes.lowers("Tile", since=13)
def tile(b: Builder, x: Tensor, repeats: Tensor) -> Tensor:
    return b.op("tile", x=x, reps=repeats)


@shapes.lowers("DepthToSpace", since=(13, 28))
def depth_to_space(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "DCR":
        return b.op("depth_to_space", x=x, block_size=np.int32(blocksize))
    return b.op("pixel_shuffle", x=x, upscale_factor=np.int32(blocksize))


@shapes.lowers("SpaceToDepth", since=13)
def space_to_depth(b: Builder, x: Tensor, *, blocksize: int) -> Tensor:
    return b.op("space_to_depth", x=x, block_size=np.int32(blocksize))


@shapes.lowers("SpaceToDepth", since=28)
def space_to_depth_28(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "DCR":
        return space_to_depth(b, x, blocksize=blocksize)
    return b.op("pixel_unshuffle", x=x, downscale_factor=np.uint32(blocksize))


@shapes.lowers("EyeLike", since=(9, 22))
def eye_like(b: Builder, x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    import onnx

    kind = HELD.get(x.dtype, x.dtype) if dtype is None else onnx.helper.tensor_dtype_to_np_dtype(dtype).name
    return constant(np.eye(x.size(0), x.size(1), k, np.dtype(kind)))


@shapes.lowers("Trilu", since=14)
def trilu(b: Builder, x: Tensor, k: Tensor | None, *, upper: int = 1) -> Tensor:
    """A selection by a mask, which is known."""
    shift = 0 if k is None else int(known(k, "k").reshape(()))
    rows, columns = x.size(x.rank - 2), x.size(x.rank - 1)
    mask = np.triu(np.ones((rows, columns), bool), shift) if upper else np.tril(np.ones((rows, columns), bool), shift)
    if x.dtype == "bool":
        return b.op("logical_and", x=x, y=constant(mask))
    return b.select(constant(mask), x, b.full(0, x))
