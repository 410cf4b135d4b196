"""Elementwise arithmetic, comparisons, logic and changes of element type.

Source: TFLite reference kernels, ``tensorflow/lite/kernels/internal/reference``.
"""

from __future__ import annotations

import numpy as np

from convertkit.converters.tflite.activations import fused
from convertkit.converters.tflite.builder import QUANTIZED, Builder, Tensor, numpy_dtype, onnx_dtype
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

arithmetic = Registry()

_INT32 = int(onnx_dtype("int32"))


@arithmetic.reads("ADD", "AddOptions")
def add(b: Builder, x: Tensor, y: Tensor, *, fused_activation_function: int) -> Tensor:
    return fused(b, b.map("Add", [x, y]), fused_activation_function)


@arithmetic.reads("SUB", "SubOptions")
def sub(b: Builder, x: Tensor, y: Tensor, *, fused_activation_function: int) -> Tensor:
    return fused(b, b.map("Sub", [x, y]), fused_activation_function)


@arithmetic.reads("MUL", "MulOptions")
def mul(b: Builder, x: Tensor, y: Tensor, *, fused_activation_function: int) -> Tensor:
    return fused(b, b.map("Mul", [x, y]), fused_activation_function)


@arithmetic.reads("DIV", "DivOptions")
def div(b: Builder, x: Tensor, y: Tensor, *, fused_activation_function: int) -> Tensor:
    return fused(b, b.map("Div", [x, y]), fused_activation_function)


@arithmetic.reads("ADD_N")
def add_n(b: Builder, *xs: Tensor) -> Tensor:
    return b.map("Sum", xs)


