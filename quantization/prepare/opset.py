"""Raising a model's opset where a quantized form needs it."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from convertkit.errors import Unsupported

INT16_OPSET = INT4_OPSET = 21


def at_least(model: ir.Model, opset: int) -> ir.Model:
    """The model at ``opset`` or above; 16 and 4 bit integers need 21."""
    current = model.graph.opset_imports.get("", 0)
    if current >= opset:
        return model
    try:
        converted: ir.Model = ir.from_proto(onnx.version_converter.convert_version(ir.to_proto(model), opset))
    except (onnx.version_converter.ConvertError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1][:200]
        raise Unsupported(
            f"opset {current} cannot be brought to {opset}, which these integers need: {reason}"
        ) from error
    return converted
