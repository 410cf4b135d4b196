"""Reductions, normalisations, searches and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from convertkit.targets.tflite.builder.core import NONE, BuilderCore
from convertkit.targets.tflite.tensor import DYNAMIC, DType, QuantParams, Tensor, broadcast_shape

_ROWS_AT_ONCE = 1024


class Reductions(BuilderCore):
    """Operators that look at whole axes."""

    def mean(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._added("MEAN", x, axes, keep_dims)

    def sum(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._added("SUM", x, axes, keep_dims)

    def reduce_prod(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._reduce("REDUCE_PROD", x, axes, keep_dims)

    def reduce_max(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._reduce("REDUCE_MAX", x, axes, keep_dims, x.quantization)

    def reduce_min(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._reduce("REDUCE_MIN", x, axes, keep_dims, x.quantization)

    def reduce_any(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._reduce("REDUCE_ANY", x, axes, keep_dims)

    def reduce_all(self, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
        return self._reduce("REDUCE_ALL", x, axes, keep_dims)

    def arg_max(self, x: Tensor, axis: int, dtype: DType = "int64") -> Tensor:
        """Index of the first maximum, without ``axis``."""
        return self._arg("ARG_MAX", x, axis, dtype)

    def arg_min(self, x: Tensor, axis: int, dtype: DType = "int64") -> Tensor:
        """Index of the first minimum, without ``axis``."""
        return self._arg("ARG_MIN", x, axis, dtype)

    def softmax(self, x: Tensor, *, beta: float = 1.0) -> Tensor:
        """Softmax of ``beta * x`` along the last axis."""
        return self.emit("SOFTMAX", (x,), x.shape, x.dtype, {"beta": beta}, self.result_of(x))

    def log_softmax(self, x: Tensor) -> Tensor:
        """Log-softmax along the last axis."""
        return self.emit("LOG_SOFTMAX", (x,), x.shape, x.dtype, None, self.result_of(x))

    def l2_normalization(self, x: Tensor) -> Tensor:
        """``x / max(norm, tiny)`` along the last axis."""
        options = {"fused_activation_function": NONE}
        return self.emit("L2_NORMALIZATION", (x,), x.shape, x.dtype, options, self.result_of(x))

    def cumsum(self, x: Tensor, axis: int, *, exclusive: bool, reverse: bool) -> Tensor:
        """Running sums along ``axis``."""
        options = {"exclusive": exclusive, "reverse": reverse}
        return self.emit("CUMSUM", (x, self.constant(np.array(axis, np.int32))), x.shape, x.dtype, options)

    def topk(self, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """The largest ``k`` along the last axis, and their int32 indices; ties go to the lower index."""
        count = DYNAMIC if k.constant is None else int(k.constant)
        shape = (*x.shape[:-1], count)
        values, indices = self.emit_many("TOPK_V2", (x, k), [(shape, x.dtype), (shape, "int32")], None, x.quantization)
        return values, indices

    def fully_connected(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, *, asymmetric_quantize_inputs: bool = False
    ) -> Tensor:
        """``x @ weight.T + bias`` over the last axis of ``x``; ``weight`` is (out, in)."""
        options = {
            "fused_activation_function": NONE,
            "weights_format": 0,
            "keep_num_dims": x.rank != 2,
            "asymmetric_quantize_inputs": asymmetric_quantize_inputs,
        }
        shape = (*x.shape[:-1], weight.shape[0])
        return self.emit("FULLY_CONNECTED", (x, weight, bias), shape, x.dtype, options, self.result_of(x))

    def batch_matmul(self, x: Tensor, y: Tensor, *, adj_x: bool = False, adj_y: bool = False) -> Tensor:
        """Matrix product over the last two axes; ``adj_*`` transposes an operand's last two."""
        rows = x.shape[-1] if adj_x else x.shape[-2]
        columns = y.shape[-2] if adj_y else y.shape[-1]
        shape = (
            (*broadcast_shape(x.shape[:-2], y.shape[:-2]), rows, columns)
            if x.rank > 2 or y.rank > 2
            else (rows, columns)
        )
        options = {"adj_x": adj_x, "adj_y": adj_y, "asymmetric_quantize_inputs": False}
        return self.emit("BATCH_MATMUL", (x, y), shape, x.dtype, options, self.result_of(x, y))

    def _added(self, code: str, x: Tensor, axes: Sequence[int], keep_dims: bool) -> Tensor:
        """One axis after the other where a lot of rows come together, which takes no longer.

        XNNPACK adds rows one by one to the same sum, and with every one of them goes half a bit: 9216 pixels at once
        lose ten times what 96 columns and then 96 rows do.
        """
        axes = sorted({axis % x.rank for axis in axes}) if x.rank else []
        rows = math.prod(x.shape[axis] for axis in axes if x.shape[axis] != DYNAMIC)
        if x.dtype != "float32" or len(axes) < 2 or axes[-1] == x.rank - 1 or rows <= _ROWS_AT_ONCE:
            return self._reduce(code, x, axes, keep_dims)
        inner = self._reduce(code, x, axes[-1:], keep_dims)
        return self._added(code, inner, axes[:-1], keep_dims)

    def _reduce(
        self, code: str, x: Tensor, axes: Sequence[int], keep_dims: bool, chosen: QuantParams | None = None
    ) -> Tensor:
        """``chosen``: the parameters of ``x``, where its elements are only chosen among."""
        axes = sorted({axis % x.rank for axis in axes}) if x.rank else []
        if keep_dims:
            shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
        else:
            shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
        inputs = (x, self.ints(axes))
        return self.emit(code, inputs, shape, x.dtype, {"keep_dims": keep_dims}, chosen or self.result_of(x))

    def _arg(self, code: str, x: Tensor, axis: int, dtype: DType) -> Tensor:
        axis %= x.rank
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        place = self.constant(np.array(axis, np.int32))
        return self.emit(code, (x, place), shape, dtype, {"output_type": {"int32": 2, "int64": 4}[dtype]})
