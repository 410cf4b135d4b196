"""Raising a model's opset where a precision needs it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import detached, reattach

INT16_OPSET = INT4_OPSET = 21
FLOAT8_OPSET = 19
_LARGE_BYTES = 32 << 20


def at_least(model: ir.Model, opset: int) -> ir.Model:
    """The model at ``opset`` or above; 16 and 4 bit integers need 21, bfloat16 22.

    ONNX's converter copies what it is given several times, so that large models give it no weights.
    """
    current = model.graph.opset_imports.get("", 0)
    if current >= opset:
        return model
    large = detached(model) if _is_large(model) else {}
    try:
        converted: ir.Model = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except (onnx.version_converter.ConvertError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1][:200]
        raise Unsupported(
            f"opset {current} cannot be brought to {opset}, which this precision needs: {reason}"
        ) from error
    reattach(converted, large)
    return converted


def _is_large(model: ir.Model) -> bool:
    stored = (value.const_value for value in model.graph.initializers.values())
    return sum(tensor.nbytes for tensor in stored if tensor is not None) > _LARGE_BYTES
