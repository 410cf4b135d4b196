"""Gemm of integers as MatMul and Add: ONNX Runtime has kernels of Gemm for floats alone."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_KINDS = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64})


def multiply_integers(model: ir.Model) -> None:
    """Rewrite every such Gemm whose factors are integers, in place."""
    for node in list(model.graph.all_nodes()):
        x = node.inputs[0] if node.inputs else None
        if node.op_type == "Gemm" and not node.domain and x is not None and x.dtype in _KINDS:
            factors = [node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")]
            if all(factor.is_integer() for factor in factors):
                _rewrite(node, *(int(factor) for factor in factors))


def _rewrite(node: ir.Node, alpha: int, beta: int) -> None:
    graph, old = node.graph, node.outputs[0]
    assert graph is not None
    x, y = node.inputs[:2]
    c = node.inputs[2] if len(node.inputs) > 2 else None
    assert x is not None
    assert y is not None
    dtype, made = x.dtype, list[ir.Node]()
    assert dtype is not None

    def add(op: str, *inputs: ir.Value, attributes: dict[str, list[int]] | None = None) -> ir.Value:
        each = ir.node(op, list(inputs), attributes or {}, name=f"{node.name}/{op}{len(made)}")
        each.metadata_props.update(node.metadata_props)
        each.outputs[0].type = ir.TensorType(dtype)
        made.append(each)
        return each.outputs[0]

    def times(value: ir.Value, factor: int) -> ir.Value:
        if factor == 1:
            return value
        number = ir.Value(name=f"{node.name}/factor{len(made)}", const_value=ir.tensor(np.array(factor, dtype.numpy())))
        graph.initializers.add(number)
        return add("Mul", value, number)

    turned = [
        add("Transpose", value, attributes={"perm": [1, 0]}) if node.attributes.get_int(name, 0) else value
        for value, name in ((x, "transA"), (y, "transB"))
    ]
    result = times(add("MatMul", *turned), alpha)
    if c is not None and beta != 0:
        result = add("Add", result, times(c, beta))
    result.shape, result.type = old.shape, old.type
    graph.insert_before(node, made)
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    name = old.name
    graph.remove(node, safe=True)
    result.name = name
