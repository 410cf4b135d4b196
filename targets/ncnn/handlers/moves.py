"""Operators that move elements or only say otherwise how they are counted."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.orders import Order, blocks, steps
from convertkit.targets.ncnn.tensor import MOST_DIMENSIONS, Tensor, blob_axes, check_elements, constant

moves = Registry()

_AXES = {2: "HW", 3: "CHW", 4: "CDHW"}
"""Letters of the axes of a blob, the outermost first."""
_ORDERS = {
    2: ("WH", "HW"),
    3: ("WHC", "HWC", "WCH", "CWH", "HCW", "CHW"),
    4: (
        "WHDC", "HWDC", "WDHC", "DWHC", "HDWC", "DHWC", "WHCD", "HWCD", "WCHD", "CWHD", "HCWD", "CHWD",
        "WDCH", "DWCH", "WCDH", "CWDH", "DCWH", "CDWH", "HDCW", "DHCW", "HCDW", "CHDW", "DCHW", "CDHW",
    ),
}  # fmt: skip
"""What the layer Permute calls its orders, by number: the axes of the result, the innermost first."""


def as_shape(b: Builder, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same elements, counted otherwise; the blob stays what it is until somebody wants other sizes."""
    if x.array is not None:
        return b.view(x, shape or (1,), shape)
    check_elements(shape)
    return Tensor(shape, x.sizes, x.blob, whole=x.whole)


def transposed(b: Builder, x: Tensor, perm: tuple[int, ...]) -> Tensor:
    """Axes of one element do not count, so that up to four others may change places."""
    shape = tuple(x.shape[axis] for axis in perm)
    if x.array is not None:
        return Tensor(shape, shape or (1,), array=np.ascontiguousarray(np.transpose(x.array, perm)))
    kept = [axis for axis in range(x.rank) if x.shape[axis] != 1]
    order = [kept.index(axis) for axis in perm if axis in kept]
    if order == sorted(order):
        return as_shape(b, x, shape)
    given, done = as_shape(b, x, tuple(x.shape[axis] for axis in kept)), steps(tuple(order))
    if not done:
        raise Unsupported(f"{len(kept)} axes change places: more than three of ncnn's Permutes, of four axes each")
    for each in done:
        given = _permuted(b, given, each)
    return as_shape(b, given, shape)


def _permuted(b: Builder, x: Tensor, order: Order) -> Tensor:
    """By one layer; axes that stay neighbours are one where there are more than four."""
    parts = blocks(order) if len(order) > MOST_DIMENSIONS else tuple((axis,) for axis in order)
    before = sorted(parts)
    sizes = tuple(math.prod(x.shape[axis] for axis in part) for part in before)
    places = [before.index(part) for part in parts]
    number = _ORDERS[len(parts)].index("".join(_AXES[len(parts)][place] for place in reversed(places)))
    made = tuple(x.shape[axis] for axis in order)
    return b.layer("Permute", [b.view(x, sizes)], made, tuple(sizes[place] for place in places), {0: number})


@moves.lowers("Transpose", since=(13, 21, 23, 24, 25))
def transpose(b: Builder, x: Tensor, *, perm: tuple[int, ...] | None = None) -> Tensor:
    return transposed(b, x, tuple(reversed(range(x.rank))) if perm is None else perm)


