"""Operators that TVM 0.27 does not import or computes differently, in forms that it computes as ONNX says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.inverse_hyperbolics import write_atanh
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.transforms import write_transform
from convertkit.targets.forms.unrolled_cells import write_cells
from convertkit.targets.forms.writing import write_each

_BODIES = frozenset({
    "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad", "ConvInteger", "HammingWindow",
    "HannWindow", "LinearAttention", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul", "RotaryEmbedding",
    "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
})  # fmt: skip
"""What the importer lacks, or takes for com.microsoft's, and ONNX or we give a body of operators that it has."""

_FORMS: Mapping[str, Callable[[ir.Node], None]] = {
    "Atanh": write_atanh,
    "DFT": write_transform,
    "LpNormalization": write_lp_normalization,
}


def write_forms(model: ir.Model) -> None:
    """Rewrite in place."""
    expand_functions(model, lambda node: node.op_type not in _BODIES)
    write_each(model, _FORMS)
    write_cells(model, "TVM")
    write_long_shifts(model)
