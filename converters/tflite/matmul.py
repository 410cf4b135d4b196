"""Matrix products.  Source: ``tensorflow/lite/kernels/{fully_connected,batch_matmul}.cc``."""

from __future__ import annotations

from convertkit.converters.tflite.activations import fused
from convertkit.converters.tflite.bias import bias_of
from convertkit.converters.tflite.builder import FREE, Builder, Tensor
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

matmul = Registry()


@matmul.reads("FULLY_CONNECTED", "FullyConnectedOptions")
def fully_connected(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    fused_activation_function: int,
    weights_format: int,
    keep_num_dims: bool,
) -> Tensor:
    """``x @ w.T + bias``; the input is flattened to rows as long as those of the weights (out, in)."""
    if weights_format:
        raise Unsupported("shuffled weights; only the default layout is known")
    if w.rank != 2:
        raise SourceError(f"weights of shape {w.dims}, expected two dimensions")
    real_bias = bias_of(b, bias, x, w)
    if keep_num_dims and x.rank > 2 and x.quantization is None:
        y = b.op("MatMul", [x, b.transpose(w, (1, 0))])
        return fused(b, y if real_bias is None else b.op("Add", [y, real_bias]), fused_activation_function)
    columns = w.dims[1]
    rows = x if x.shape is not None and len(x.shape) == 2 and x.shape[1] == columns else b.reshape(x, (FREE, columns))
    inputs = [rows, w] if real_bias is None else [rows, w, real_bias]
    y = fused(b, b.op("Gemm", inputs, {"transB": 1}), fused_activation_function)
    return _unflattened(b, y, x, w) if keep_num_dims and x.rank != 2 else y


def _unflattened(b: Builder, y: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """``y`` with the leading dimensions of ``x``; it is rounded before, as the kernel does."""
    result = b.results[0]
    if result.quantization is not None:
        y = b.dequantize(b.quantize(y, result.quantization, result.dtype), result.quantization)
    leading = x.dims[:-1]
    if leading.count(FREE) <= 1:
        return b.reshape(y, (*leading, w.dims[0]))
    shape = b.op("Shape", [x], {"end": -1}, dtype="int64")
    return b.reshape(y, b.op("Concat", [shape, b.constant([w.dims[0]])], {"axis": 0}))


@matmul.reads("BATCH_MATMUL", "BatchMatMulOptions")
def batch_matmul(b: Builder, x: Tensor, y: Tensor, *, adj_x: bool, adj_y: bool) -> Tensor:
    return b.op("MatMul", [_adjoint(b, x) if adj_x else x, _adjoint(b, y) if adj_y else y])


def _adjoint(b: Builder, x: Tensor) -> Tensor:
    axes = tuple(range(x.rank))
    return b.transpose(x, (*axes[:-2], axes[-1], axes[-2]))
