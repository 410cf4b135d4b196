"""What passes leave on ONNX values and nodes for the lowering, beside what ONNX itself can say.

After QDQ folding a value holds integers whose scale ONNX no longer states; after activation fusion a
node has a clamp behind it.  Both are annotations in ``meta``, which is never serialised.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.tflite.tensor import QuantParams

NHWC = "convertkit.nhwc"
"""Domain of spatial operators whose images are channels-last."""

OWN = "convertkit.tflite"
"""Domain of Quantize and Dequantize, whose parameters are annotations of their integer side, and of Dense."""

_QUANTIZATION = "tflite.quantization"
_ACTIVATION = "tflite.activation"
_ORDER = "tflite.order"
_REASON = "tflite.reason"


def quantization_of(value: ir.Value) -> QuantParams | None:
    """How the integers of ``value`` stand for reals, None where they are plain numbers."""
    params = value.meta.get(_QUANTIZATION)
    assert params is None or isinstance(params, QuantParams)
    return params


def set_quantization(value: ir.Value, params: QuantParams) -> None:
    """Say how the integers of ``value`` stand for reals."""
    value.meta[_QUANTIZATION] = params


def activation_of(node: ir.Node) -> int:
    """The fused activation behind the node's first output (``ActivationFunctionType``), 0 for none."""
    return int(node.meta.get(_ACTIVATION, 0))


def set_activation(node: ir.Node, activation: int) -> None:
    """Clamp the node's first output."""
    node.meta[_ACTIVATION] = activation


def order_of(value: ir.Value) -> tuple[int, ...]:
    """How the value is stored: axis i is the source's axis ``order[i]``; empty where nothing moved."""
    return tuple(value.meta.get(_ORDER, ()))


def reason_of(node: ir.Node) -> str:
    """Why a pass put the node there; empty for the model's own."""
    return str(node.meta.get(_REASON, ""))


def set_reason(node: ir.Node, reason: str) -> None:
    """Say why the node is there, for the report."""
    node.meta[_REASON] = reason


def set_order(value: ir.Value, order: tuple[int, ...]) -> None:
    """Say that the value is stored with its axes in another order than the source's."""
    value.meta[_ORDER] = order
