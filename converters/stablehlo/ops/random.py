"""``rng_bit_generator``: Threefry and Philox as XLA computes them.

Threefry-2x32: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), 20 rounds.
Philox-4x32: the same paper, 10 rounds.  Key and counter layout follow XLA's ``prng.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import dtype_of, shape_of, text
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import U32, U64, Tensor, bits, constant, static
from convertkit.errors import Unsupported

random = Handlers()

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


@random.translates
def rng_bit_generator(b: Builder, op: hlo.RngBitGeneratorOp, state: Tensor) -> tuple[Tensor, Tensor]:
    algorithm = text(op.rng_algorithm)
    shape, dtype = static(shape_of(op.results[1].type)), dtype_of(op.results[1].type)
    if state.dtype != U64:
        raise Unsupported(f"a random state of {state.dtype.name}; expected uint64")
    # XLA's CPU and GPU backends take Philox by default.
    return threefry(b, state, shape, dtype) if algorithm == "THREE_FRY" else philox(b, state, shape, dtype)


def words(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Low and high 32 bits of uint64 values."""
    return b.cast(x, U32), b.cast(_right(b, x, 32), U32)


def joined(b: Builder, low: Tensor, high: Tensor) -> Tensor:
    """uint64 from its halves."""
    shifted = b.elementwise(
        "BitShift", b.cast(high, U64), b.like(b.cast(high, U64), 32), attributes={"direction": "LEFT"}
    )
    return b.bit_or(shifted, b.cast(low, U64))


def _right(b: Builder, x: Tensor, distance: int) -> Tensor:
    return b.elementwise("BitShift", x, b.like(x, distance), attributes={"direction": "RIGHT"})


def _rotated(b: Builder, x: Tensor, distance: int) -> Tensor:
    left = b.elementwise("BitShift", x, b.like(x, distance), attributes={"direction": "LEFT"})
    return b.bit_or(left, _right(b, x, 32 - distance))


def threefry_rounds(b: Builder, key: Sequence[Tensor], counter: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Twenty rounds of Threefry-2x32 on uint32 tensors."""
    keys = [*key, b.bit_xor(b.bit_xor(key[0], key[1]), _PARITY)]
    x, y = b.add(counter[0], keys[0]), b.add(counter[1], keys[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = b.add(x, y)
            y = b.bit_xor(_rotated(b, y, distance), x)
        x = b.add(x, keys[(group + 1) % 3])
        y = b.add(b.add(y, keys[(group + 2) % 3]), group + 1)
    return x, y


def threefry(b: Builder, state: Tensor, shape: Sequence[int], dtype: ir.DataType) -> tuple[Tensor, Tensor]:
    """The state is [key, counter]; each counter value gives 64 random bits."""
    key, first = b.gather(state, 0), b.gather(state, 1)
    total = math.prod(shape)
    if bits(dtype) == 64:
        numbers = constant(np.arange(total, dtype=np.uint64))
        x, y = threefry_rounds(b, words(b, key), words(b, b.add(first, numbers)))
        values = joined(b, x, y)
        used = total
    else:
        values, used = _threefry_halves(b, key, first, shape)
        values = b.cast(values, _unsigned(dtype))
    values = b.bitcast(b.reshape(values, tuple(shape)), dtype)
    following = b.add(first, used)
    return b.concat([b.reshape(each, (1,)) for each in (key, following)], 0), values


def _threefry_halves(b: Builder, key: Tensor, first: Tensor, shape: Sequence[int]) -> tuple[Tensor, int]:
    """32-bit values: both words of a block are neighbours along the first axis of even size."""
    axis = next((i for i, size in enumerate(shape) if size % 2 == 0), None)
    if axis is None:
        axis = int(np.argmax(shape)) if len(shape) else 0
    padded = list(shape) or [1]
    padded[axis] += padded[axis] % 2
    half = list(padded)
    half[axis] //= 2
    numbers = constant(np.arange(math.prod(half), dtype=np.uint64).reshape(half))
    x, y = threefry_rounds(b, words(b, key), words(b, b.add(first, numbers)))
    pair = b.concat([b.unsqueeze(b.full(word), [axis + 1]) for word in (x, y)], axis + 1)
    values = b.reshape(pair, tuple(padded))
    return b.take(values, axis, 0, shape[axis] if len(shape) else 1), math.prod(half)


def _unsigned(dtype: ir.DataType) -> ir.DataType:
    return {8: ir.DataType.UINT8, 16: ir.DataType.UINT16, 32: U32, 64: U64}[bits(dtype)]


def philox_rounds(b: Builder, counter: Sequence[Tensor], key: Sequence[Tensor]) -> list[Tensor]:
    """Ten rounds of Philox-4x32 on uint32 tensors."""
    x, (k0, k1) = list(counter), key
    for _ in range(10):
        low0, high0 = _product(b, x[0], _PHILOX_MULTIPLIERS[0])
        low1, high1 = _product(b, x[2], _PHILOX_MULTIPLIERS[1])
        x = [b.bit_xor(b.bit_xor(high1, x[1]), k0), low1, b.bit_xor(b.bit_xor(high0, x[3]), k1), low0]
        k0, k1 = b.add(k0, _PHILOX_WEYL[0]), b.add(k1, _PHILOX_WEYL[1])
    return x


def _product(b: Builder, x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    return words(b, b.mul(b.cast(x, U64), factor))


def philox(b: Builder, state: Tensor, shape: Sequence[int], dtype: ir.DataType) -> tuple[Tensor, Tensor]:
    """The state is [key, counter low, counter high]; each 128-bit counter gives 128 random bits."""
    if state.shape not in ((2,), (3,)):
        raise Unsupported(f"a Philox state of shape {list(state.shape)}; expected [2] or [3]")
    parts_ = [b.gather(state, place) for place in range(state.shape[0] or 0)]
    # A state of two words counts in 64 bits; XLA takes the key as the upper half of the counter.
    key, low, high = parts_ if len(parts_) == 3 else (*parts_, parts_[0])
    total = math.prod(shape)
    per_block = 2 if bits(dtype) == 64 else 4
    blocks = -(-total // per_block)
    numbers = constant(np.arange(blocks, dtype=np.uint64))
    lower = b.add(low, numbers)
    upper = b.add(high, b.cast(b.less(lower, low), U64))
    x = philox_rounds(b, [*words(b, lower), *words(b, upper)], words(b, key))
    parts = [joined(b, x[0], x[1]), joined(b, x[2], x[3])] if per_block == 2 else x
    flat = b.reshape(b.concat([b.unsqueeze(b.full(part), [1]) for part in parts], 1), (blocks * per_block,))
    values = b.cast(b.take(flat, 0, 0, total), _unsigned(dtype))
    values = b.bitcast(b.reshape(values, tuple(shape)), dtype)
    next_low = b.add(low, blocks)
    next_high = b.add(high, b.cast(b.less(next_low, low), U64))
    following = (key, next_low, next_high)[: len(parts_)]
    return b.concat([b.reshape(each, (1,)) for each in following], 0), values
