"""The transposes that are left in a program, and why each is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from convertkit.targets.tflite.annotations import reason_of
from convertkit.targets.tflite.graph import Program

_OWN_REASON = "the model transposes here itself"


def reasons(graph: ir.Graph) -> dict[str, str]:
    """By node name, why lowering a node may give a transpose."""
    return {str(node.name): _reason(node) for node in graph.all_nodes()}


def remaining(program: Program, reasons: Mapping[str, str]) -> Iterator[dict[str, object]]:
    """One entry for each TRANSPOSE: the tensor that it makes, its shape, its node and the reason, JSON-able."""
    for subgraph in program.subgraphs:
        for operation in subgraph.operations:
            if operation.code == "TRANSPOSE":
                result = operation.outputs[0]
                lowered = result.name.rpartition("/")[0]  # a tensor's first name is NODE/operator
                yield {
                    "tensor": program.name_of(result),
                    "shape": list(result.shape),
                    "node": operation.origin,
                    "why": reasons.get(lowered) or reasons.get(operation.origin.partition(" (")[0]) or _OWN_REASON,
                }


def _reason(node: ir.Node) -> str:
    if node.op_type == "Transpose":
        return reason_of(node) or _OWN_REASON
    return f"TFLite's kernels compute {node.op_type} along other axes than the model does"
