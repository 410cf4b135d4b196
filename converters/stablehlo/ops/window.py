"""``reduce_window`` and ``select_and_scatter``.

Routes, from the best to the most general: ``CumSum``, ``MaxPool`` / ``AveragePool``, one gather and
ONNX reduction per windowed axis, and for any other reducer a balanced tree over each window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import ints
from convertkit.converters.stablehlo.ops.movement import padded
from convertkit.converters.stablehlo.ops.reduce import SEQUENTIAL, combined, has_reduction, identity, sequential, tree
from convertkit.converters.stablehlo.ops.regions import expressions, reducer_of
from convertkit.converters.stablehlo.reductions import Reducer
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Attribute
from convertkit.converters.stablehlo.tensor import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I64,
    U8,
    Complex,
    Operand,
    Tensor,
    constant,
    is_float,
    lowest,
    static,
)
from convertkit.errors import Unsupported

windows = Handlers()

_SCANS = frozenset({"multiply", "maximum", "minimum", "and", "or"})


@dataclass(frozen=True, slots=True)
class Window:
    """The window along every axis, in elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    base_dilation: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    is_same: bool = False
    """Whether padding is ONNX's SAME_UPPER, which ``low`` and ``high`` do not say."""

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes along which the window does anything."""
        return tuple(
            axis
            for axis, numbers in enumerate(
                zip(self.size, self.stride, self.base_dilation, self.low, self.high, strict=True)
            )
            if numbers != (1, 1, 1, 0, 0)
        )


def window_of(op: Any, rank: int) -> Window:
    """The window attributes of an operator, defaults filled in."""
    attributes, ones = op.attributes, (1,) * rank

    def read(name: str) -> tuple[int, ...]:
        return ints(attributes[name]) if name in attributes else ones

    padding = ints(attributes["padding"]) if "padding" in attributes else (0,) * (2 * rank)
    strides, base, dilation = read("window_strides"), read("base_dilations"), read("window_dilations")
    return Window(read("window_dimensions"), strides, base, dilation, padding[::2], padding[1::2])


@windows.translates
def reduce_window(b: Builder, op: hlo.ReduceWindowOp, *operands: Tensor) -> Operand | tuple[Operand, ...]:
    half = len(operands) // 2
    inputs, starts = operands[:half], operands[half:]
    window, block = window_of(op, inputs[0].rank), op.regions[0].blocks[0]
    kind = reducer_of(block) if half == 1 else None
    scanned = _scan(b, kind, inputs[0], window) if kind in _SCANS else None
    if kind is not None and scanned is not None:
        neutral = starts[0].scalar == identity(kind, inputs[0])
        return scanned if neutral else combined(b, kind, scanned, starts[0])
    if kind is None or not has_reduction(kind, inputs[0]):
        return _any_reducer(b, block, inputs, starts, window)
    return windowed(b, kind, inputs[0], starts[0], window)


@windows.complex
def complex_reduce_window(b: Builder, op: hlo.ReduceWindowOp, *operands: Operand) -> Operand | tuple[Operand, ...]:
    half = len(operands) // 2
    x, start = operands[0], operands[half]
    window, block = window_of(op, x.rank), op.regions[0].blocks[0]
    if reducer_of(block) == "add" and isinstance(x, Complex) and isinstance(start, Complex):
        return Complex(windowed(b, "add", x.re, start.re, window), windowed(b, "add", x.im, start.im, window))
    return _any_reducer(b, block, operands[:half], operands[half:], window)


def windowed(b: Builder, kind: Reducer, x: Tensor, start: Tensor, window: Window) -> Tensor:
    """A window reduction with an ONNX reducer; the start value joins every window once."""
    if x.dtype in (F16, BF16) and kind in ("add", "multiply") and math.prod(window.size) <= SEQUENTIAL:
        neutral = b.like(x, identity(kind, x) or 0)
        return sequential(b, kind, patches(b, _padded(b, x, neutral, window), window, _turned(window)), start)
    if kind == "add" and x.scalar == 1 and start.scalar == 0 and x.dtype in (F32, F64) and None not in x.shape:
        return _counted(x, window)
    scanned = _scan(b, kind, x, window)
    if scanned is None and start.scalar == identity(kind, x):
        scanned = pool(b, kind, x, window)
    if scanned is None:
        scanned = _by_axes(b, kind, x, window)
    return scanned if start.scalar == identity(kind, x) else combined(b, kind, scanned, start)


def _counted(x: Tensor, window: Window) -> Tensor:
    """How many elements of ``x``, all of them 1, each window has: what averages that leave out padding divide by."""
    counts = np.ones((), np.float64)
    for axis, size in enumerate(static(x.shape)):
        spread, reach = window.base_dilation[axis], (window.size[axis] - 1) * window.dilation[axis] + 1
        last = (size - 1) * spread
        starts = range(-window.low[axis], last + 1 + window.high[axis] - reach + 1, window.stride[axis])
        taken = [[start + step * window.dilation[axis] for step in range(window.size[axis])] for start in starts]
        line = np.array([sum(0 <= at <= last and at % spread == 0 for at in each) for each in taken], np.float64)
        counts = counts[..., None] * (line[:1] if line.size and (line == line[0]).all() else line)
    shape = tuple(_output_size(size, window, axis) for axis, size in enumerate(x.shape))
    return Tensor(counts.astype(x.dtype.numpy()), counts.shape, shape, x.dtype)


def _scan(b: Builder, kind: Reducer, x: Tensor, window: Window) -> Tensor | None:
    """Cumulative sum, product, …: a window as long as the axis, padded on one side."""
    if len(window.axes) != 1:
        return None
    axis = window.axes[0]
    size, pads = x.shape[axis], (window.low[axis], window.high[axis])
    plain = (window.stride[axis], window.base_dilation[axis], window.dilation[axis]) == (1, 1, 1)
    if not plain or size is None or window.size[axis] != size or pads not in ((size - 1, 0), (0, size - 1)):
        return None
    backward = pads[0] == 0
    if kind == "add" and x.dtype not in (BOOL, F16, BF16):
        place = constant(np.array(axis, np.int64))
        return b.op("CumSum", [x, place], x.shape, x.dtype, {"reverse": int(backward)})
    rounds = kind == "multiply" and x.dtype in (F16, BF16)
    return _doubling(b, kind, x, axis, size, backward) if kind in _SCANS and not rounds else None


def _doubling(b: Builder, kind: Reducer, x: Tensor, axis: int, size: int, backward: bool) -> Tensor:
    """Combine with the value 1, 2, 4, … places before (Hillis and Steele)."""
    distance = 1
    while distance < size:
        low, high = [0] * x.rank, [0] * x.rank
        (high if backward else low)[axis] = distance
        neutral = b.like(x, identity(kind, x) or 0)
        kept = b.take(x, axis, distance, size) if backward else b.take(x, axis, 0, size - distance)
        x = combined(b, kind, x, b.pad(kept, low, high, neutral))
        distance *= 2
    return x


def pool(b: Builder, kind: Reducer, x: Tensor, window: Window, *, is_mean: bool = False) -> Tensor | None:
    """MaxPool or AveragePool over up to three axes of a float tensor.

    Of ``add`` the sum, or the mean of the elements that lie in the operand.
    """
    axes = window.axes
    undilated = all(window.base_dilation[axis] == 1 for axis in axes) and min((*window.low, *window.high)) >= 0
    averages = kind == "add" and all(window.dilation[axis] == 1 for axis in axes)
    if x.dtype not in (F32, F16, BF16) or not 1 <= len(axes) <= 3 or not undilated:
        return None
    if any(window.size[axis] <= max(window.low[axis], window.high[axis]) for axis in axes):
        return None
    if kind != "maximum" and not averages:
        return None
    rest = [axis for axis in range(x.rank) if axis not in axes]
    moved = b.transpose(x, [*rest, *axes])
    spatial = tuple(_output_size(x.shape[axis], window, axis) for axis in axes)
    kernel = [window.size[axis] for axis in axes]
    pads = [each[axis] for each in (window.low, window.high) for axis in axes]
    attributes: dict[str, Attribute] = {
        "kernel_shape": kernel,
        "strides": [window.stride[axis] for axis in axes],
        **({"auto_pad": "SAME_UPPER"} if window.is_same else {"pads": pads}),
    }
    images = _as_images(b, moved, len(rest))
    if kind == "maximum":
        attributes["dilations"] = [window.dilation[axis] for axis in axes]
        pooled = b.op("MaxPool", [images], (*images.shape[:2], *spatial), x.dtype, attributes)
    else:
        count = math.prod(kernel)
        mean: dict[str, Attribute] = {**attributes, "count_include_pad": int(not is_mean)}
        pooled = b.op("AveragePool", [images], (*images.shape[:2], *spatial), x.dtype, mean)
        pooled = pooled if is_mean else b.mul(pooled, float(count))
    sizes = b.sizes([*(b.size(x, axis) for axis in rest), *(size if size is not None else -1 for size in spatial)])
    outer = tuple(x.shape[axis] for axis in rest)
    back = pooled if len(rest) == 2 else b.reshape(pooled, (*outer, *spatial), sizes)
    return b.transpose(back, [[*rest, *axes].index(axis) for axis in range(x.rank)])


def _output_size(size: int | None, window: Window, axis: int) -> int | None:
    if size is None:
        return None
    if window.is_same:
        return -(-size // window.stride[axis])
    reach = (window.size[axis] - 1) * window.dilation[axis] + 1
    whole = max(0, (size - 1) * window.base_dilation[axis] + 1) + window.low[axis] + window.high[axis]
    return max(0, (whole - reach) // window.stride[axis] + 1)


def _as_images(b: Builder, x: Tensor, outer: int) -> Tensor:
    """Exactly two axes before the pooled ones."""
    if outer == 2:
        return x
    if outer < 2:
        return b.unsqueeze(x, list(range(2 - outer)))
    spatial = x.shape[outer:]
    known = math.prod(size for size in x.shape[1:outer] if size is not None)
    count = None if None in x.shape[1:outer] else known
    shape = (x.shape[0], count, *spatial)
    if sum(size is None for size in shape) > 1:
        raise Unsupported("pooling with several dynamic axes")
    return b.reshape(x, shape)


def _by_axes(b: Builder, kind: Reducer, x: Tensor, window: Window) -> Tensor:
    """Window after window axis: gather the window into an axis of its own and reduce it."""
    x = _padded(b, x, b.like(x, identity(kind, x) or 0), window)
    for axis in window.axes:
        if window.size[axis] == 1 and window.stride[axis] == 1:
            continue
        picked = b.gather(x, _places(x, window, axis), axis)
        x = b.reduce(kind, picked, [axis + 1])
    return x


def _padded(b: Builder, x: Tensor, value: Tensor, window: Window) -> Tensor:
    between = [dilation - 1 for dilation in window.base_dilation]
    return padded(b, x, value, window.low, window.high, between)


def _places(x: Tensor, window: Window, axis: int) -> Tensor:
    """Positions [windows, elements of a window] along one axis of the padded operand."""
    size = x.shape[axis]
    if size is None:
        raise Unsupported(f"a window along the dynamic axis {axis}")
    reach = (window.size[axis] - 1) * window.dilation[axis] + 1
    count = max(0, (size - reach) // window.stride[axis] + 1)
    first = np.arange(count)[:, None] * window.stride[axis]
    return constant((first + np.arange(window.size[axis])[None, :] * window.dilation[axis]).astype(np.int64))


def _turned(window: Window) -> bool:
    """Whether XLA on CPU walks a window along its first axis innermost, as seen in its 16-bit roundings."""
    return any(stride != 1 for stride in window.stride)


def patches(b: Builder, x: Tensor, window: Window, first_axis_fastest: bool = False) -> Tensor:
    """All windows of a padded operand, flattened into a new last axis in row-major order or its opposite."""
    axes, shape = window.axes, list(x.shape)
    for axis in reversed(axes):
        x = b.gather(x, _places(x, window, axis), axis)
        shape[axis] = x.shape[axis]
    # Now each windowed axis is followed by the axis of its elements.
    outer, inner, place = [], [], 0
    for axis in range(len(shape)):
        outer.append(place)
        place += 1
        if axis in axes:
            inner.append(place)
            place += 1
    x = b.transpose(x, [*outer, *(inner[::-1] if first_axis_fastest else inner)])
    return b.reshape(x, (*shape, math.prod(window.size[axis] for axis in axes)))


def _any_reducer(
    b: Builder, block: Any, inputs: Sequence[Operand], starts: Sequence[Operand], window: Window
) -> tuple[Operand, ...]:
    """Padding is made of the start values, as StableHLO says; then a tree over each window."""
    gathered = [_windows(b, x, start, window) for x, start in zip(inputs, starts, strict=True)]
    return tree(b, block, gathered, starts, [gathered[0].rank - 1])


def _windows(b: Builder, x: Operand, start: Operand, window: Window) -> Operand:
    if isinstance(x, Complex) and isinstance(start, Complex):
        parts = [
            patches(b, _padded(b, part, first, window), window) for part, first in ((x.re, start.re), (x.im, start.im))
        ]
        return Complex(parts[0], parts[1])
    assert isinstance(x, Tensor)
    assert isinstance(start, Tensor)
    return patches(b, _padded(b, x, start, window), window, x.dtype in (F16, BF16) and _turned(window))


# --- select and scatter --------------------------------------------------------------------------


@windows.translates
def select_and_scatter(b: Builder, op: hlo.SelectAndScatterOp, x: Tensor, source: Tensor, start: Tensor) -> Tensor:
    """Add each source element to where its window's chosen element is (the gradient of pooling)."""
    combine = reducer_of(op.regions[1].blocks[0])
    if x.dtype == BOOL and combine in ("add", "or", "maximum"):
        return b.cast(_routed(b, op, b.cast(x, U8), b.cast(source, U8), b.cast(start, U8), "max"), BOOL)
    if combine != "add":
        raise Unsupported("select_and_scatter that combines with anything but addition")
    return _routed(b, op, x, source, start, "add")


