"""Where between flags as And, Or and Not: ONNX Runtime's Where takes no bool."""

from __future__ import annotations

import onnx_ir as ir


def choose_flags(model: ir.Model) -> None:
    """Rewrite every such Where, in place.

    before:  Where(c, x, y) of bool
    after:   Or(And(c, x), And(Not(c), y))
    """
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Where" and not node.domain and node.outputs[0].dtype == ir.DataType.BOOL:
            _rewrite(node)


def _rewrite(node: ir.Node) -> None:
    graph, old = node.graph, node.outputs[0]
    assert graph is not None
    made: list[ir.Node] = []

    def add(op: str, *inputs: ir.Value) -> ir.Value:
        each = ir.node(op, list(inputs), name=f"{node.name}/{op}{len(made)}")
        each.metadata_props.update(node.metadata_props)
        each.outputs[0].type = ir.TensorType(ir.DataType.BOOL)
        made.append(each)
        return each.outputs[0]

    condition, x, y = (value for value in node.inputs if value is not None)
    result = add("Or", add("And", condition, x), add("And", add("Not", condition), y))
    result.shape, result.type = old.shape, old.type
    graph.insert_before(node, made)
    ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
    name = old.name
    graph.remove(node, safe=True)
    result.name = name
