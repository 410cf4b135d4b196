"""Bits of integers.  TFLite has XOR and right shifts; the rest is arithmetic that wraps around."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, dtype_named, like
from convertkit.targets.tflite.tensor import DType, Tensor

integers = Registry()


@integers.lowers("BitwiseXor", since=18)
def bitwise_xor(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return _xor(b, x, y)


@integers.lowers("BitwiseNot", since=18)
def bitwise_not(b: Builder, x: Tensor) -> Tensor:
    """XOR with all ones."""
    return _xor(b, x, b.constant(np.array(~np.zeros((), x.dtype))))


@integers.lowers("BitwiseAnd", since=18)
def bitwise_and(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return _and(b, x, y)


@integers.lowers("BitwiseOr", since=18)
def bitwise_or(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """``x | y = ~(~x & ~y)``."""
    if x.dtype == "int64":
        return _in_halves(b, bitwise_or, x, y)
    return bitwise_not(b, _and(b, bitwise_not(b, x), bitwise_not(b, y)))


@integers.lowers("BitShift", since=(11, 28))
def bit_shift(b: Builder, x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """A shift by less than 0 or by the width or more leaves what the sign extends to."""
    if x.dtype == "uint64":
        raise Unsupported("uint64 input: TFLite CAST takes none, and no kernel shifts it")
    bits = np.dtype(x.dtype).itemsize * 8
    signed = x.dtype.startswith("i")
    amount = b.cast(y, "int32") if y.dtype != "int64" else y
    outside = b.logical_or(b.less(amount, like(b, amount, 0)), b.greater_equal(amount, like(b, amount, bits)))
    amount = b.cast(b.select(outside, like(b, amount, 0), amount), "int32")
    if direction == "LEFT":
        return b.select(outside, like(b, x, 0), _left(b, x, amount, bits))
    shifted = _right(b, x, amount)
    if not signed:
        return b.select(outside, like(b, x, 0), shifted)
    (wide,) = as_accepted(b, "LESS", x)
    return b.select(outside, b.select(b.less(wide, like(b, wide, 0)), like(b, x, -1), like(b, x, 0)), shifted)


@integers.lowers("BitCast", since=26)
def bit_cast(b: Builder, x: Tensor, *, to: int) -> Tensor:
    """The same bits as a type of the same width; a bool is the byte 0 or 1."""
    dtype = dtype_named(to)
    if x.dtype == dtype:
        return x
    if x.dtype == "bool":
        return b.cast(x, dtype)
    if dtype == "bool":
        raise Unsupported(f"{x.dtype} bits as bool: TFLite has no kernel that keeps other bytes than 0 and 1")
    return b.bitcast(x, dtype)


def _in_halves(b: Builder, compute: Callable[[Builder, Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """What is computed bit by bit, of int64 as pairs of int32."""
    both = compute(b, *(b.emit("BITCAST", (each,), (*each.shape, 2), "int32") for each in (x, y)))
    return b.emit("BITCAST", (both,), both.shape[:-1], "int64")


def _xor(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype == "int64":
        return _in_halves(b, _xor, x, y)
    if x.dtype not in b.dtypes("BITWISE_XOR"):
        raise Unsupported(f"{x.dtype} input: TFLite BITWISE_XOR takes {', '.join(b.dtypes('BITWISE_XOR'))}")
    return b.bitwise_xor(x, y)


def _and(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Bit by bit: the product of equal bits, moved back to its place; the sign bit subtracts."""
    for one, other in ((x, y), (y, x)):
        if (modulus := _lowest_bits(other)) and x.dtype in b.dtypes("FLOOR_MOD"):
            return b.floor_mod(one, like(b, one, modulus))
    if x.dtype == "int64":
        return _in_halves(b, _and, x, y)
    bits = np.dtype(x.dtype).itemsize * 8
    if x.dtype not in b.dtypes("RIGHT_SHIFT"):
        raise Unsupported(f"{x.dtype} input: TFLite RIGHT_SHIFT takes {', '.join(b.dtypes('RIGHT_SHIFT'))}")
    total: Tensor | None = None
    for place in range(bits):
        both = b.mul(_bit(b, x, place), _bit(b, y, place))
        weight = (1 << place) - ((1 << 32) if place == 31 else 0)
        part = b.mul(both, like(b, both, weight))
        total = part if total is None else b.add(total, part)
    assert total is not None
    return b.cast(total, x.dtype)


