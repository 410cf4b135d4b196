"""What integers and floats read is computed for each of them.

before:  s = Add (x, y) → QuantizeLinear, s → LayerNormalization
after:   s = Add (x, y) → QuantizeLinear, t = Add (x, y) → LayerNormalization

RKNN-Toolkit2 2.5.0 rounds such a value for all who read it, which the graph does not say: a layer norm of small values
was 13 dB off.  Products, recurrent layers and loops are not computed twice.
"""

from __future__ import annotations

import itertools

import onnx_ir as ir

_ONCE = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "GRU", "LSTM", "RNN", "If", "Loop", "Scan", "DequantizeLinear"}
)
"""Products, layers and bodies, and what is read as it is rounded."""
_MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice"})


def compute_twice(model: ir.Model) -> int:
    """In place; how many values there were."""
    return sum(_is_divided(model.graph, node) for node in tuple(model.graph) if len(node.outputs) == 1)


def _is_divided(graph: ir.Graph, node: ir.Node) -> bool:
    value = node.outputs[0]
    rounding = [use for use in value.uses() if use.node.op_type == "QuantizeLinear"]
    is_mixed = rounding and (len(rounding) < len(tuple(value.uses())) or value.is_graph_output())
    copy = _copied(graph, node) if is_mixed else None
    if copy is None:
        return False
    for reader, place in rounding:
        reader.replace_input_with(place, copy)
    return True


def _copied(graph: ir.Graph, node: ir.Node) -> ir.Value | None:
    """The same value, computed once more, with what it only moves; None where that is done but once."""
    if node.op_type in _ONCE:
        return None
    inputs = list(node.inputs)
    maker = None if inputs[0] is None or node.op_type not in _MOVES else inputs[0].producer()
    if maker is not None and maker.op_type != "DequantizeLinear":
        inputs[0] = _copied(graph, maker)
        if inputs[0] is None:
            return None
    made = ir.node(node.op_type, inputs, dict(node.attributes))
    old, result = node.outputs[0], made.outputs[0]
    made.name = result.name = _free(graph, f"{old.name}/rounded")
    result.shape, result.type = old.shape, old.type
    graph.insert_before(node, made)
    return result


def _free(graph: ir.Graph, stem: str) -> str:
    """``stem``, with a number where a value is called so."""
    taken = {value.name for node in graph for value in node.outputs}
    return next(name for number in itertools.count() if (name := f"{stem}_{number}" if number else stem) not in taken)
