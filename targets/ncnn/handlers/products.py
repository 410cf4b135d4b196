"""Matrix products: InnerProduct with a stored matrix, MatMul without one."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.ncnn.builder import Builder, raw, weight
from convertkit.targets.ncnn.handlers.arithmetic import binary
from convertkit.targets.ncnn.handlers.moves import transposed
from convertkit.targets.ncnn.tensor import Tensor, constant, natural

products = Registry()


def inner(b: Builder, x: Tensor, matrix: Array, bias: Array | None, shape: tuple[int, ...]) -> Tensor:
    """Each row of ``x`` times a stored matrix of (outputs, inputs)."""
    width = matrix.shape[1]
    rows = math.prod(x.shape) // width
    given = b.view(x, (rows, width) if rows > 1 else (width,))
    sizes = (rows, len(matrix)) if rows > 1 else (len(matrix),)
    parameters = {0: len(matrix), 1: int(bias is not None), 2: matrix.size}
    weights = [weight(matrix), *([] if bias is None else [raw(bias)])]
    return b.layer("InnerProduct", [given], shape, sizes, parameters, weights)


@products.lowers("Gemm", since=13)
def gemm(
    b: Builder,
    x: Tensor,
    y: Tensor,
    z: Tensor | None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's own name
    transB: int = 0,  # noqa: N803
) -> Tensor:
    """A stored matrix and a stored vector of its outputs become one layer; anything else several."""
    a = transposed(b, x, (1, 0)) if transA else x
    shape = (a.shape[0], y.shape[0] if transB else y.shape[1])
    plain_bias = z is None or (z.array is not None and beta == 1 and z.shape in ((shape[1],), (1, shape[1])))
    if y.array is not None and a.array is None and alpha == 1:
        matrix = y.array if transB else y.array.T
        bias = z.known.reshape(-1) if z is not None and plain_bias else None
        result = inner(b, a, matrix, bias, shape)
        return result if plain_bias or z is None else binary(b, "Add", result, _times(b, z, beta))
    result = _times(b, product(b, a, transposed(b, y, (1, 0)) if transB else y, shape), alpha)
    return result if z is None else binary(b, "Add", result, _times(b, z, beta))


def _times(b: Builder, x: Tensor, factor: float) -> Tensor:
    if factor == 1:
        return x
    if x.array is not None:
        return Tensor(x.shape, x.sizes, array=np.asarray(x.array * np.float32(factor), np.float32))
    return binary(b, "Mul", x, constant(np.array(factor, np.float32)))


@products.lowers("MatMul", since=13)
def mat_mul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """A vector counts as a matrix of one row or column, as in NumPy."""
    rows = x if x.rank > 1 else b.view(x, natural((1, *x.shape)), (1, *x.shape))
    columns = y if y.rank > 1 else b.view(y, natural((*y.shape, 1)), (*y.shape, 1))
    batch = tuple(int(size) for size in np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2]))
    whole = (*batch, rows.shape[-2], columns.shape[-1])
    shape = (*batch, *whole[-2:-1] * (x.rank > 1), *whole[-1:] * (y.rank > 1))
    if y.array is not None and columns.rank == 2 and rows.array is None:
        return inner(b, rows, np.reshape(y.array, columns.shape).T, None, shape)
    made = product(b, rows, columns, whole)
    return made if shape == whole else b.view(made, natural(shape), shape)


def product(b: Builder, x: Tensor, y: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Two matrices, or two stacks of them, of as many dimensions."""
    rank = len(shape)
    stacks = [(*[1] * (rank - each.rank), *each.shape) for each in (x, y)]
    while len(stacks[0]) > 2 and stacks[0][0] == stacks[1][0] == 1:
        stacks = [each[1:] for each in stacks]
    if len(stacks[0]) > 4:
        raise Unsupported("stacks of matrices in more than two dimensions: a blob of ncnn has four")
    operands = [b.view(each, sizes) for each, sizes in zip((x, y), stacks, strict=True)]
    return b.layer("MatMul", operands, shape, shape[rank - len(stacks[0]) :])
