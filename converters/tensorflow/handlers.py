"""Operators that tf2onnx lacks, registered with it.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
Each class decomposes one operator into ONNX; the name of its method is the first opset it holds for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from convertkit.converters.tensorflow.compat import Select, numpy_type, tf_op
from convertkit.converters.tensorflow.forms import Form


def _dtype(ctx: Any, node: Any) -> Any:
    return numpy_type(ctx.get_dtype(node.input[0]))


def _replace(ctx: Any, node: Any, last: str, inputs: list[str]) -> None:
    """End the decomposition of ``node``: its outputs now come from one ``last`` node."""
    shapes, dtypes = node.output_shapes, node.output_dtypes
    ctx.remove_node(node.name)
    ctx.make_node(last, inputs, name=node.name, outputs=node.output, shapes=shapes, dtypes=dtypes)


def _constant(ctx: Any, node: Any, value: float) -> str:
    name: str = ctx.make_const(f"{node.name}_c{value:g}", np.array(value, _dtype(ctx, node))).output[0]
    return name


def _where_nonzero(ctx: Any, node: Any, test: str, value: str) -> None:
    """``value`` where ``test`` is not zero, else zero."""
    zero = _constant(ctx, node, 0)
    is_zero = ctx.make_node("Equal", [test, zero]).output[0]
    _replace(ctx, node, "Where", [is_zero, zero, value])


@tf_op("Erfc")
class Erfc:
    """1 - erf(x), in which exact GELU is written."""

    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        one = _constant(ctx, node, 1)
        _replace(ctx, node, "Sub", [one, ctx.make_node("Erf", [node.input[0]]).output[0]])


@tf_op("Expm1")
class Expm1:
    """``tanh(x / 2) (exp(x) + 1)``, which loses no digits near 0."""

    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        x = node.input[0]
        half = ctx.make_node("Mul", [x, _constant(ctx, node, 0.5)]).output[0]
        plus = ctx.make_node("Add", [ctx.make_node("Exp", [x]).output[0], _constant(ctx, node, 1)]).output[0]
        _replace(ctx, node, "Mul", [ctx.make_node("Tanh", [half]).output[0], plus])


_SERIES_END = 0.3
_SERIES = tuple(2 / (2 * power + 1) for power in range(4, -1, -1))


@tf_op("Log1p")
class Log1p:
    """``2 s (1 + s²/3 + …)`` with ``s = x / (2 + x)`` near 0, where ``log(1 + x)`` loses digits.

    The last coefficient is 2.  The terms left out are below 3e-9 up to |x| = 0.3.
    """

    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        x = node.input[0]

        def op(kind: str, *inputs: str) -> str:
            return str(ctx.make_node(kind, list(inputs)).output[0])

        first, *rest = (_constant(ctx, node, coefficient) for coefficient in _SERIES)
        s = op("Div", x, op("Add", x, rest[-1]))
        square, series = op("Mul", s, s), first
        for coefficient in rest:
            series = op("Add", op("Mul", series, square), coefficient)
        near = op("Less", op("Abs", x), _constant(ctx, node, _SERIES_END))
        far = op("Log", op("Add", x, _constant(ctx, node, 1)))
        _replace(ctx, node, "Where", [near, op("Mul", s, series), far])


@tf_op("Atan2")
class Atan2:
    """The angle of the point (x, y), signed zeros as in C; tf2onnx's own form asks for ``Sign``, which loses them.

    Factors turn the signs, because ONNX Runtime's Where makes 0.0 of -0.0.  Of two forms that of the later opset
    counts, and tf2onnx's is of 9.
    """

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **_: Any) -> None:
        def op(kind: str, *inputs: str) -> str:
            return str(ctx.make_node(kind, list(inputs)).output[0])

        zero, one, less, half = (_constant(ctx, node, value) for value in (0, 1, -1, np.pi / 2))
        whole = _constant(ctx, node, np.pi)

        def is_negative(value: str) -> str:
            return op("Or", op("Less", value, zero), op("Less", op("Div", one, value), zero))

        y, x = node.input
        rise, run = op("Abs", y), op("Abs", x)
        big, small = op("Max", rise, run), op("Min", rise, run)
        even = op("Where", op("Equal", big, zero), zero, one)
        turn = op("Atan", op("Where", op("Equal", rise, run), even, op("Div", small, big)))
        turn = op("Where", op("Greater", rise, run), op("Sub", half, turn), turn)
        turn = op("Where", is_negative(x), op("Sub", whole, turn), turn)
        _replace(ctx, node, "Mul", [turn, op("Where", is_negative(y), less, one)])


@tf_op(["IsInf", "IsFinite"])
class IsInf:
    """In float32 of halves, which ``IsInf`` does not take."""

    @classmethod
    def version_10(cls, ctx: Any, node: Any, **_: Any) -> None:
        x, dtype = node.input[0], ctx.get_dtype(node.input[0])
        wide = onnx.TensorProto.DOUBLE if dtype == onnx.TensorProto.DOUBLE else onnx.TensorProto.FLOAT
        x = x if dtype == wide else ctx.make_node("Cast", [x], attr={"to": wide}).output[0]
        if node.type == "IsInf":
            _replace(ctx, node, "IsInf", [x])
            return
        endless, none = (ctx.make_node(kind, [x]).output[0] for kind in ("IsInf", "IsNaN"))
        _replace(ctx, node, "Not", [ctx.make_node("Or", [endless, none]).output[0]])


@tf_op("ShapeN")
class ShapeN:
    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        dtype = int(ctx.get_dtype(node.output[0]))
        f.end(*(f.cast(f.op("Shape", each), dtype) for each in node.input))


@tf_op("Inv")
class Inv:
    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        _replace(ctx, node, "Reciprocal", [node.input[0]])


@tf_op("AccumulateNV2")
class AccumulateN:
    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        _replace(ctx, node, "Sum", list(node.input))


@tf_op("MulNoNan")
class MulNoNan:
    """x * y, zero where y is, even for infinite x."""

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **_: Any) -> None:
        x, y = node.input
        _where_nonzero(ctx, node, y, ctx.make_node("Mul", [x, y]).output[0])


@tf_op("Xlogy")
class Xlogy:
    """x * log(y), zero where x is."""

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **_: Any) -> None:
        x, y = node.input
        _where_nonzero(ctx, node, x, ctx.make_node("Mul", [x, ctx.make_node("Log", [y]).output[0]]).output[0])


@tf_op("Xdivy")
class Xdivy:
    """x / y, zero where x is."""

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **_: Any) -> None:
        x, y = node.input
        _where_nonzero(ctx, node, x, ctx.make_node("Div", [x, y]).output[0])


@tf_op("L2Loss")
class L2Loss:
    """Half the sum of squares."""

    @classmethod
    def version_9(cls, ctx: Any, node: Any, **_: Any) -> None:
        total = ctx.make_node("ReduceSumSquare", [node.input[0]], attr={"keepdims": 0}).output[0]
        _replace(ctx, node, "Mul", [total, _constant(ctx, node, 0.5)])


@tf_op("TruncateMod")
class TruncateMod:
    """The remainder with the sign of the dividend."""

    @classmethod
    def version_10(cls, ctx: Any, node: Any, **_: Any) -> None:
        shapes, dtypes = node.output_shapes, node.output_dtypes
        inputs, outputs = list(node.input), node.output
        ctx.remove_node(node.name)
        ctx.make_node("Mod", inputs, attr={"fmod": 1}, outputs=outputs, shapes=shapes, dtypes=dtypes)


@tf_op(["Select", "SelectV2"])
class Choose(Select):  # type: ignore[misc]  # tf2onnx has no types
    """``Where``, which forgets what was not chosen.

    tf2onnx multiplies by 0 and 1 and adds, by which an infinity or NaN that was not chosen comes through:
    ``tf.where(x > 0, tf.math.log(x), 0.0)``.
    """

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        node.set_attr("handles_nan", True)
        cls.version_9(ctx, node, **how)
