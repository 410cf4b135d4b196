"""Windows along dynamic axes, which ``jax.export`` writes as calls with sizes and padding as operands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.at_sizes import is_dynamic_window
from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import constant_of, ints, shape_of, text
from convertkit.converters.stablehlo.ops.reduce import identity
from convertkit.converters.stablehlo.ops.regions import reducer_of
from convertkit.converters.stablehlo.ops.window import Window, pool, windowed
from convertkit.converters.stablehlo.sizes import Number, equal, numbers, operator, size_of_axis
from convertkit.converters.stablehlo.tensor import BF16, BOOL, F16, I64, Operand, Tensor, constant, splat
from convertkit.errors import Unsupported

_NUMBERS = 5
"""Operands behind the inputs and starts: size, strides, base dilations, window dilations, padding."""


def dynamic_reduce_window(b: Builder, op: hlo.CustomCallOp, *operands: Tensor) -> tuple[Operand, ...]:
    """The cumulative sum along a dynamic axis, or a window of known size whose padding is dynamic."""
    call, count = op.operation, (len(operands) - _NUMBERS) // 2
    kind, x, start = _reducer(b, call), operands[0], operands[count]
    place = _cumulated(call, count)
    if place is None and count == 1 and kind is not None and (told := b.regions.at_sizes.window(call)) is not None:
        size, stride, dilation = (tuple(each) for each in zip(*told, strict=True))
        ones, zeros = (1,) * len(size), (0,) * len(size)
        window = Window(size, stride, ones, dilation, zeros, zeros)
        if start.scalar == identity(kind, x) and b.regions.at_sizes.is_same(
            call.operands[0], range(x.rank), call.operands[-1], told
        ):
            pooled = _same(b, call, x, replace(window, is_same=True))
            if pooled is not None:
                return (pooled,)
        return (windowed(b, kind, _padded(b, x, operands[-1], start), start, window),)
    if place is None or count != 1 or kind != "add" or x.dtype in (BOOL, F16, BF16):
        raise Unsupported(
            "a window whose size is known only at run time, and which is not a cumulative sum of integers or float32; "
            "export the program with that axis fixed"
        )
    axis, backward = place
    summed = b.op("CumSum", [x, constant(np.array(axis, np.int64))], x.shape, x.dtype, {"reverse": int(backward)})
    return (summed if start.scalar == 0 else b.add(summed, start),)


def _reducer(b: Builder, call: Any) -> Any:
    (called,) = call.opview.called_computations
    return reducer_of(b.regions.function(text(called)))


def _same(b: Builder, call: Any, x: Tensor, window: Window) -> Tensor | None:
    """The pool that pads by ONNX's rule; a sum whose quotient is a mean is that mean, and its count 1."""
    kind = _reducer(b, call)
    if x.dtype in (F16, BF16) and kind != "maximum":
        return None
    means = [_mean(b, each) for each in _readers(call.results[0])]
    if kind != "add" or not means or any(each is None for each in means):
        return pool(b, kind, x, window)
    if all(each is not None and each[0] == call for each in means):
        return pool(b, kind, x, window, is_mean=True)
    axes = zip(x.shape, window.stride, strict=True)
    return splat(1, tuple(None if size is None else -(-size // step) for size, step in axes), x.dtype)


def _mean(b: Builder, quotient: Any) -> tuple[Any, Any] | None:
    """The sums over windows and the elements that the same windows have, where an operator divides one by the other."""
    if quotient.name != "stablehlo.divide":
        return None
    total, count = operator(quotient.operands[0]), _counter(quotient)
    if total != "custom_call" or count is None:
        return None
    total = quotient.operands[0].owner
    if not (is_dynamic_window(total) and is_dynamic_window(count)) or len(total.operands) != _NUMBERS + 2:
        return None
    alike = list(total.operands)[1:] == list(count.operands)[1:]
    sums = _reducer(b, total) == _reducer(b, count) == "add"
    return (total, count) if alike and sums and _is_count(count) else None


def _is_count(call: Any) -> bool:
    """Whether the windows are over ones."""
    value = call.operands[0]
    if operator(value) not in ("dynamic_broadcast_in_dim", "broadcast_in_dim"):
        return False
    source = value.owner.operands[0]
    known = constant_of(source.owner.opview) if operator(source) == "constant" else None
    return isinstance(known, Tensor) and known.scalar == 1


def _counter(quotient: Any) -> Any:
    """What a divisor that is broadcast in place comes from; None for one that moves axes."""
    if len(quotient.operands) != 2:
        return None
    value = quotient.operands[1]
    if operator(value) in ("dynamic_broadcast_in_dim", "broadcast_in_dim"):
        dims = ints(value.owner.attributes["broadcast_dimensions"])
        if dims != tuple(range(len(shape_of(value.type)))):
            return None
        value = value.owner.operands[0]
    return value.owner if operator(value) else None


def _readers(value: Any) -> list[Any]:
    """The operators that read a value, those behind a broadcast of it in the broadcast's place."""
    found = []
    for use in value.uses:
        is_broadcast = use.owner.name in ("stablehlo.dynamic_broadcast_in_dim", "stablehlo.broadcast_in_dim")
        found += [each.owner for each in use.owner.results[0].uses] if is_broadcast else [use.owner]
    return found


def _padded(b: Builder, x: Tensor, amounts: Tensor, value: Tensor) -> Tensor:
    """Padding (axis, side) that only the running model knows."""
    both = b.reshape(b.transpose(b.reshape(b.cast(amounts, I64), (x.rank, 2)), [1, 0]), (2 * x.rank,))
    return b.op("Pad", [x, both, value], (None,) * x.rank, x.dtype)


def _cumulated(op: Any, count: int) -> tuple[int, bool] | None:
    """The axis along which windows reach from each element to the first (or back from the last: True)."""
    size, *steps, padding = (numbers(each) for each in list(op.operands)[2 * count :])
    if size is None or padding is None or any(step is None or set(step) != {Number(1)} for step in steps):
        return None
    pads = list(zip(padding[::2], padding[1::2], strict=True))
    axes = [axis for axis, pair in enumerate(zip(size, pads, strict=True)) if pair != (Number(1), (Number(0),) * 2)]
    if len(axes) != 1 or not equal(size[axes[0]], size_of_axis(op.operands[0], axes[0]), op.block):
        return None
    before, reach = Number(0), replace(size[axes[0]], offset=size[axes[0]].offset - 1)
    return (axes[0], pads[axes[0]] == (before, reach)) if before in pads[axes[0]] and reach in pads[axes[0]] else None
