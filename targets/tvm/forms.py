"""Operators that TVM 0.27 does not import or computes differently, in forms that it computes as ONNX says."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.unrolled_cells import write_cells

_BODIES = frozenset({
    "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad", "ConvInteger", "HammingWindow",
    "HannWindow", "LinearAttention", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul", "RotaryEmbedding",
    "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
})  # fmt: skip
"""What the importer lacks, or takes for com.microsoft's, and ONNX or we give a body of operators that it has."""


def write_forms(model: ir.Model) -> None:
    """Rewrite in place."""
    expand_functions(model, lambda node: node.op_type not in _BODIES)
    write_cells(model, "TVM")
    write_long_shifts(model)
