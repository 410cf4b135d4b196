"""Types of values that are sequences, which shape inference of onnx_ir overwrites.

Its pass merges element types only, so a value without a type that holds a sequence ends as a tensor,
and ONNX Runtime then refuses the Loop that carries it.
"""

from __future__ import annotations

import onnx_ir as ir

_MAKES = frozenset({"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence"})


def restore_sequences(model: ir.Model) -> None:
    """Give values that hold sequences their type again, in place."""
    nodes = [node for node in model.graph.all_nodes() if node.domain == ""]
    found = [node.outputs[0] for node in nodes if node.op_type in _MAKES]
    while found:
        for value in found:
            if isinstance(value.type, ir.TensorType):
                value.type = ir.SequenceType(value.type)
        pairs = [pair for node in nodes for pair in _same_value(node)]
        found = [to for of, to in pairs if isinstance(of.type, ir.SequenceType) and isinstance(to.type, ir.TensorType)]


def _same_value(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    """Pairs (from, to) of values that hold the same thing: through Identity, into and out of a Loop, out of an If."""
    match node.op_type:
        case "Identity":
            pairs = list(zip(node.inputs, node.outputs, strict=True))
        case "Loop":
            body = node.attributes["body"].as_graph()
            pairs = [
                *zip(node.inputs[2:], body.inputs[2:], strict=True),
                *zip(body.outputs[1:], node.outputs, strict=True),
            ]
        case "If":
            branches = (node.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
            pairs = [pair for branch in branches for pair in zip(branch.outputs, node.outputs, strict=True)]
        case _:
            pairs = []
    return [(of, to) for of, to in pairs if of is not None]
