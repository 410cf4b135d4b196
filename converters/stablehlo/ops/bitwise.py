"""Logic, shifts and bit counts on integers."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import BOOL, U32, U64, UNSIGNED, Tensor, bits

bitwise = Handlers()


@bitwise.pointwise
def logical_and(b: Builder, op: hlo.AndOp, x: Tensor, y: Tensor) -> Tensor:
    return b.logical_and(x, y) if x.dtype == BOOL else b.bit_and(x, y)


@bitwise.pointwise
def logical_or(b: Builder, op: hlo.OrOp, x: Tensor, y: Tensor) -> Tensor:
    return b.logical_or(x, y) if x.dtype == BOOL else b.bit_or(x, y)


@bitwise.pointwise
def logical_xor(b: Builder, op: hlo.XorOp, x: Tensor, y: Tensor) -> Tensor:
    return b.elementwise("Xor", x, y) if x.dtype == BOOL else b.bit_xor(x, y)


@bitwise.pointwise
def shift_left(b: Builder, op: hlo.ShiftLeftOp, x: Tensor, amount: Tensor) -> Tensor:
    return shifted(b, x, amount, "LEFT")


@bitwise.pointwise
def shift_right_logical(b: Builder, op: hlo.ShiftRightLogicalOp, x: Tensor, amount: Tensor) -> Tensor:
    return shifted(b, x, amount, "RIGHT")


@bitwise.pointwise
def shift_right_arithmetic(b: Builder, op: hlo.ShiftRightArithmeticOp, x: Tensor, amount: Tensor) -> Tensor:
    """Fill with the sign bit; amounts of the width and more give the sign everywhere.

    An unsigned operand is read as signed, as in XLA.
    """
    top = 1 << (bits(x.dtype) - 1)
    word = _word(x)
    wide = b.cast(_as_unsigned(b, x), word)
    negative = b.logical_not(b.equal(b.bit_and(wide, top), 0))
    inverted = b.bit_and(b.bit_not(wide), 2 * top - 1)
    plain = _shift(b, b.where(negative, inverted, wide), b.cast(_as_unsigned(b, amount), word), bits(x.dtype), "RIGHT")
    return b.cast(b.where(negative, b.bit_not(plain), plain), x.dtype)


def shifted(b: Builder, x: Tensor, amount: Tensor, direction: Literal["LEFT", "RIGHT"]) -> Tensor:
    """Logical shift; amounts of the width and more give 0."""
    word = _word(x)
    wide = b.cast(_as_unsigned(b, x), word)
    places = b.cast(_as_unsigned(b, amount), word)
    return b.cast(_shift(b, wide, places, bits(x.dtype), direction), x.dtype)


def _shift(b: Builder, x: Tensor, amount: Tensor, width: int, direction: Literal["LEFT", "RIGHT"]) -> Tensor:
    known = amount.scalar
    if known is not None and 0 <= known < width:
        return b.elementwise("BitShift", x, amount, attributes={"direction": direction})
    # The kernel's shift by the word's width or more is undefined behaviour.
    inside = b.less(amount, width)
    safe = b.where(inside, amount, b.like(amount, 0))
    moved = b.elementwise("BitShift", x, safe, attributes={"direction": direction})
    return b.where(inside, moved, b.like(x, 0))


def _word(x: Tensor) -> ir.DataType:
    return U64 if bits(x.dtype) == 64 else U32


def _as_unsigned(b: Builder, x: Tensor) -> Tensor:
    """The same bits, so that widening fills with zeros."""
    if x.dtype in UNSIGNED:
        return x
    return b.cast(x, UNSIGNED[(8, 16, 32, 64).index(bits(x.dtype))])


@bitwise.pointwise
def population_count(b: Builder, op: hlo.PopulationCountOp, x: Tensor) -> Tensor:
    return b.cast(ones(b, b.cast(_as_unsigned(b, x), U64)), x.dtype)


@bitwise.pointwise
def count_leading_zeros(b: Builder, op: hlo.ClzOp, x: Tensor) -> Tensor:
    """Smear the highest one downwards; what is left above it is the count."""
    word = b.cast(_as_unsigned(b, x), U64)
    width = bits(x.dtype)
    distance = 1
    while distance < width:
        word = b.bit_or(word, _right(b, word, distance))
        distance *= 2
    return b.cast(b.sub(b.like(word, width), ones(b, word)), x.dtype)


def ones(b: Builder, word: Tensor) -> Tensor:
    """Bits that are set in each uint64, counted in parallel in fields of 2, 4, 8, … bits."""
    word = b.sub(word, b.bit_and(_right(b, word, 1), 0x5555555555555555))
    pairs = 0x3333333333333333
    word = b.add(b.bit_and(word, pairs), b.bit_and(_right(b, word, 2), pairs))
    word = b.bit_and(b.add(word, _right(b, word, 4)), 0x0F0F0F0F0F0F0F0F)
    for distance in (8, 16, 32):
        word = b.add(word, _right(b, word, distance))
    return b.bit_and(word, 0x7F)


def _right(b: Builder, word: Tensor, distance: int) -> Tensor:
    return b.elementwise("BitShift", word, b.like(word, distance), attributes={"direction": "RIGHT"})
