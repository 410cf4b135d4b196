"""MeanVarianceNormalization of equal elements as zeros.

ONNX Runtime's kernel divides by the deviation alone, so that it gives 0 / 0 where all elements are equal; ONNX's body
adds 1e-9 to the deviation.
Measured: ONNX Runtime 1.31, by ``tests/targets/onnxruntime/test_mean_variance.py``.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import is_float32
from convertkit.targets.forms.functions import expand_functions


def write_out_mean_variance(model: ir.Model) -> None:
    """Write MeanVarianceNormalization of float32 as other operators, in place; the kernel takes no other type."""
    expand_functions(model, lambda node: node.op_type != "MeanVarianceNormalization" or not is_float32(node.outputs[0]))
