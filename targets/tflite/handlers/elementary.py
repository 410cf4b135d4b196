"""Small exact pieces that many operators are composed of: not handlers, only builder calls.

Float formulas keep full relative precision near zero, where the plain ones cancel.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

import numpy as np
import onnx

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DType, Tensor

_HELD_BY: dict[DType, tuple[DType, ...]] = {
    "bool": ("int8", "uint8", "int32", "float32", "int64"),
    "int8": ("int16", "int32", "float32", "int64"),
    "uint8": ("int16", "int32", "float32", "int64"),
    "int16": ("int32", "float32", "int64"),
    "uint16": ("int32", "float32", "int64"),
    "int32": ("int64",),
    "uint32": ("int64",),
}
"""Types that hold every value of another, cheapest first."""


def accepted(b: Builder, code: str, dtype: DType) -> DType:
    """The type in which the kernel of ``code`` computes on values of ``dtype`` exactly: itself or a wider one.

    A refusal names what the kernel takes.
    """
    takes = b.dtypes(code)
    for candidate in (dtype, *_HELD_BY.get(dtype, ())):
        if candidate in takes:
            return candidate
    raise Unsupported(f"{dtype} input: TFLite {code} takes {', '.join(takes)}")


def as_accepted(b: Builder, code: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one type, cast to the type that the kernel of ``code`` takes where it does not take theirs."""
    if tensors[0].is_quantized:
        return tensors
    dtype = accepted(b, code, tensors[0].dtype)
    return tuple(b.cast(tensor, dtype) for tensor in tensors)


def float_only(x: Tensor, what: str) -> None:
    """Refuse what is not float32."""
    if x.dtype != "float32":
        raise Unsupported(f"{x.dtype} input: {what} is composed of float32 kernels")


def constant_of(x: Tensor | None, what: str) -> Array:
    """The value of a constant input; a refusal where it is computed at run time."""
    if x is None or x.constant is None:
        raise Unsupported(f"TFLite needs a constant for {what}, not a value computed at run time")
    return np.asarray(x.constant)


def constant_ints(x: Tensor | None, what: str) -> tuple[int, ...]:
    """A constant vector of integers."""
    return tuple(int(value) for value in constant_of(x, what).reshape(-1))


def iota(b: Builder, size: int, shape: tuple[int, ...], dtype: DType = "int32") -> Tensor:
    """``0 … size - 1`` as a constant of ``shape``."""
    return b.constant(np.arange(size, dtype=dtype).reshape(shape))


def like(b: Builder, x: Tensor, value: float) -> Tensor:
    """A scalar of the element type of ``x``."""
    return b.scalar(value, x)


def nonnegative(b: Builder, indices: Tensor, size: int) -> Tensor:
    """Indices that count from the end where negative, as int32 from the start; constants are turned now."""
    if indices.constant is not None:
        values = indices.constant.astype(np.int64)
        return b.constant(np.where(values < 0, values + size, values).astype(np.int32))
    return b.once(("nonnegative", indices, size), lambda: _turned(b, indices, size))


def _turned(b: Builder, indices: Tensor, size: int) -> Tensor:
    """Several tables are often read at the same indices, so their sign is looked at once."""
    narrow = b.once(("int32", indices), lambda: b.cast(indices, "int32"))
    below = b.once(("below 0", indices), lambda: b.less(narrow, like(b, narrow, 0)))
    return b.select(below, b.add(narrow, like(b, narrow, size)), narrow)


# log(1 + x) = 2 s (1 + s²/3 + s⁴/5 + …) with s = x / (2 + x); up to |x| = 0.3 the terms left out are below 3e-9.
_SERIES_END = 0.3
_SERIES = tuple(2 / (2 * power + 1) for power in range(5))


def log1p(b: Builder, x: Tensor) -> Tensor:
    """``log(1 + x)`` with full relative precision: a series near 0, as XNNPACK's LOG is off by 1e-7 near 1."""
    s = b.div(x, b.add(x, like(b, x, 2)))
    near = b.mul(s, polynomial(b, b.square(s), _SERIES))
    far = b.log(b.add(x, like(b, x, 1)))
    return b.select(b.less(b.abs(x), like(b, x, _SERIES_END)), near, far)


def expm1(b: Builder, x: Tensor) -> Tensor:
    """``exp(x) - 1`` with full relative precision: ``tanh(x / 2) (exp(x) + 1)``."""
    return b.mul(b.tanh(b.mul(x, like(b, x, 0.5))), b.add(b.exp(x), like(b, x, 1)))


# erf(x) = x P(x²) / Q(x²) on [-3.92, 3.92], fitted to a relative error of 2e-8; float32 rounding adds 3e-7.
_ERF_END = 3.92
_ERF_P = (1.1283791462554817, 0.19040314731301805, 0.052748280041751514, 0.0037654721571318012,
          0.00028487910227881837, 2.0501088517689586e-06)  # fmt: skip
_ERF_Q = (1.0, 0.5020731378618238, 0.11410773531596186, 0.014968928758083672, 0.0011624996034770383,
          3.809174709182966e-05)  # fmt: skip


def erf(b: Builder, x: Tensor) -> Tensor:
    """The error function, by a quotient of polynomials."""
    near = b.minimum(b.maximum(x, like(b, x, -_ERF_END)), like(b, x, _ERF_END))
    square = b.square(near)
    return b.div(b.mul(near, polynomial(b, square, _ERF_P)), polynomial(b, square, _ERF_Q))


def polynomial(b: Builder, x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """``c0 + c1 x + c2 x² + …`` by Horner's rule."""
    result = b.add(b.mul(x, like(b, x, coefficients[-1])), like(b, x, coefficients[-2]))
    for coefficient in coefficients[-3::-1]:
        result = b.add(b.mul(result, x), like(b, x, coefficient))
    return result


def dtype_named(code: int) -> DType:
    """Our name of an ONNX element type, given as its number."""
    if code == onnx.TensorProto.STRING:
        return "string"
    name = onnx.helper.tensor_dtype_to_np_dtype(code).name
    for known in typing.get_args(DType):
        if known == name:
            return known  # type: ignore[no-any-return]
    raise Unsupported(f"TFLite has no tensors of {name}")


def moved_last(b: Builder, x: Tensor, axis: int) -> tuple[Tensor, tuple[int, ...]]:
    """``x`` with ``axis`` exchanged with the last one, and the permutation, which is its own inverse."""
    order = list(range(x.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return b.transpose(x, order), tuple(order)
