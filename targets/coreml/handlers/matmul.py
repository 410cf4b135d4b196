"""ONNX products of matrices as MIL."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.tensor import Tensor, constant

matmul = Registry()


@matmul.lowers("MatMul", since=13)
def mat_mul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """``linear`` for a constant matrix on the right, whose rows are outputs there."""
    if _is_matrix(y) and y.array is not None and x.is_float and x.array is None and 2 <= x.rank <= 3:
        return b.op("linear", x=x, weight=constant(y.array.T))
    left, right = _with_rank(b, x, (1, -1)), _with_rank(b, y, (-1, 1))
    product = b.op("matmul", x=left, y=right)
    gone = [product.rank - 2] * (x.rank == 1) + [product.rank - 1] * (y.rank == 1)
    return b.op("squeeze", x=product, axes=tuple(gone)) if gone else product


def _is_matrix(x: Tensor) -> bool:
    return x.rank == 2


def _with_rank(b: Builder, x: Tensor, shape: tuple[int, int]) -> Tensor:
    return b.reshape(x, shape) if x.rank == 1 else x


@matmul.lowers("Gemm", since=13)
def gemm(
    b: Builder,
    x: Tensor,
    y: Tensor,
    c: Tensor | None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's name
    transB: int = 0,  # noqa: N803
) -> Tensor:
    """``linear`` for constant weights with a bias of a row; else a product and a sum."""
    if transA:
        x = b.transpose(x, (1, 0))
    row = c is not None and c.array is not None and c.rank == 1 and c.shape[0] == y.shape[0 if transB else 1]
    if _is_weight(y, transB) and x.is_float and alpha == 1 and (c is None or (row and beta == 1)):
        weight = y if y.array is None else constant(y.array if transB else y.array.T)
        return b.op("linear", x=x, weight=weight, bias=c)
    product = b.op("matmul", x=x, y=y, transpose_y=bool(transB))
    if alpha != 1:
        product = b.op("mul", x=product, y=b.full(alpha, product))
    if c is None or beta == 0:
        return product
    scaled = c if beta == 1 else b.op("mul", x=c, y=b.full(beta, c))
    return b.op("add", x=product, y=scaled)


def _is_weight(y: Tensor, transposed: int) -> bool:
    """Known when the model is converted, in rows of outputs: constants, or integers that become reals at load."""
    if y.array is not None:
        return True
    made = None if y.var is None else y.var.op
    return bool(transposed) and made is not None and made.op_type.startswith("constexpr_")


_MOST_ROWS = 3


@matmul.lowers("Det", since=(11, 22))
def det(b: Builder, x: Tensor) -> Tensor:
    """The sum of signed products, which for more rows would be many or need pivots chosen at run time."""
    rows, columns = x.size(-2), x.size(-1)
    if rows != columns or rows > _MOST_ROWS:
        raise Unsupported(f"Det of {rows} x {columns}: it is expanded up to {_MOST_ROWS} rows")
    cells = [[_cell(b, x, row, column) for column in range(rows)] for row in range(rows)]
    return _expanded(b, cells)


def _cell(b: Builder, x: Tensor, row: int, column: int) -> Tensor:
    lead = x.rank - 2
    return b.op(
        "slice_by_index",
        x=x,
        begin=(*[0] * lead, row, column),
        end=(*[0] * lead, row + 1, column + 1),
        end_mask=(*[True] * lead, False, False),
        squeeze_mask=(*[False] * lead, True, True),
    )


def _expanded(b: Builder, cells: list[list[Tensor]]) -> Tensor:
    """By the first row: each of its cells times the determinant of what is in neither its row nor its column."""
    first, *rest = cells
    if not rest:
        return b.op("identity", x=first[0])
    total = None
    for column, cell in enumerate(first):
        minor = _expanded(b, [row[:column] + row[column + 1 :] for row in rest])
        part = b.op("mul", x=cell, y=minor)
        total = part if total is None else b.op("sub" if column % 2 else "add", x=total, y=part)
    assert total is not None
    return total
