"""Functions of a model that are written in another opset than the model itself."""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

from convertkit.errors import Unsupported


def at_one_opset(model: ir.Model) -> None:
    """Give every function the model's opset, in place, so that it can be inlined.

    ``Unsupported`` where one has an operator that means something else there.
    """
    opset = model.graph.opset_imports.get("")
    for function in model.functions.values():
        own = function.opset_imports.get("")
        if opset is None or own is None or own == opset:
            continue
        for node in function.all_nodes():
            if not node.domain and _since(node, own) != _since(node, opset):
                raise Unsupported(
                    f"its {node.op_type} is of opset {own}, and the model's opset {opset} has another",
                    subject=f"function {function.domain}.{function.name}",
                )
        function.opset_imports[""] = opset


def _since(node: ir.Node, opset: int) -> int | None:
    """The version of an operator of ONNX that an opset has."""
    return defs.get_schema(node.op_type, opset, "").since_version if defs.has(node.op_type, opset, "") else None
