"""ONNX arithmetic, element by element, as MIL."""

from __future__ import annotations

import functools

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import known, only_float
from convertkit.targets.coreml.tensor import HELD, Tensor, held

arithmetic = Registry()


def _binary(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        return b.op(kind, x=x, y=y)

    return handler


def _unary(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor) -> Tensor:
        only_float(x, kind)
        return b.op(kind, x=x)

    return handler


def _of_any(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor) -> Tensor:
        return b.op(kind, x=x)

    return handler


def _variadic(kind: str) -> Handler:
    def handler(b: Builder, *inputs: Tensor) -> Tensor:
        if len(inputs) == 1:
            return b.op("identity", x=inputs[0])
        return functools.reduce(lambda x, y: b.op(kind, x=x, y=y), inputs)

    return handler


for _op, _kind in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul")):
    arithmetic.lowers(_op, since=14)(_binary(_kind))
for _op, _kind in (("Sum", "add"), ("Max", "maximum"), ("Min", "minimum")):
    arithmetic.lowers(_op, since=13)(_variadic(_kind))
for _op, _kind, _since in (
    ("Exp", "exp", (13,)),
    ("Sqrt", "sqrt", (13,)),
    ("Floor", "floor", (13,)),
    ("Ceil", "ceil", (13,)),
    ("Erf", "erf", (13,)),
    ("Round", "round", (11, 22)),
    ("Sin", "sin", (7, 22)),
    ("Cos", "cos", (7, 22)),
    ("Tan", "tan", (7, 22)),
    ("Asin", "asin", (7, 22)),
    ("Acos", "acos", (7, 22)),
    ("Atan", "atan", (7, 22)),
    ("Sinh", "sinh", (9, 22)),
    ("Cosh", "cosh", (9, 22)),
    ("Atanh", "atanh", (9, 22)),
):
    arithmetic.lowers(_op, since=_since)(_unary(_kind))
for _op, _kind in (("Abs", "abs"), ("Sign", "sign")):
    arithmetic.lowers(_op, since=13)(_of_any(_kind))


@arithmetic.lowers("Neg", since=13)
def neg(b: Builder, x: Tensor) -> Tensor:
    return b.op("mul", x=x, y=b.full(-1, x))


@arithmetic.lowers("Log", since=13)
def log(b: Builder, x: Tensor) -> Tensor:
    only_float(x, "log")
    return b.op("log", x=x, epsilon=b.real(0, x))


@arithmetic.lowers("Reciprocal", since=13)
def reciprocal(b: Builder, x: Tensor) -> Tensor:
    return b.op("real_div", x=b.full(1, x), y=x)


@arithmetic.lowers("Asinh", since=(9, 22))
def asinh(b: Builder, x: Tensor) -> Tensor:
    """``sign(x) * log(|x| + sqrt(x² + 1))``, as ``log1p`` of what is small beside 1 for the sake of small numbers."""
    size = b.op("abs", x=x)
    one = b.full(1, x)
    root = b.op("sqrt", x=b.op("add", x=b.op("mul", x=x, y=x), y=one))
    small = b.op("add", x=size, y=b.op("real_div", x=b.op("mul", x=x, y=x), y=b.op("add", x=one, y=root)))
    return b.op("mul", x=b.op("sign", x=x), y=_log1p(b, small))


@arithmetic.lowers("Acosh", since=(9, 22))
def acosh(b: Builder, x: Tensor) -> Tensor:
    """``log(x + sqrt(x² - 1))``."""
    one = b.full(1, x)
    over = b.op("sub", x=x, y=one)
    root = b.op("sqrt", x=b.op("mul", x=over, y=b.op("add", x=x, y=one)))
    return _log1p(b, b.op("add", x=over, y=root))


def _log1p(b: Builder, x: Tensor) -> Tensor:
    """``log(1 + x)`` by Kahan's quotient, which is right where ``1 + x`` loses the last bits of ``x``."""
    one = b.full(1, x)
    whole = b.op("add", x=x, y=one)
    lost = b.op("sub", x=whole, y=one)
    is_tiny = b.op("equal", x=lost, y=b.full(0, x))
    safe = b.select(is_tiny, one, lost)
    quotient = b.op("real_div", x=x, y=safe)
    scaled = b.op("mul", x=b.op("log", x=whole, epsilon=b.real(0, x)), y=quotient)
    return b.select(is_tiny, x, scaled)


@arithmetic.lowers("Mean", since=13)
def mean(b: Builder, *inputs: Tensor) -> Tensor:
    total = functools.reduce(lambda x, y: b.op("add", x=x, y=y), inputs)
    return b.op("mul", x=total, y=b.full(1 / len(inputs), total))


@arithmetic.lowers("Div", since=14)
def div(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Integers towards zero: MIL's ``floor_div``, and 1 more where it went below a quotient that is negative."""
    if x.is_float:
        return b.op("real_div", x=x, y=y)
    return b.op("add", x=b.op("floor_div", x=x, y=y), y=_below(b, x, y, b.op("mod", x=x, y=y)))


@arithmetic.lowers("Mod", since=(13, 28))
def mod(b: Builder, x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    """``fmod`` takes the sign of ``x``, MIL's own that of ``y``."""
    rest = b.op("mod", x=x, y=y)
    if not fmod:
        return rest
    if not x.is_float:
        return b.op("sub", x=rest, y=b.op("mul", x=y, y=_below(b, x, y, rest)))
    size = b.op("mod", x=b.op("abs", x=x), y=b.op("abs", x=y))
    return b.op("mul", x=size, y=b.op("sign", x=x))


def _below(b: Builder, x: Tensor, y: Tensor, rest: Tensor) -> Tensor:
    """1 where a quotient of integers was rounded away from zero: with a rest, and signs that differ."""
    zero = b.full(0, x)
    differ = b.op("logical_xor", x=b.op("less", x=x, y=zero), y=b.op("less", x=y, y=zero))
    return b.cast(b.op("logical_and", x=differ, y=b.op("not_equal", x=rest, y=zero)), "int32")


@arithmetic.lowers("Pow", since=15)
def pow_(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Of ``x``'s type, whatever the exponent's is."""
    if x.dtype == y.dtype:
        return b.op("mul", x=x, y=x) if _is(y, 2) else b.op("pow", x=x, y=y)
    if not x.is_float:
        raise Unsupported("a float exponent of an integer base")
    return b.op("pow", x=x, y=b.cast(y, x.dtype))


def _is(x: Tensor, value: float) -> bool:
    return x.array is not None and x.array.size == 1 and float(x.array.reshape(())) == value and x.rank == 0


@arithmetic.lowers("Clip", since=13)
def clip(b: Builder, x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """``clip`` for known bounds; else a maximum, then a minimum, the order that ONNX gives."""
    if x.is_float and _bound(low) and _bound(high):
        limits = np.finfo(x.dtype)
        least = b.real(float(limits.min) if low is None else float(known(low, "min")), x)
        most = b.real(float(limits.max) if high is None else float(known(high, "max")), x)
        if (low is not None or high is not None) and least <= most and np.isfinite([least, most]).all():
            if low is None:
                return b.op("minimum", x=x, y=most)
            return b.op("maximum", x=x, y=least) if high is None else b.op("clip", x=x, alpha=least, beta=most)
    if low is not None:
        x = b.op("maximum", x=x, y=low)
    return x if high is None else b.op("minimum", x=x, y=high)


def _bound(x: Tensor | None) -> bool:
    return x is None or x.array is not None


@arithmetic.lowers("Cast", since=13)
def cast_13(b: Builder, x: Tensor, *, to: int) -> Tensor:
    return _cast(b, x, to)


@arithmetic.lowers("Cast", since=(19, 21, 23))
def cast_19(b: Builder, x: Tensor, *, saturate: int = 1, to: int) -> Tensor:
    return _cast(b, x, to)


@arithmetic.lowers("Cast", since=(24, 25, 28))
def cast_24(b: Builder, x: Tensor, *, round_mode: str = "up", saturate: int = 1, to: int) -> Tensor:
    return _cast(b, x, to)


def _cast(b: Builder, x: Tensor, to: int) -> Tensor:
    import onnx

    name = onnx.helper.tensor_dtype_to_np_dtype(to).name if to != onnx.TensorProto.STRING else "string"
    kind = held(name)
    if kind == "bool":
        return x if x.dtype == "bool" else b.op("not_equal", x=x, y=b.full(0, x))
    return b.cast(x, kind)


@arithmetic.lowers("CastLike", since=15)
def cast_like_15(b: Builder, x: Tensor, like: Tensor) -> Tensor:
    return _as_like(b, x, like)


@arithmetic.lowers("CastLike", since=(19, 21, 23))
def cast_like_19(b: Builder, x: Tensor, like: Tensor, *, saturate: int = 1) -> Tensor:
    return _as_like(b, x, like)


@arithmetic.lowers("CastLike", since=(24, 25))
def cast_like_24(b: Builder, x: Tensor, like: Tensor, *, round_mode: str = "up", saturate: int = 1) -> Tensor:
    return _as_like(b, x, like)


def _as_like(b: Builder, x: Tensor, like: Tensor) -> Tensor:
    if like.dtype == "bool" and x.dtype != "bool":
        return b.op("not_equal", x=x, y=b.full(0, x))
    if like.dtype not in HELD.values() or like.dtype == "int32":
        raise Unsupported("CastLike to integers, whose width the value does not tell")
    return b.cast(x, like.dtype)


@arithmetic.lowers("IsNaN", since=(13, 20))
def is_nan(b: Builder, x: Tensor) -> Tensor:
    return b.op("not_equal", x=x, y=x)


@arithmetic.lowers("IsInf", since=(10, 20))
def is_inf(b: Builder, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if not (detect_negative or detect_positive):
        return b.op("less", x=b.op("mul", x=x, y=x), y=b.full(0, x))
    most = b.full(float(np.finfo(x.dtype).max), x)
    if detect_negative and detect_positive:
        return b.op("greater", x=b.op("abs", x=x), y=most)
    if detect_positive:
        return b.op("greater", x=x, y=most)
    return b.op("less", x=x, y=b.full(float(np.finfo(x.dtype).min), x))
