"""Arithmetic, element by element.

Integers that a kernel does not take are computed in a wider type: the cast back wraps around, as ONNX's
own arithmetic does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, constant_of, erf, float_only, like
from convertkit.targets.tflite.tensor import Tensor

elementwise = Registry()

Binary = Callable[[Builder, Tensor, Tensor], Tensor]
Unary = Callable[[Builder, Tensor], Tensor]


def computed(b: Builder, code: str, compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """``compute`` in a type that the kernel takes, as the type of the operands."""
    if any(tensor.is_quantized for tensor in tensors):
        return compute(*tensors)
    result = compute(*as_accepted(b, code, *tensors))
    return b.cast(result, tensors[0].dtype)


def binary(code: str, method: Binary) -> Handler:
    """A handler of two inputs."""

    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        return computed(b, code, functools.partial(method, b), x, y)

    return handler


def unary(code: str, method: Unary) -> Handler:
    """A handler of one input."""

    def handler(b: Builder, x: Tensor) -> Tensor:
        return computed(b, code, functools.partial(method, b), x)

    return handler


def variadic(code: str, method: Binary) -> Handler:
    """A handler that folds any number of inputs from the left."""

    def handler(b: Builder, *inputs: Tensor) -> Tensor:
        return functools.reduce(lambda x, y: computed(b, code, functools.partial(method, b), x, y), inputs)

    return handler


for _op, _since, _code, _binary in (
    ("Add", 14, "ADD", Builder.add),
    ("Sub", 14, "SUB", Builder.sub),
    ("Mul", 14, "MUL", Builder.mul),
):
    elementwise.lowers(_op, since=_since)(binary(_code, _binary))

for _op, _code, _binary in (
    ("Sum", "ADD", Builder.add),
    ("Max", "MAXIMUM", Builder.maximum),
    ("Min", "MINIMUM", Builder.minimum),
):
    elementwise.lowers(_op, since=13)(variadic(_code, _binary))

_UNARY: tuple[tuple[str, int | tuple[int, ...], str, Unary], ...] = (
    ("Exp", 13, "EXP", Builder.exp),
    ("Log", 13, "LOG", Builder.log),
    ("Sqrt", 13, "SQRT", Builder.sqrt),
    ("Sin", (7, 22), "SIN", Builder.sin),
    ("Cos", (7, 22), "COS", Builder.cos),
    ("Floor", 13, "FLOOR", Builder.floor),
    ("Ceil", 13, "CEIL", Builder.ceil),
    ("Round", (11, 22), "ROUND", Builder.round),
)
for _op, _versions, _code, _unary in _UNARY:
    elementwise.lowers(_op, since=_versions)(unary(_code, _unary))


@elementwise.lowers("Neg", since=13)
def neg(b: Builder, x: Tensor) -> Tensor:
    """A product with -1 for floats: LiteRT's NEG makes 0 of 0, where -0 tells a reader behind it another side."""
    if x.dtype == "float32" and not x.is_quantized:
        return b.mul(x, like(b, x, -1))
    return computed(b, "NEG", b.neg, x)


@elementwise.lowers("Abs", since=13)
def abs_(b: Builder, x: Tensor) -> Tensor:
    if x.is_quantized or x.dtype not in ("int64",):
        return computed(b, "ABS", b.abs, x)
    return b.maximum(x, b.neg(x))


@elementwise.lowers("Mean", since=13)
def mean(b: Builder, *inputs: Tensor) -> Tensor:
    float_only(inputs[0], "Mean")
    total = functools.reduce(b.add, inputs)
    return b.div(total, like(b, total, len(inputs))) if len(inputs) > 1 else total


