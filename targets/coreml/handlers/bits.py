"""ONNX operators on the bits of integers, as arithmetic of int32: MIL has none of them.

A package holds integers of every type as int32 of the same value: its one sign bit stands for all that it extends to.
"""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.coreml.builder import MOST_DIMENSIONS, Builder
from convertkit.targets.coreml.tensor import Tensor, as_mil, constant

bits = Registry()

_PLACES = 31
"""Of int32, without its sign."""
_POWERS = 1 << np.arange(_PLACES + 1, dtype=np.int64)
_WEIGHTS = np.where(np.arange(_PLACES + 1) == _PLACES, -_POWERS, _POWERS).astype(np.int32)


@bits.lowers("BitwiseNot", since=18)
def bitwise_not(b: Builder, x: Tensor) -> Tensor:
    """``-1 - x``, which is held to the type's range behind it."""
    return b.op("sub", x=b.full(-1, x), y=x)


def _joined(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        """Bit by bit along a new last axis, added up with what each place counts."""
        for one, other in ((x, y), (y, x)):
            if kind == "minimum" and (modulus := _lowest_bits(other)) and one.rank >= other.rank:
                return b.op("mod", x=one, y=b.full(modulus, one))
        found = b.op(kind, x=_bits(b, x), y=_bits(b, y))
        counted = b.op("mul", x=b.cast(found, "int32"), y=constant(_WEIGHTS))
        return b.op("reduce_sum", x=counted, axes=(-1,), keep_dims=False)

    return handler


for _op, _kind in (("BitwiseAnd", "minimum"), ("BitwiseOr", "maximum"), ("BitwiseXor", "not_equal")):
    bits.lowers(_op, since=18)(_joined(_kind))


def _lowest_bits(mask: Tensor) -> int:
    """2ⁿ where a mask keeps the lowest n bits, as a remainder does; 0 where it is another."""
    if mask.array is None or mask.array.size != 1:
        return 0
    number = int(mask.array.reshape(())) + 1
    return number if 0 < number < 1 << _PLACES and number & (number - 1) == 0 else 0


def _bits(b: Builder, x: Tensor) -> Tensor:
    """0 and 1 along a new last axis: the places of an integer and, last, whether it is negative."""
    if x.array is not None:
        as_mil(x.array)  # refuses what has more bits
        return constant(((x.array[..., None].astype(np.int64) >> np.arange(_PLACES + 1)) & 1).astype(np.int32))
    if x.rank == MOST_DIMENSIONS:
        raise Unsupported(f"bits of a tensor with {x.rank} dimensions: they take one more, and Core ML has {x.rank}")
    deep = b.op("expand_dims", x=x, axes=(x.rank,))
    shifted = b.op("floor_div", x=deep, y=constant(_POWERS[:_PLACES].astype(np.int32)))
    negative = b.cast(b.op("less", x=deep, y=b.full(0, x)), "int32")
    return b.concat([b.op("mod", x=shifted, y=b.full(2, x)), negative], x.rank)


@bits.lowers("BitShift", since=(11, 28))
def bit_shift(b: Builder, x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """A product with a power of two, or its quotient rounded down, as far as int32 has one.

    A shift by less than 0, or by the width or more, leaves what the sign extends to.
    """
    zero = b.full(0, y)
    most = _PLACES if direction == "LEFT" else _PLACES - 1
    inside = b.op("logical_and", x=b.op("greater_equal", x=y, y=zero), y=b.op("less_equal", x=y, y=b.full(most, y)))
    amount = b.select(inside, y, zero)
    table = constant(_POWERS.astype(np.uint32).view(np.int32))
    power = b.op("gather", x=table, indices=amount, axis=np.int32(0))
    if direction == "LEFT":
        return b.select(inside, b.op("mul", x=x, y=power), zero)
    sign = b.op("mul", x=b.cast(b.op("less", x=x, y=b.full(0, x)), "int32"), y=b.full(-1, x))
    return b.select(inside, b.op("floor_div", x=x, y=power), sign)
