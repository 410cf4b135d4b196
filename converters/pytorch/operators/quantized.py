"""Programs that torch's pt2e flow has quantized: their operators in ONNX, as QuantizeLinear and DequantizeLinear.

Semantics: torch/ao/quantization/fx/_decomposed.py.  torch's own translation forgets that values end at ``quant_min``
and ``quant_max``, which may be narrower than the type.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnxscript import opset18 as op

from convertkit.converters.pytorch.compat import exporters
from convertkit.errors import Unsupported

_TYPES = {
    ir.DataType.INT8: np.int8,
    ir.DataType.UINT8: np.uint8,
    ir.DataType.INT16: np.int16,
    ir.DataType.UINT16: np.uint16,
    ir.DataType.INT32: np.int32,
}
_STATIC = ("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel")


def define() -> None:
    """Make the operators known to torch, which registers them where its quantizer is imported."""
    with suppress(ModuleNotFoundError):  # then reading the program says that they are missing
        importlib.import_module(exporters.DECOMPOSED)


def translations() -> dict[Any, Callable[..., Any]]:
    """The ONNX forms by overload, as torch's exporter for exported programs takes them."""
    known = torch.ops.quantized_decomposed
    return {getattr(known, name).default: _TRANSLATIONS[name] for name in _STATIC}


def _quantize(x: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int) -> Any:
    step = np.float32(scale)
    kind = _kind(dtype)
    x = _limited(x, step, np.int64(zero_point), quant_min, quant_max, kind)
    return op.QuantizeLinear(x, _constant(step), _constant(kind(zero_point)))


def _dequantize(
    q: Any, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: int, out_dtype: int | None = None
) -> Any:
    return _as(op.DequantizeLinear(q, _constant(np.float32(scale)), _constant(_kind(dtype)(zero_point))), out_dtype)


def _quantize_channels(
    x: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: int
) -> Any:
    kind = _kind(dtype)
    q = op.QuantizeLinear(x, op.Cast(scales, to=int(ir.DataType.FLOAT)), op.Cast(zero_points, to=dtype), axis=axis)
    if _is_whole(kind, quant_min, quant_max):
        return q
    return op.Clip(q, _constant(kind(quant_min)), _constant(kind(quant_max)))


def _dequantize_channels(
    q: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None = None,
) -> Any:
    steps = op.Cast(scales, to=int(ir.DataType.FLOAT))
    zeros = None if zero_points is None else op.Cast(zero_points, to=dtype)
    return _as(op.DequantizeLinear(q, steps, zeros, axis=axis), out_dtype)


def _limited(x: Any, step: Any, zero_point: Any, low: int, high: int, kind: Any) -> Any:
    """``x`` where its integers end before their type does; the bounds are exact, as whole steps."""
    if _is_whole(kind, low, high):
        return x
    return op.Clip(x, *(_constant(np.float32(bound - zero_point) * step) for bound in (low, high)))


def _is_whole(kind: Any, low: int, high: int) -> bool:
    return bool(low <= np.iinfo(kind).min and high >= np.iinfo(kind).max)


def _kind(dtype: int) -> Any:
    try:
        return _TYPES[ir.DataType(dtype)]
    except KeyError:
        raise Unsupported(
            f"integers of the type {ir.DataType(dtype).name.lower()}; expected 8, 16 or 32 bits"
        ) from None


def _constant(value: Any) -> Any:
    return op.Constant(value=onnx.numpy_helper.from_array(np.asarray(value)))


def _as(values: Any, dtype: int | None) -> Any:
    return values if dtype in (None, -1, int(ir.DataType.FLOAT)) else op.Cast(values, to=dtype)


_TRANSLATIONS: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor": _quantize,
    "dequantize_per_tensor": _dequantize,
    "quantize_per_channel": _quantize_channels,
    "dequantize_per_channel": _dequantize_channels,
}
