"""Division.  TFLite has none of int64, whose quotients come from int32 or from exact arithmetic that wraps around."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import like
from convertkit.targets.tflite.handlers.elementwise import computed
from convertkit.targets.tflite.handlers.integers import shifted_right
from convertkit.targets.tflite.tensor import Tensor

division = Registry()

_MOVES = ("RESHAPE", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "EXPAND_DIMS", "SQUEEZE", "BROADCAST_TO")
_POSITIONS = ("ARG_MAX", "ARG_MIN", "SHAPE")
_NARROW = ("int8", "uint8", "int16", "uint16", "int32", "bool")


@division.lowers("Div", since=14)
def div(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Integers are cut towards zero."""
    if x.dtype == "uint32":
        return b.cast(div(b, b.cast(x, "int64"), b.cast(y, "int64")), "uint32")
    if x.dtype != "int64":
        return computed(b, "DIV", b.div, x, y)
    if y.constant is None:
        return _estimated_quotient(b, x, y)
    divisors = np.asarray(y.constant)
    if (divisors == 0).any():
        raise Unsupported("an integer division by 0")
    if _fits_int32(b, x) and _divides_int32(divisors):
        return b.cast(b.div(b.cast(x, "int32"), b.cast(y, "int32")), "int64")
    if divisors.size != 1:
        return _estimated_quotient(b, x, y)
    return _exact_quotient(b, x, int(divisors.reshape(())))


def _divides_int32(divisors: Array) -> bool:
    """Whether the divisors are of 32 bits, and none is -1, by which the least int32 has no quotient."""
    return bool((np.abs(divisors) < 1 << 31).all() and (divisors != -1).all())


def _fits_int32(b: Builder, x: Tensor) -> bool:
    """Whether ``x`` holds positions, remainders or what were int32, however they were moved."""
    producer = b.producer(x)
    while producer is not None and producer.code in _MOVES and producer.inputs[0] is not None:
        x = producer.inputs[0]
        producer = b.producer(x)
    if producer is None:
        return x.dtype in _NARROW
    if producer.code == "CAST" and producer.inputs[0] is not None:
        return producer.inputs[0].dtype in _NARROW
    modulus = producer.inputs[1] if producer.code == "FLOOR_MOD" else None
    if modulus is not None and modulus.constant is not None:
        return bool((np.abs(modulus.constant) < 1 << 31).all())
    return producer.code in _POSITIONS


def _estimated_quotient(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """What the remainder leaves is a multiple of ``y``: float32 estimates how many times, again and again.

    An estimate is off by 2^-22 of itself, so the third would be exact; the first is taken smaller by 2^-10, so that no
    estimate reaches 2^63, and the fourth is.
    """
    rest = b.floor_mod(x, y)
    none, zero = like(b, rest, 0), like(b, x, 0)
    opposite = b.not_equal(b.less(x, zero), b.less(y, like(b, y, 0)))
    rest = b.select(b.logical_and(opposite, b.not_equal(rest, none)), b.sub(rest, y), rest)
    left, divisor = b.sub(x, rest), b.cast(y, "float32")
    quotient = None
    for part in (1 - 2.0**-10, 1.0, 1.0, 1.0):
        estimate = b.div(b.cast(left, "float32"), divisor)
        estimate = estimate if part == 1.0 else b.mul(estimate, like(b, estimate, part))
        times = b.cast(b.round(estimate), "int64")
        left = b.sub(left, b.mul(times, y))
        quotient = times if quotient is None else b.add(quotient, times)
    assert quotient is not None
    return quotient


def _exact_quotient(b: Builder, x: Tensor, divisor: int) -> Tensor:
    """A multiple of ``odd << zeros`` is shifted, then multiplied by the inverse of ``odd`` modulo 2^64."""
    size = abs(divisor)
    zeros = (size & -size).bit_length() - 1
    rest = b.floor_mod(x, like(b, x, size))
    towards_zero = b.logical_and(b.less(x, like(b, x, 0)), b.not_equal(rest, like(b, x, 0)))
    rest = b.select(towards_zero, b.sub(rest, like(b, x, size)), rest)
    quotient = shifted_right(b, b.sub(x, rest), zeros) if zeros else b.sub(x, rest)
    inverse = np.array(pow(size >> zeros, -1, 1 << 64), np.uint64).astype(np.int64)
    quotient = b.mul(quotient, b.constant(inverse)) if size >> zeros > 1 else quotient
    return b.neg(quotient) if divisor < 0 else quotient
