"""Operators that TVM 0.27 does not import or computes differently, in forms that it computes as ONNX says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.inverse_hyperbolics import write_atanh
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.transforms import write_transform
from convertkit.targets.forms.unrolled_cells import write_cells
from convertkit.targets.forms.writing import Place, write_each

_BODIES = frozenset({
    "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad", "ConvInteger", "HammingWindow",
    "HannWindow", "LinearAttention", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul", "RMSNormalization",
    "RotaryEmbedding", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish",
})  # fmt: skip
"""What the importer lacks, or takes for com.microsoft's, and ONNX or we give a body of operators that it has."""

_THRESHOLD = 3


def _write_threshold(node: ir.Node) -> None:
    """TVM drops a box that overlaps as much as the threshold, where ONNX drops those that overlap more: the next one.

    ``Unsupported`` for a threshold that is computed.
    """
    given = node.inputs[_THRESHOLD] if len(node.inputs) > _THRESHOLD else None
    stored = np.zeros(1, np.float32) if given is None else array_of(given)
    if stored is None:
        raise Place(node).refused("its threshold is computed, and TVM drops boxes that overlap exactly as much as that")
    above = np.nextafter(stored.astype(np.float32), np.float32(np.inf))
    if len(node.inputs) <= _THRESHOLD:
        node.resize_inputs(_THRESHOLD + 1)
    least = np.finfo(np.float32).tiny  # kernels may take what is less for 0
    node.replace_input_with(_THRESHOLD, Place(node).constant(np.maximum(above, least)))


_FORMS: Mapping[str, Callable[[ir.Node], None]] = {
    "Atanh": write_atanh,
    "DFT": write_transform,
    "LpNormalization": write_lp_normalization,
    "NonMaxSuppression": _write_threshold,
}


def _is_imported(node: ir.Node) -> bool:
    """Of LayerNormalization the first output alone."""
    whole = node.op_type == "LayerNormalization" and any(
        each.uses() or each.is_graph_output() for each in node.outputs[1:]
    )
    return not whole and node.op_type not in _BODIES


def write_forms(model: ir.Model) -> None:
    """Rewrite in place."""
    expand_functions(model, _is_imported)
    write_each(model, _FORMS)
    write_cells(model, "TVM")
    write_long_shifts(model)