def _lowest_bits(mask: Tensor) -> int:
    """2ⁿ where a mask keeps the lowest n bits, as a remainder does; 0 where it is another."""
    if mask.constant is None or np.asarray(mask.constant).size != 1:
        return 0
    number = int(np.asarray(mask.constant).reshape(())) + 1
    return number if number > 0 and number & (number - 1) == 0 and number - 1 < np.iinfo(mask.dtype).max else 0


def _bit(b: Builder, x: Tensor, place: int) -> Tensor:
    """One bit as int32."""
    shifted = b.cast(b.right_shift(x, like(b, x, place)) if place else x, "int32")
    return b.floor_mod(shifted, like(b, shifted, 2))


def _left(b: Builder, x: Tensor, amount: Tensor, bits: int) -> Tensor:
    """A product with a power of two from a table, which wraps around as the shift does."""
    table = np.array([1 << place for place in range(bits)], np.uint64)
    dtype: DType = "int64" if x.dtype in ("int64", "uint64", "uint32") else "int32"
    powers = b.constant(table.astype(dtype))
    factor = b.gather(powers, amount, 0)
    return b.cast(b.mul(b.cast(x, dtype), factor), x.dtype)


def shifted_right(b: Builder, x: Tensor, amount: int) -> Tensor:
    """``x`` shifted by a number of places below its width; the sign extends."""
    return _right(b, x, b.constant(np.array(amount, np.int32)))


def _right(b: Builder, x: Tensor, amount: Tensor) -> Tensor:
    if x.dtype == "int64":
        return _right_64(b, x, amount)
    if x.dtype not in b.dtypes("RIGHT_SHIFT"):
        raise Unsupported(f"{x.dtype} input: TFLite RIGHT_SHIFT takes {', '.join(b.dtypes('RIGHT_SHIFT'))}")
    return b.right_shift(x, b.cast(amount, x.dtype))


def _right_64(b: Builder, x: Tensor, amount: Tensor) -> Tensor:
    """Two halves of 32 bits: the low one takes in what leaves the high one."""
    halves = b.emit("BITCAST", (x,), (*x.shape, 2), "int32")
    low, high = (_half(b, halves, place) for place in (0, 1))
    far = b.greater_equal(amount, like(b, amount, 32))
    near = b.select(far, b.sub(amount, like(b, amount, 32)), amount)
    crossing = b.select(b.equal(near, like(b, near, 0)), like(b, near, 0), b.sub(like(b, near, 32), near))
    kept = b.bitcast(b.right_shift(b.bitcast(low, "uint32"), b.cast(near, "uint32")), "int32")
    entering = b.select(b.equal(near, like(b, near, 0)), like(b, near, 0), _left(b, high, crossing, 32))
    moved = b.right_shift(high, near)
    new_low = b.select(far, moved, b.bitwise_xor(kept, entering))
    new_high = b.select(far, b.right_shift(high, like(b, high, 31)), moved)
    parts = [b.expand_dims(half, half.rank) for half in (new_low, new_high)]
    joined = b.concatenation(parts, len(new_low.shape))
    return b.emit("BITCAST", (joined,), joined.shape[:-1], "int64")


def _half(b: Builder, halves: Tensor, place: int) -> Tensor:
    begin = (0,) * (halves.rank - 1) + (place,)
    part = b.slice(halves, begin, (*halves.shape[:-1], 1))
    return b.squeeze(part, (halves.rank - 1,))
