"""Forms that RKNN-Toolkit2 reads as integers.

before:  x:i8, w:i8 → MatMul → Add bias → QuantizeLinear
after:   x:i8, w:i8 → Gemm with bias → QuantizeLinear

The toolkit joins the former itself, takes the weights for float16 then, and ends with a ValueError.
"""

from __future__ import annotations

import onnx_ir as ir


def write_gemms(model: ir.Model) -> int:
    """Write products of two dimensions and the bias behind them as one Gemm, in place; how many there were."""
    found = [node for node in model.graph if node.op_type == "Add" and _product(node) is not None]
    for node in found:
        _join(model.graph, node)
    return len(found)


def _product(add: ir.Node) -> ir.Node | None:
    """The MatMul of a dense layer whose bias ``add`` adds; None for any other sum."""
    data, bias = add.inputs
    product = None if data is None else data.producer()
    if data is None or product is None or product.op_type != "MatMul":
        return None
    is_alone = len(tuple(data.uses())) == 1 and not data.is_graph_output()
    is_flat = data.shape is not None and len(data.shape) == 2
    is_bias = bias is not None and bias.const_value is not None and len(bias.const_value.shape) == 1
    weight = product.inputs[1]
    reader = None if weight is None else weight.producer()
    is_stored = reader is not None and reader.op_type == "DequantizeLinear"
    return product if is_alone and is_flat and is_bias and is_stored else None


def _join(graph: ir.Graph, add: ir.Node) -> None:
    product = _product(add)
    assert product is not None
    joined = ir.Node("", "Gemm", [*product.inputs, add.inputs[1]], num_outputs=1, name=product.name)
    old, new = add.outputs[0], joined.outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    graph.insert_before(add, joined)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove([add, product], safe=True)
