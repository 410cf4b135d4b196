"""Values that handlers pass around: tensors, and pairs of tensors that stand for complex numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

Shape = tuple[int | None, ...]
"""Sizes in elements; None is a size that only the running model knows."""

BOOL, I8, I16, I32, I64 = (
    ir.DataType.BOOL,
    ir.DataType.INT8,
    ir.DataType.INT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
)
U8, U16, U32, U64 = ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64
BF16, F16, F32, F64 = ir.DataType.BFLOAT16, ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE

SIGNED = (I8, I16, I32, I64)
UNSIGNED = (U8, U16, U32, U64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (BF16, F16, F32, F64)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of a known shape, kept as small as broadcasting allows.

    ``core`` broadcasts to ``shape`` by NumPy's rules and has ``core_shape``; it is an array as long
    as the value is constant.  A broadcast therefore costs nothing until an operator that does not
    broadcast needs the whole (``Tape.full``).  ``extent`` is the int64 vector of sizes where a
    broadcast dimension is only known to the running model.
    """

    core: ir.Value | Array
    core_shape: Shape
    shape: Shape
    dtype: ir.DataType
    extent: Tensor | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def const(self) -> Array | None:
        """The broadcast constant (a view), None where the value or its extent is computed."""
        if isinstance(self.core, ir.Value) or None in self.shape:
            return None
        return np.broadcast_to(self.core, static(self.shape))

    @property
    def is_full(self) -> bool:
        """Whether ``core`` is the whole value."""
        return self.core_shape == self.shape

    @property
    def scalar(self) -> float | int | bool | None:
        """The one number that a constant consists of, None otherwise."""
        if isinstance(self.core, ir.Value) or self.core.size == 0:
            return None
        first = self.core.reshape(-1)[0]
        if self.core.size > 1 and not np.all(self.core == first):
            return None
        value: float | int | bool = first.item() if hasattr(first, "item") else float(first)
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex value as its real and imaginary parts, of one shape and dtype."""

    re: Tensor
    im: Tensor

    @property
    def shape(self) -> Shape:
        return self.re.shape

    @property
    def rank(self) -> int:
        return len(self.re.shape)

    @property
    def dtype(self) -> ir.DataType:
        """The dtype of the parts."""
        return self.re.dtype


Operand = Tensor | Complex


def constant(value: Array) -> Tensor:
    """A constant tensor of the array's own dtype."""
    return Tensor(value, value.shape, value.shape, ir.DataType.from_numpy(value.dtype))


def splat(value: float | int | bool, shape: Shape, dtype: ir.DataType) -> Tensor:
    """One number broadcast to ``shape``."""
    return Tensor(np.array(value, dtype.numpy()), (), shape, dtype)


def static(shape: Shape) -> tuple[int, ...]:
    """The sizes, which must all be known."""
    assert None not in shape, f"static shape expected, got {shape}"
    return tuple(size for size in shape if size is not None)


def size_of(shape: Shape) -> int:
    """How many elements a static shape has."""
    return math.prod(static(shape))


def broadcast(*shapes: Shape) -> Shape:
    """The NumPy broadcast of shapes; None meets None or 1."""
    rank = max(map(len, shapes))
    result: list[int | None] = []
    for axis in range(rank):
        sizes = [shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0]
        known = [size for size in sizes if size is not None and size != 1]
        result.append(known[0] if known else None if None in sizes else 1)
    return tuple(result)


def is_float(dtype: ir.DataType) -> bool:
    """Whether a dtype is one of the four float types."""
    return dtype in FLOATS


def bits(dtype: ir.DataType) -> int:
    """Width in bits; a bool counts one."""
    return 1 if dtype == BOOL else dtype.bitwidth


def lowest(dtype: ir.DataType) -> float | int | bool:
    """The identity of maximum: minus infinity, the least integer or False."""
    if dtype == BOOL:
        return False
    return -math.inf if is_float(dtype) else int(np.iinfo(dtype.numpy()).min)


def highest(dtype: ir.DataType) -> float | int | bool:
    """The identity of minimum: infinity, the greatest integer or True."""
    if dtype == BOOL:
        return True
    return math.inf if is_float(dtype) else int(np.iinfo(dtype.numpy()).max)


def finfo(dtype: ir.DataType) -> ml_dtypes.finfo:
    """Limits of a floating-point dtype, bfloat16 included."""
    return ml_dtypes.finfo(dtype.numpy())