@arithmetic.reads("MAXIMUM", moves=True)
def maximum(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.map("Max", [x, y])


@arithmetic.reads("MINIMUM", moves=True)
def minimum(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.map("Min", [x, y])


@arithmetic.reads("POW")
def power(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.map("Pow", [x, y])


@arithmetic.reads("SQUARED_DIFFERENCE")
def squared_difference(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return square(b, b.map("Sub", [x, y]))


@arithmetic.reads("SQUARE")
def square(b: Builder, x: Tensor) -> Tensor:
    return b.map("Mul", [x, x])


@arithmetic.reads("RSQRT")
def rsqrt(b: Builder, x: Tensor) -> Tensor:
    return b.map("Reciprocal", [b.map("Sqrt", [x])])


@arithmetic.reads("FLOOR_DIV")
def floor_div(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Toward minus infinity; ONNX's integer Div truncates, so the remainder is taken off first."""
    if "float" in x.dtype:
        return b.map("Floor", [b.map("Div", [x, y])])
    return b.map("Div", [b.map("Sub", [x, b.map("Mod", [x, y])]), y])


@arithmetic.reads("FLOOR_MOD")
def floor_mod(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The remainder with the divisor's sign; ONNX's float Mod has the dividend's."""
    if "float" not in x.dtype:
        return b.map("Mod", [x, y])
    rest = b.map("Mod", [x, y], {"fmod": 1})
    zero = b.scalar(0, x)
    negative = [b.map("Less", [each, zero], dtype="bool") for each in (y, rest)]
    other_sign = b.map("Xor", negative)
    nonzero = b.map("Not", [b.map("Equal", [rest, zero], dtype="bool")])
    return b.map("Where", [b.map("And", [other_sign, nonzero]), b.map("Add", [rest, y]), rest], dtype=x.dtype)


@arithmetic.reads("ATAN2")
def atan2(b: Builder, y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y), signed zeros and infinities as in C's ``atan2``."""
    one, zero, pi, quarter = (b.scalar(number, x) for number in (1, 0, np.pi, np.pi / 2))
    ay, ax = b.map("Abs", [y]), b.map("Abs", [x])
    steep = b.map("Greater", [ay, ax], dtype="bool")
    big, small = b.map("Where", [steep, ay, ax], dtype=x.dtype), b.map("Where", [steep, ax, ay], dtype=x.dtype)
    even = b.map("Where", [b.map("Equal", [big, zero], dtype="bool"), zero, one], dtype=x.dtype)
    same = b.map("Equal", [ay, ax], dtype="bool")
    turn = b.map("Atan", [b.map("Where", [same, even, b.map("Div", [small, big])], dtype=x.dtype)])
    turn = b.map("Where", [steep, b.map("Sub", [quarter, turn]), turn], dtype=x.dtype)
    turn = b.map("Where", [_sign_bit(b, x), b.map("Sub", [pi, turn]), turn], dtype=x.dtype)
    unit = b.map("Where", [_sign_bit(b, y), b.scalar(-1, x), one], dtype=x.dtype)
    return b.map("Mul", [turn, unit])


def _sign_bit(b: Builder, x: Tensor) -> Tensor:
    """Whether a float is negative, minus zero included: the reciprocal of that is negative."""
    zero = b.scalar(0, x)
    below = b.map("Less", [b.map("Reciprocal", [x]), zero], dtype="bool")
    least = b.map("And", [b.map("Equal", [x, zero], dtype="bool"), below], dtype="bool")
    return b.map("Or", [b.map("Less", [x, zero], dtype="bool"), least], dtype="bool")


@arithmetic.reads("RIGHT_SHIFT")
def right_shift(b: Builder, x: Tensor, places: Tensor) -> Tensor:
    """The sign stays: a division by a power of two that rounds down; ONNX shifts unsigned integers only."""
    if x.dtype.startswith("u"):
        return b.map("BitShift", [x, places], {"direction": "RIGHT"})
    value = b.cast(x, "int64")
    power = b.map("Pow", [b.scalar(2, value), b.cast(places, "int64")], dtype="int64")
    return b.cast(floor_div(b, value, power), x.dtype)


@arithmetic.reads("BUCKETIZE", "BucketizeOptions")
def bucketize(b: Builder, x: Tensor, *, boundaries: tuple[float, ...]) -> Tensor:
    """How many boundaries are at most ``x``."""
    ends = b.constant(np.asarray(boundaries, np.float32))
    value = b.op("Unsqueeze", [b.cast(x, "float32"), b.constant([-1])])
    reached = b.op("Cast", [b.op("GreaterOrEqual", [value, ends], dtype="bool")], {"to": _INT32}, dtype="int32")
    return b.op("ReduceSum", [reached, b.constant([-1])], {"keepdims": 0})


@arithmetic.reads("ZEROS_LIKE")
def zeros_like(b: Builder, x: Tensor) -> Tensor:
    zero = b.scalar(0, x)
    return b.op("Expand", [zero, b.op("Shape", [x], dtype="int64")], dtype=x.dtype)


@arithmetic.reads("BITWISE_XOR")
def bitwise_xor(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.map("BitwiseXor", [x, y])


def _unary(builtin: str, onnx: str) -> None:
    def read(b: Builder, x: Tensor) -> Tensor:
        return b.map(onnx, [x])

    arithmetic.reads(builtin)(read)


def _binary(builtin: str, onnx: str, negated: bool = False) -> None:
    def read(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        result = b.map(onnx, [x, y], dtype="bool")
        return b.map("Not", [result]) if negated else result

    arithmetic.reads(builtin)(read)


for _builtin in ("ABS", "NEG", "EXP", "LOG", "SQRT", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "SIGN"):
    _unary(_builtin, _builtin.capitalize())

_unary("LOGICAL_NOT", "Not")
_binary("LOGICAL_AND", "And")
_binary("LOGICAL_OR", "Or")
_binary("EQUAL", "Equal")
_binary("NOT_EQUAL", "Equal", negated=True)
_binary("LESS", "Less")
_binary("LESS_EQUAL", "LessOrEqual")
_binary("GREATER", "Greater")
_binary("GREATER_EQUAL", "GreaterOrEqual")


@arithmetic.reads("CAST", "CastOptions", stored=True)
def cast(b: Builder, x: Tensor, *, in_data_type: int, out_data_type: int) -> Tensor:
    """The stored numbers as another type; the tensors say which, old files leave the options empty."""
    target = b.results[0].dtype
    if b.results[0].quantization is not None and target in QUANTIZED:
        raise Unsupported("a cast to a quantized tensor")
    return b.cast(x, target)


@arithmetic.reads("QUANTIZE")
def quantize(b: Builder, x: Tensor) -> Tensor:
    """The importer quantizes every result as the file declares it, so nothing is left to do."""
    return x


@arithmetic.reads("DEQUANTIZE")
def dequantize(b: Builder, x: Tensor) -> Tensor:
    """The importer dequantizes every input; what is float16 only changes its type."""
    if numpy_dtype(x.dtype).kind in "iu":
        raise Unsupported(f"{x.dtype} input without quantization parameters")
    return b.cast(x, b.results[0].dtype)


@arithmetic.reads("FAKE_QUANT", "FakeQuantOptions")
def fake_quant(b: Builder, x: Tensor, *, min: float, max: float, num_bits: int, narrow_range: bool) -> Tensor:
    """Clamped to the range moved onto the grid of integers, and rounded there, a half upwards."""
    low, high = float(narrow_range), float(2**num_bits - 1)
    if not min < max or not 2 <= num_bits <= 16:
        raise SourceError(f"simulated quantization from {min} to {max} with {num_bits} bits")
    scale = np.float32((max - min) / (high - low))
    point = np.clip(np.floor(low - min / scale + 0.5), low, high)
    bottom, top = np.float32((low - point) * scale), np.float32((high - point) * scale)
    within = b.map("Clip", [x, b.scalar(float(bottom), x), b.scalar(float(top), x)])
    steps = b.map("Div", [b.map("Sub", [within, b.scalar(float(bottom), x)]), b.scalar(float(scale), x)])
    whole = b.map("Floor", [b.map("Add", [steps, b.scalar(0.5, x)])])
    return b.map("Add", [b.map("Mul", [whole, b.scalar(float(scale), x)]), b.scalar(float(bottom), x)])