@elementwise.lowers("Reciprocal", since=13)
def reciprocal(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Reciprocal")
    return b.div(like(b, x, 1), x)


@elementwise.lowers("Sign", since=13)
def sign(b: Builder, x: Tensor) -> Tensor:
    """SIGN, or integers clamped to [-1, 1]."""
    if x.dtype in b.dtypes("SIGN"):
        return b.sign(x)
    if x.is_float or x.dtype not in b.dtypes("MAXIMUM"):
        raise Unsupported(f"{x.dtype} input: TFLite SIGN takes {', '.join(b.dtypes('SIGN'))}")
    low = 0 if x.dtype.startswith("u") else -1
    return b.minimum(b.maximum(x, like(b, x, low)), like(b, x, 1))


@elementwise.lowers("Erf", since=13)
def erf_(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Erf")
    return erf(b, x)


@elementwise.lowers("Clip", since=13)
def clip(b: Builder, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """``RELU6`` for [0, 6] and its like, else ``MAXIMUM`` then ``MINIMUM``, the order the ONNX text gives."""
    if x.dtype == "float32":
        known = bounds(low, high)
        kernels: dict[tuple[float | None, float | None], Callable[[Tensor], Tensor]] = {
            (0.0, 6.0): b.relu6,
            (-1.0, 1.0): b.relu_n1_to_1,
            (0.0, None): b.relu,
        }
        fused = kernels.get(known)
        if fused is not None:
            return fused(x)
    limited = x if low is None else computed(b, "MAXIMUM", b.maximum, x, low)
    return limited if high is None else computed(b, "MINIMUM", b.minimum, limited, high)


def bounds(low: Tensor | None, high: Tensor | None) -> tuple[float | None, float | None]:
    """Constant bounds of a Clip; a computed bound counts as nan, which equals nothing."""
    return _value(low), _value(high)


def _value(bound: Tensor | None) -> float | None:
    if bound is None:
        return None
    return float("nan") if bound.constant is None else float(bound.constant.item())


@elementwise.lowers("Mod", since=(13, 28))
def mod(b: Builder, x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    """FLOOR_MOD has the sign of the divisor; C's remainder is that of the absolute values with the dividend's sign."""
    x_wide, y_wide = as_accepted(b, "FLOOR_MOD", x, y)
    if not fmod:
        return b.cast(b.floor_mod(x_wide, y_wide), x.dtype)
    if x.dtype.startswith("u"):
        return b.cast(b.floor_mod(x_wide, y_wide), x.dtype)
    size = b.floor_mod(_magnitude(b, x_wide), _magnitude(b, y_wide))
    return b.cast(b.select(b.less(*as_accepted(b, "LESS", x_wide, like(b, x_wide, 0))), b.neg(size), size), x.dtype)


def _magnitude(b: Builder, x: Tensor) -> Tensor:
    return b.abs(x) if x.dtype in b.dtypes("ABS") else b.maximum(x, b.neg(x))


@elementwise.lowers("Pow", since=15)
def pow_(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The result has the base's type; each pair of types has its own exact form."""
    if x.dtype == "float32":
        return _float_power(b, x, y)
    if x.dtype == "float64":
        raise Unsupported("float64 input: TFLite POW takes float32, int32")
    if y.is_float:
        exponents = constant_of(y, "a float exponent of an integer base")
        if not (exponents == np.round(exponents)).all():
            raise Unsupported("a fractional exponent of an integer base: TFLite POW takes float32, int32")
        y = b.constant(exponents.astype(x.dtype))
    return _integer_power(b, x, b.cast(y, x.dtype))


def _float_power(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    if y.dtype == "float32":
        constant = None if y.constant is None or y.constant.size != 1 else float(y.constant.item())
        special: dict[float, Unary] = {2.0: Builder.square, 0.5: Builder.sqrt, 1.0: lambda _, same: same}
        if constant in special and y.rank <= x.rank:
            return special[constant](b, x)
        return b.pow(x, y)
    if y.dtype not in ("int8", "uint8", "int16", "int32", "int64"):
        raise Unsupported(f"{y.dtype} exponents: TFLite POW takes float32, int32")
    # Large integers lose their lowest bits as float32, which matters for the sign only.
    odd = b.floor_mod(*as_accepted(b, "FLOOR_MOD", y, like(b, y, 2)))
    size = b.pow(b.abs(x), b.cast(y, "float32"))
    negative = b.logical_and(b.less(x, like(b, x, 0)), b.equal(b.cast(odd, "int32"), b.constant(np.array(1, np.int32))))
    return b.select(negative, b.neg(size), size)


def _integer_power(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Square and multiply over seven bits of the exponent; beyond 64 only -1, 0 and 1 do not overflow."""
    x_wide, y_wide = as_accepted(b, "MUL", x, y)
    two, one, zero = like(b, y_wide, 2), like(b, y_wide, 1), like(b, y_wide, 0)
    odd = b.floor_mod(y_wide, two)
    bits = b.cast(b.select(b.greater(y_wide, like(b, y_wide, 64)), b.add(odd, like(b, y_wide, 64)), y_wide), "int32")
    result, square = one, x_wide
    for place in range(7):
        bit = b.floor_mod(b.floor_div(bits, like(b, bits, 1 << place)), like(b, bits, 2))
        result = b.mul(result, b.select(b.equal(bit, like(b, bit, 1)), square, one))
        square = b.mul(square, square)
    unit = b.logical_or(b.equal(x_wide, one), b.equal(x_wide, like(b, x_wide, -1)))
    inverse = b.select(unit, b.select(b.equal(odd, one), x_wide, one), zero)
    return b.cast(b.select(b.less(y_wide, zero), inverse, result), x.dtype)
