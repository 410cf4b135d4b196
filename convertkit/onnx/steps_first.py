"""RNN, GRU and LSTM whose batch comes first (``layout`` 1), which ONNX Runtime does not execute, steps first.

before:  X (batch, step, feature) → LSTM layout=1 → Y (batch, step, direction, hidden), Y_h, Y_c
after:   Transpose → LSTM → Transpose
Source: ONNX operators, LSTM-14, ``layout``.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

_RECURRENT = frozenset({"RNN", "GRU", "LSTM"})
_TURNED_OPERANDS = (0, 5, 6)
"""X, and the states that it begins with."""
_SWAP, _OUTPUT = (1, 0, 2), (2, 0, 1, 3)


def put_steps_first(model: ir.Model) -> bool:
    """Write every such operator of ``model`` with its steps first, in place; whether there was one."""
    found = [node for node in model.graph.all_nodes() if node.op_type in _RECURRENT and not node.domain]
    turned = [node for node in found if node.attributes.get_int("layout", 0)]
    for node in turned:
        node.attributes.pop("layout")
        for place in _TURNED_OPERANDS:
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is not None:
                node.replace_input_with(place, _transposed_before(node, value))
        for place, value in enumerate(node.outputs):
            if value.name:
                _transpose_behind(node, value, _SWAP if place else _OUTPUT)
    return bool(turned)


def _transposed_before(node: ir.Node, value: ir.Value) -> ir.Value:
    made = ir.node("Transpose", [value], {"perm": _SWAP}, name=f"{node.name}/{value.name}/steps_first")
    result = made.outputs[0]
    result.name, result.type, result.shape = made.name, value.type, _permuted(value.shape, _SWAP)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return result


def _transpose_behind(node: ir.Node, value: ir.Value, perm: Sequence[int]) -> None:
    """``value`` keeps its name and its readers, and is computed by a Transpose of the operator's own result."""
    name, readers = value.name, list(value.uses())
    made = ir.node("Transpose", [value], {"perm": perm}, name=f"{node.name}/{name}/batch_first")
    result = made.outputs[0]
    result.type, result.shape = value.type, value.shape
    assert node.graph is not None
    node.graph.insert_after(node, made)
    if value.is_graph_output():
        graph = node.graph
        for place, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[place] = result
    for reader, place in readers:
        reader.replace_input_with(place, result)
    inverse = [list(perm).index(axis) for axis in range(len(perm))]
    value.shape = _permuted(value.shape, inverse)
    value.name = f"{name}/steps_first"
    result.name = name


def _permuted(shape: ir.Shape | None, perm: Sequence[int]) -> ir.Shape | None:
    return None if shape is None or len(shape) != len(perm) else ir.Shape([shape[axis] for axis in perm])