def _routed(b: Builder, op: Any, x: Tensor, source: Tensor, start: Tensor, how: str) -> Tensor:
    window = window_of(op, x.rank)
    chosen, greatest = _selection(op.regions[0].blocks[0])
    sizes = static(x.shape)
    total = math.prod(sizes)
    numbers = constant(np.arange(total, dtype=np.int64).reshape(sizes))
    outside = constant(np.array(total, np.int64))
    extreme = b.like(x, lowest(x.dtype) if greatest else _negated_lowest(x))
    values = patches(b, _padded(b, x, extreme, window), window)
    places = patches(b, _padded(b, numbers, outside, window), window)
    last = values.rank - 1
    attributes = {"axis": last, "keepdims": 1, "select_last_index": int(chosen == "last")}
    name = "ArgMax" if greatest else "ArgMin"
    best = b.op(name, [values], (*values.shape[:-1], 1), I64, attributes)
    rows = b.reshape(b.take_along(b.full(places), best, last), (math.prod(static(source.shape)),))
    grown = b.broadcast_in_dim(b.like(x, 0), (total + 1,), [])
    flat = b.reshape(source, (math.prod(static(source.shape)),))
    summed = b.op("ScatterElements", [grown, rows, flat], (total + 1,), x.dtype, {"axis": 0, "reduction": how})
    result = b.reshape(b.take(summed, 0, 0, total), sizes)
    return result if start.scalar == 0 else b.add(result, start) if how == "add" else b.maximum(result, start)


def _negated_lowest(x: Tensor) -> float | int:
    return math.inf if is_float(x.dtype) else int(np.iinfo(x.dtype.numpy()).max)


def _selection(block: Any) -> tuple[str, bool]:
    """Which of equal elements is chosen, and whether the greatest or the least wins."""
    found = expressions(block)
    head = str(found[0][0]).split()
    if len(found) != 1 or head[0] != "compare" or found[0][1:] != (("arg", 0), ("arg", 1)):
        raise Unsupported("a selection that is not a comparison of the two elements")
    direction = head[1]
    if direction not in ("GE", "GT", "LE", "LT"):
        raise Unsupported(f"a selection by {direction}")
    return ("first" if direction.endswith("E") else "last"), direction.startswith("G")
