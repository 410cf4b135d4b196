"""Quotients, remainders and shifts of integers, which tf2onnx cuts towards zero or has no form of, registered with it.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from convertkit.converters.tensorflow.compat import tf_op
from convertkit.converters.tensorflow.forms import Form

_UNSIGNED = {
    np.dtype(signed): getattr(onnx.TensorProto, unsigned)
    for signed, unsigned in (("int8", "UINT8"), ("int16", "UINT32"), ("int32", "UINT32"), ("int64", "UINT64"))
}
"""What a signed integer is shifted as: ONNX Runtime has kernels of these."""


@tf_op("FloorDiv")
class FloorDiv:
    """Rounded down; ONNX's ``Div`` of integers cuts, which is one more where the signs differ and something is left."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        x, y = node.input
        quotient = f.op("Div", x, y)
        kind = np.dtype(f.numpy()).kind
        if kind == "f":
            f.end(f.op("Floor", quotient))
        elif kind == "u":
            f.end(quotient)
        else:
            zero = f.like(0)
            apart = f.op("Xor", f.op("Less", x, zero), f.op("Less", y, zero))
            left = f.op("Not", f.op("Equal", f.op("Mod", x, y), zero))
            f.end(f.op("Sub", quotient, f.cast(f.op("And", apart, left), f.dtype())))


@tf_op("FloorMod")
class FloorMod:
    """The remainder with the divisor's sign, which ``Mod`` gives of integers."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        x, y = node.input
        if np.dtype(f.numpy()).kind != "f":
            f.end(f.op("Mod", x, y))
            return
        zero, rest = f.like(0), f.op("Mod", x, y, fmod=1)
        apart = f.op("Xor", f.op("Less", rest, zero), f.op("Less", y, zero))
        turned = f.op("And", apart, f.op("Not", f.op("Equal", rest, zero)))
        f.end(f.op("Where", turned, f.op("Add", rest, y), rest))


@tf_op(["LeftShift", "RightShift"])
class Shift:
    """By 0 to all bits but one, whatever is asked for; to the right, bits of the sign come in."""

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        x, count = node.input
        numpy, left = np.dtype(f.numpy()), node.type == "LeftShift"
        last = f.like(8 * numpy.itemsize - 1)
        wide = _UNSIGNED.get(numpy, f.dtype() if numpy.itemsize != 2 else onnx.TensorProto.UINT32)
        count = f.cast(f.op("Min", f.op("Max", count, f.like(0)), last), wide)

        def shifted(value: str) -> str:
            way = "LEFT" if left else "RIGHT"
            return f.cast(f.op("BitShift", f.cast(value, wide), count, direction=way), f.dtype())

        if left or numpy.kind == "u":
            f.end(shifted(x))
            return
        below = f.op("Less", x, f.like(0))
        size = shifted(f.op("Where", below, f.op("BitwiseNot", x), x))
        f.end(f.op("Where", below, f.op("BitwiseNot", size), size))
