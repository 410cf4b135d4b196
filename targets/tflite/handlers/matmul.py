"""Matrix products."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.convolutions import integer_bias
from convertkit.targets.tflite.tensor import Tensor

matmul = Registry()
_MOST_AXES = 5
"""That TFLite's MUL broadcasts."""


@matmul.lowers("Gemm", since=13)
def gemm(
    b: Builder,
    x: Tensor,
    w: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's names
    transB: int = 0,  # noqa: N803
) -> Tensor:
    """FULLY_CONNECTED for a constant right-hand side, else BATCH_MATMUL; factors go into constants."""
    if transA:
        x = b.transpose(x, (1, 0))
    plain = alpha == 1.0 and (c is None or (beta == 1.0 and is_bias(c, w.shape[0 if transB else 1])))
    if is_weight(b, w) and plain:
        return dense(b, x, w if transB else b.transpose(w, (1, 0)), c)
    y = (
        b.batch_matmul(x, w, adj_y=bool(transB))
        if not is_weight(b, w)
        else dense(b, x, w if transB else b.transpose(w, (1, 0)), None)
    )
    if alpha != 1.0:
        y = b.mul(y, b.scalar(alpha, y))
    if c is None or beta == 0.0:
        return y
    return b.add(y, c if beta == 1.0 else b.mul(c, b.scalar(beta, c)))


@matmul.lowers("MatMul", since=13)
def mat_mul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """FULLY_CONNECTED where the right-hand side is a constant matrix, else BATCH_MATMUL."""
    if is_weight(b, y) and y.rank == 2 and x.rank >= 2 and x.dtype in ("float32", "int8", "int16"):
        return dense(b, x, b.transpose(y, (1, 0)), None)
    if x.rank == 1:
        rows = mat_mul(b, b.expand_dims(x, 0), y)
        return b.squeeze(rows, (rows.rank - 2 if y.rank > 1 else 0,))
    if y.rank == 1:
        columns = mat_mul(b, x, b.expand_dims(y, 1))
        return b.squeeze(columns, (columns.rank - 1,))
    if x.dtype in ("int32", "int64") and not x.is_quantized:
        return _integer_product(b, x, y)
    return b.batch_matmul(x, y)


def _integer_product(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The sum of all products, since BATCH_MATMUL takes no such integers."""
    if max(x.rank, y.rank) + 1 > _MOST_AXES:
        raise Unsupported(f"{x.dtype} operands of rank {max(x.rank, y.rank)}: TFLite BATCH_MATMUL takes floats")
    products = b.mul(b.expand_dims(x, x.rank), b.expand_dims(y, y.rank - 2))
    return b.sum(products, (products.rank - 2,), keep_dims=False)


@matmul.lowers_custom("Dense", domain=OWN)
def dense_(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """A MatMul with its bias: ``w`` is (in, out)."""
    return dense(b, x, b.transpose(w, (1, 0)), bias)


def dense(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """FULLY_CONNECTED with ``weight`` (out, in) and a bias that the kernel takes."""
    if x.is_quantized:
        bias = integer_bias(b, x, weight, bias, weight.shape[0])
    elif bias is not None and bias.shape != (weight.shape[0],):
        assert bias.constant is not None
        bias = b.constant(np.broadcast_to(bias.constant.reshape(-1), (weight.shape[0],)))
    return b.fully_connected(x, weight, bias)


def is_weight(b: Builder, w: Tensor) -> bool:
    """Whether ``w`` is known now, as it is or behind a DEQUANTIZE."""
    return w.constant is not None or b.stored_weight(w) is not None


def is_bias(c: Tensor, count: int) -> bool:
    """Whether ``c`` is a constant that adds one number to each column."""
    return c.constant is not None and c.size in (1, count) and (c.rank == 0 or c.shape[-1] == c.size)