@moves.lowers("Reshape", since=(14, 19, 21, 23, 24, 25))
def reshape(b: Builder, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    wanted = [int(size) for size in shape.known.reshape(-1)]
    sizes = [x.shape[place] if not size and not allowzero else size for place, size in enumerate(wanted)]
    rest = math.prod(size for size in sizes if size != -1)
    whole = math.prod(x.shape)
    return as_shape(b, x, tuple(whole // max(rest, 1) if size == -1 else size for size in sizes))


@moves.lowers("Flatten", since=(13, 21, 23, 24, 25))
def flatten(b: Builder, x: Tensor, *, axis: int = 1) -> Tensor:
    place = axis + x.rank if axis < 0 else axis
    return as_shape(b, x, (math.prod(x.shape[:place]), math.prod(x.shape[place:])))


@moves.lowers("Squeeze", since=(13, 21, 23, 24, 25))
def squeeze(b: Builder, x: Tensor, axes: Tensor | None) -> Tensor:
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    gone = ones if axes is None else [int(axis) % x.rank for axis in axes.known.reshape(-1)]
    return as_shape(b, x, tuple(size for axis, size in enumerate(x.shape) if axis not in gone))


@moves.lowers("Unsqueeze", since=(13, 21, 23, 24, 25))
def unsqueeze(b: Builder, x: Tensor, axes: Tensor) -> Tensor:
    rank = x.rank + axes.known.size
    new = {int(axis) % rank for axis in axes.known.reshape(-1)}
    left = iter(x.shape)
    return as_shape(b, x, tuple(1 if axis in new else next(left) for axis in range(rank)))


@moves.lowers("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25))
def identity(b: Builder, x: Tensor) -> Tensor:
    return x


@moves.lowers("Dropout", since=(12, 13, 22))
def dropout(
    b: Builder, x: Tensor, ratio: Tensor | None, training_mode: Tensor | None, *, seed: int | None = None
) -> Tensor:
    if training_mode is not None and bool(training_mode.known):
        raise Unsupported("training_mode: an artifact does not train")
    return x


@moves.lowers("Cast", since=(13,))
def cast_13(b: Builder, x: Tensor, *, to: int) -> Tensor:
    return _cast(x, to)


@moves.lowers("Cast", since=(19, 21, 23))
def cast(b: Builder, x: Tensor, *, saturate: int = 1, to: int) -> Tensor:
    return _cast(x, to)


def _cast(x: Tensor, to: int) -> Tensor:
    if x.array is not None and to == ir.DataType.FLOAT:
        return Tensor(x.shape, x.sizes, array=np.asarray(x.array, np.float32))
    if to != ir.DataType.FLOAT:
        raise Unsupported("a cast to another type than float32, in which ncnn computes")
    return x


@moves.lowers("Concat", since=13)
def concat(b: Builder, *xs: Tensor, axis: int) -> Tensor:
    place = axis % xs[0].rank
    shape = (*xs[0].shape[:place], sum(x.shape[place] for x in xs), *xs[0].shape[place + 1 :])
    kept = [x for x in xs if x.shape[place]]
    return concatenated(b, kept, place, shape)


def concatenated(b: Builder, xs: list[Tensor], axis: int, shape: tuple[int, ...]) -> Tensor:
    """``xs`` one after the other along an axis of ONNX."""
    if len(xs) == 1:
        return xs[0]
    parts = blob_axes(shape, frozenset((axis,)))
    sizes = [
        tuple(math.prod(given[each] for each in part) for part in parts) for given in (*(x.shape for x in xs), shape)
    ]
    operands = [b.view(x, each) for x, each in zip(xs, sizes[:-1], strict=True)]
    return b.layer("Concat", operands, shape, sizes[-1], {0: parts.index((axis,))})


@moves.lowers("Expand", since=13)
def expand(b: Builder, x: Tensor, shape: Tensor) -> Tensor:
    wanted = tuple(int(size) for size in np.broadcast_shapes(x.shape, tuple(shape.known.reshape(-1))))
    whole = as_shape(b, x, (*[1] * (len(wanted) - x.rank), *x.shape))
    return _repeated(b, whole, tuple(new // old for new, old in zip(wanted, whole.shape, strict=True)))


@moves.lowers("Tile", since=13)
def tile(b: Builder, x: Tensor, repeats: Tensor) -> Tensor:
    return _repeated(b, x, tuple(int(count) for count in repeats.known.reshape(-1)))


def _repeated(b: Builder, x: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Axis after axis."""
    if x.array is not None:
        return constant(np.tile(x.array, counts))
    for axis, count in enumerate(counts):
        if count == 1:
            continue
        shape = tuple(size * count if place == axis else size for place, size in enumerate(x.shape))
        check_elements(shape)
        found, (where,) = b.along(x, [axis])
        sizes = tuple(size * count if place == where else size for place, size in enumerate(found.sizes))
        x = b.layer("Tile", [found], shape, sizes, {0: where, 1: count})
    return x


@moves.lowers("DepthToSpace", since=13)
def depth_to_space(b: Builder, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    batch, channels, height, width = x.shape
    shape = (batch, channels // blocksize**2, height * blocksize, width * blocksize)
    return b.layer("PixelShuffle", [_picture(b, x)], shape, None, {0: blocksize, 1: int(mode == "DCR")})


@moves.lowers("SpaceToDepth", since=13)
def space_to_depth(b: Builder, x: Tensor, *, blocksize: int) -> Tensor:
    batch, channels, height, width = x.shape
    shape = (batch, channels * blocksize**2, height // blocksize, width // blocksize)
    return b.layer("Reorg", [_picture(b, x)], shape, None, {0: blocksize, 1: 1})


def _picture(b: Builder, x: Tensor) -> Tensor:
    if x.shape[0] != 1:
        raise Unsupported(f"a batch of {x.shape[0]}: ncnn computes one sample at a time; fix the batch to 1")
    return b.plain(x)
