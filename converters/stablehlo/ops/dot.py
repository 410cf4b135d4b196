"""``dot_general`` as matrix products, for any dimension numbers and element types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import Size
from convertkit.converters.stablehlo.mlir import dtype_of, ints
from convertkit.converters.stablehlo.ops.convert import converted
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tensor import Complex, Operand, Tensor, is_float

products = Handlers()


@dataclass(frozen=True, slots=True)
class Axes:
    """The roles of one operand's axes."""

    batch: tuple[int, ...]
    contract: tuple[int, ...]
    free: tuple[int, ...]


@products.translates
def dot_general(b: Builder, op: hlo.DotGeneralOp, x: Tensor, y: Tensor) -> Tensor:
    left, right = _axes(op, x.rank, y.rank)
    return product(b, x, y, left, right, dtype_of(op.result.type))


@products.complex
def complex_dot_general(b: Builder, op: hlo.DotGeneralOp, x: Operand, y: Operand) -> Operand:
    left, right = _axes(op, x.rank, y.rank)
    dtype = dtype_of(op.result.type)
    return pairwise(b, x, y, lambda p, q: product(b, p, q, left, right, dtype))


def pairwise(b: Builder, x: Operand, y: Operand, multiply: Callable[[Tensor, Tensor], Tensor]) -> Complex:
    """A bilinear operation on complex operands from the same on their parts."""
    a, c = (each if isinstance(each, Complex) else Complex(each, zeros(b, each)) for each in (x, y))
    re = b.sub(multiply(a.re, c.re), multiply(a.im, c.im))
    return Complex(re, b.add(multiply(a.re, c.im), multiply(a.im, c.re)))


def zeros(b: Builder, x: Tensor) -> Tensor:
    """Zeros of the shape and dtype of ``x``, whose sizes may be known to the running model alone."""
    extent = b.shape_of(x) if None in x.shape else None
    return Tensor(np.zeros((), x.dtype.numpy()), (), x.shape, x.dtype, extent)


def _axes(op: hlo.DotGeneralOp, x_rank: int, y_rank: int) -> tuple[Axes, Axes]:
    numbers = hlo.DotDimensionNumbers(op.dot_dimension_numbers)
    left = _roles(ints(numbers.lhs_batching_dimensions), ints(numbers.lhs_contracting_dimensions), x_rank)
    right = _roles(ints(numbers.rhs_batching_dimensions), ints(numbers.rhs_contracting_dimensions), y_rank)
    return left, right


def _roles(batch: tuple[int, ...], contract: tuple[int, ...], rank: int) -> Axes:
    return Axes(batch, contract, tuple(axis for axis in range(rank) if axis not in batch + contract))


def product(b: Builder, x: Tensor, y: Tensor, left: Axes, right: Axes, dtype: ir.DataType) -> Tensor:
    """Batch axes first, then the free ones of ``x``, then those of ``y``."""
    wide = _common(x.dtype, y.dtype, dtype)
    x, y = (converted(b, each, wide) for each in (x, y))
    whole = (_weights_last if _is_stored(x) and not _is_stored(y) and not left.batch else _matmul)(b, x, y, left, right)
    return converted(b, whole, dtype)


def _is_stored(x: Tensor) -> bool:
    return x.const is not None


def _weights_last(b: Builder, x: Tensor, y: Tensor, left: Axes, right: Axes) -> Tensor:
    """Stored weights on the right, as layers have them: ``w @ x`` under ``vmap`` has them on the left."""
    turned = _matmul(b, y, x, right, left)
    behind = len(right.free)
    return b.transpose(turned, [*range(behind, turned.rank), *range(behind)])


def _common(*dtypes: ir.DataType) -> ir.DataType:
    """The widest of the dtypes, a float where there is one; modulo arithmetic needs no more."""
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    return max(floats or dtypes, key=lambda dtype: dtype.bitwidth)


def _matmul(b: Builder, x: Tensor, y: Tensor, left: Axes, right: Axes) -> Tensor:
    if not left.batch and left.free and right.free:
        return _by_weights(b, x, y, left, right)
    sizes = [
        *(b.size(x, axis) for axis in left.batch + left.free),
        *(b.size(y, axis) for axis in right.free),
    ]
    shape = tuple(x.shape[axis] for axis in left.batch + left.free) + tuple(y.shape[axis] for axis in right.free)
    rows = _merged(b, x, left.batch, left.free, left.contract)
    columns = _merged(b, y, right.batch, right.contract, right.free)
    matrix = b.op("MatMul", [rows, columns], (*rows.shape[:-1], columns.shape[-1]), rows.dtype)
    return matrix if matrix.shape == shape and _is_plain(left, right) else b.reshape(matrix, shape, b.sizes(sizes))


def _by_weights(b: Builder, x: Tensor, y: Tensor, left: Axes, right: Axes) -> Tensor:
    """Without batch axes, the free axes of ``x`` stay what they are: MatMul broadcasts the matrix that ``y`` is."""
    rows = _merged(b, x, left.free, left.contract)
    columns = _merged(b, y, (), right.contract, right.free)
    matrix = b.op("MatMul", [rows, columns], (*rows.shape[:-1], columns.shape[-1]), rows.dtype)
    if len(right.free) == 1:
        return matrix
    sizes = [*(b.size(x, axis) for axis in left.free), *(b.size(y, axis) for axis in right.free)]
    shape = tuple(x.shape[axis] for axis in left.free) + tuple(y.shape[axis] for axis in right.free)
    return b.reshape(matrix, shape, b.sizes(sizes))


def _is_plain(left: Axes, right: Axes) -> bool:
    return len(left.free) == len(right.free) == 1


def _merged(b: Builder, x: Tensor, batch: Sequence[int], *groups: Sequence[int]) -> Tensor:
    """Batch axes as they are, then each group of axes merged into one."""
    moved = b.transpose(x, [*batch, *(axis for group in groups for axis in group)])
    if all(len(group) == 1 for group in groups):
        return moved
    sizes: list[Size] = [b.size(x, axis) for axis in batch]
    shape = [x.shape[axis] for axis in batch]
    for group in groups:
        free = [axis for axis in group if x.shape[axis] is None]
        known = math.prod(x.shape[axis] or 1 for axis in group if x.shape[axis] is not None)
        shape.append(None if free else known)
        sizes.append(_times(b, x, free, known))
    return b.reshape(moved, tuple(shape), b.sizes(sizes))


def _times(b: Builder, x: Tensor, axes: Sequence[int], known: int) -> Size:
    total: Size = known
    for axis in axes:
        size = b.size(x, axis)
        assert isinstance(size, Tensor)
        total = size if total == 1 and isinstance(total, int) else b.mul(size, total)
    return total


@products.translates
def dot(b: Builder, op: hlo.DotOp, x: Tensor, y: Tensor) -> Tensor:
    left, right = _roles((), (x.rank - 1,), x.rank), _roles((), (0,), y.rank)
    return product(b, x, y, left, right, dtype_of(op.result.type))
