"""Comparisons, logic, choices and casts."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, dtype_named, float_only, like
from convertkit.targets.tflite.handlers.elementwise import Binary
from convertkit.targets.tflite.tensor import DType, Tensor

comparisons = Registry()


def _comparison(code: str, method: Binary) -> Handler:
    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        return method(b, *as_accepted(b, code, x, y))

    return handler


_COMPARISONS: tuple[tuple[str, tuple[int, ...], str, Binary], ...] = (
    ("Equal", (13, 19), "EQUAL", Builder.equal),
    ("Greater", (13,), "GREATER", Builder.greater),
    ("GreaterOrEqual", (16,), "GREATER_EQUAL", Builder.greater_equal),
    ("Less", (13,), "LESS", Builder.less),
    ("LessOrEqual", (16,), "LESS_EQUAL", Builder.less_equal),
    ("And", (7,), "LOGICAL_AND", Builder.logical_and),
    ("Or", (7,), "LOGICAL_OR", Builder.logical_or),
    ("Xor", (7,), "NOT_EQUAL", Builder.not_equal),
)
for _op, _since, _code, _method in _COMPARISONS:
    comparisons.lowers(_op, since=_since)(_comparison(_code, _method))


@comparisons.lowers("Not", since=1)
def not_(b: Builder, x: Tensor) -> Tensor:
    return b.logical_not(x)


@comparisons.lowers("IsNaN", since=(13, 20))
def is_nan(b: Builder, x: Tensor) -> Tensor:
    """A NaN is the only value that differs from itself."""
    float_only(x, "IsNaN")
    return b.not_equal(x, x)


@comparisons.lowers("IsInf", since=(10, 20))
def is_inf(b: Builder, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    float_only(x, "IsInf")
    if detect_negative and detect_positive:
        return b.equal(b.abs(x), like(b, x, np.inf))
    if detect_negative or detect_positive:
        return b.equal(x, like(b, x, np.inf if detect_positive else -np.inf))
    return b.not_equal(b.zeros_like(x), b.zeros_like(x))


@comparisons.lowers("Where", since=16)
def where(b: Builder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    wide = as_accepted(b, "SELECT_V2", x, y)
    return b.cast(b.select(condition, *wide), x.dtype) if not x.is_quantized else b.select(condition, x, y)


def converted(b: Builder, x: Tensor, to: DType) -> Tensor:
    """``x`` as another type; to bool it is a comparison with zero."""
    if x.dtype == to:
        return x
    if to == "bool":
        (wide,) = as_accepted(b, "NOT_EQUAL", x)
        return b.not_equal(wide, like(b, wide, 0))
    takes = b.dtypes(f"CAST from {x.dtype}")
    if to not in takes:
        raise Unsupported(f"a cast from {x.dtype} to {to}: TFLite CAST from {x.dtype} gives {', '.join(takes)}")
    return b.cast(x, to)


def _cast(b: Builder, x: Tensor, to: int) -> Tensor:
    return converted(b, x, dtype_named(to))


@comparisons.lowers("Cast", since=13)
def cast_13(b: Builder, x: Tensor, *, to: int) -> Tensor:
    return _cast(b, x, to)


@comparisons.lowers("Cast", since=(19, 21, 23))
def cast_19(b: Builder, x: Tensor, *, saturate: int = 1, to: int) -> Tensor:
    """``saturate`` concerns float8 only, which TFLite has no tensors of."""
    return _cast(b, x, to)


@comparisons.lowers("Cast", since=(24, 25, 28))
def cast_24(b: Builder, x: Tensor, *, round_mode: str = "up", saturate: int = 1, to: int) -> Tensor:
    """``saturate`` and ``round_mode`` concern float8 only, which TFLite has no tensors of."""
    return _cast(b, x, to)


@comparisons.lowers("CastLike", since=15)
def cast_like_15(b: Builder, x: Tensor, other: Tensor) -> Tensor:
    return converted(b, x, other.dtype)


@comparisons.lowers("CastLike", since=(19, 21, 23))
def cast_like_19(b: Builder, x: Tensor, other: Tensor, *, saturate: int = 1) -> Tensor:
    return converted(b, x, other.dtype)


@comparisons.lowers("CastLike", since=(24, 25))
def cast_like_24(b: Builder, x: Tensor, other: Tensor, *, round_mode: str = "up", saturate: int = 1) -> Tensor:
    return converted(b, x, other.dtype)
