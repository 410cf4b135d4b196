"""IsInf and IsNaN ask a value itself, not what it was widened to: compilers have no float64.

before:  IsInf(Cast<to=double>(x)) of float32
after:   IsInf(x)

PyTorch's exporter by tracing writes ``torch.isinf`` so.
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

_QUESTIONS = frozenset({"IsInf", "IsNaN"})


def ask_unwidened(model: ir.Model) -> None:
    """Rewrite them, in place; a Cast that nothing else reads goes."""
    found = [node for node in model.graph.all_nodes() if node.op_type in _QUESTIONS and not node.domain]
    for node in found:
        cast = node.inputs[0].producer() if node.inputs[0] is not None else None
        if cast is not None and _widens(cast):
            node.replace_input_with(0, cast.inputs[0])
    if found:
        common.RemoveUnusedNodesPass()(model)


def _widens(node: ir.Node) -> bool:
    source = node.inputs[0] if node.op_type == "Cast" and not node.domain else None
    is_single = source is not None and source.dtype == ir.DataType.FLOAT
    return is_single and node.outputs[0].dtype == ir.DataType.DOUBLE
