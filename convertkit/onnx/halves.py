"""A model that computes in float16 as one that computes in float32, with the same interface.

float32 holds every half, and no step rounds: the result is nearer to what the model means.  Kernels and
quantization are at home in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from convertkit.onnx.casts import cast_input, cast_node, cast_output

_HALF, _SHORT, _WHOLE = ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "precision")
"""Attributes of ONNX's operators that name the type of a result, or the one that is computed in."""
_BY_BITS = frozenset({"BitCast"})
"""Operators that look at the bits: halves have to stay halves for them."""
_MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Expand", "Tile"})

_EXACT = _MOVES | {
    "Gather", "Pad", "DepthToSpace", "SpaceToDepth", "Relu", "Clip", "Abs", "Neg", "MaxPool", "GlobalMaxPool",
    "ReduceMax", "ReduceMin",
}  # fmt: skip
"""Operators whose results are elements of their first operand, 0 or a bound, up to the sign: they round nothing."""
_CHOICES = frozenset({"Max", "Min", "Concat"})
"""The same of any operand, where the others are constants."""


def widen_halves(model: ir.Model) -> bool:
    """Turn computed float16 values and what they meet into float32, in place; False where there are none.

    Inputs and outputs of the model keep their type.  Constants alone (weights behind a Cast) change nothing.
    Where a model rounds to float16 and nothing that it computes in it rounds again, it still rounds, as it means to.
    The answer is True there where more than moves stands between: ONNX Runtime itself may not round then.
    """
    graphs = (model.graph, *model.graph.subgraphs())
    moved: set[ir.Value] = set()
    rounding = [node for graph in graphs for node in graph if _rounds(node, moved)]
    is_computed = any(_is_half(value) and value not in moved for graph in graphs for value in _computed(graph))
    if not is_computed and not rounding:
        return False
    borders = [value for value in model.graph.inputs if _is_half(value)]
    results = {place: value for place, value in enumerate(model.graph.outputs) if _is_half(value)}
    for graph in graphs:
        _widen(graph)
    for node in rounding:
        _round(node)
    for graph in graphs:
        _drop_casts(graph)
    for value in borders:
        cast_input(model.graph, value, _HALF, _WHOLE)
    for place, value in results.items():
        cast_output(model.graph, place, value, _HALF)
    for node in [node for node in model.graph.all_nodes() if node.op_type in _BY_BITS]:
        _cast_around(node)
    return is_computed


def widen_bfloats(model: ir.Model) -> bool:
    """Turn computed bfloat16 values and what they meet into float32, in place; False where nothing computed is.

    They stay where inputs or outputs of the model are bfloat16, and where an operator looks at their bits.
    """
    graphs, nodes = (model.graph, *model.graph.subgraphs()), list(model.graph.all_nodes())
    if not any(map(_computes_bfloats, nodes)) or any(node.op_type in _BY_BITS for node in nodes):
        return False
    if any(_is_of(value, _SHORT) for value in (*model.graph.inputs, *model.graph.outputs)):
        return False
    for graph in graphs:
        _widen(graph, _SHORT)
    for graph in graphs:
        _drop_casts(graph)
    return True


def _computes_bfloats(node: ir.Node) -> bool:
    depends = any(value is not None and value.const_value is None for value in node.inputs)
    return depends and any(_is_of(value, _SHORT) for value in node.outputs)


def _computed(graph: ir.Graph) -> Iterator[ir.Value]:
    """Values that are computed with; an input or output that a Cast stands behind or before is not."""
    yield from (value for value in graph.inputs if any(use.node.op_type != "Cast" for use in value.uses()))
    for node in graph:
        for value in node.outputs:
            is_border = node.op_type == "Cast" and value.is_graph_output() and not value.uses()
            if node.op_type != "Constant" and not is_border:
                yield value


def _is_half(value: ir.Value) -> bool:
    return _is_of(value, _HALF)


def _is_of(value: ir.Value, kind: ir.DataType) -> bool:
    return isinstance(value.type, ir.TensorType) and value.dtype == kind


def _widen(graph: ir.Graph, half: ir.DataType = _HALF) -> None:
    for value in graph.initializers.values():
        if _is_of(value, half) and value.const_value is not None:
            value.const_value = ir.tensor(value.const_value.numpy().astype(np.float32), name=value.name)
            value.type = ir.TensorType(_WHOLE)
    for value in (*graph.inputs, *(each for node in graph for each in node.outputs)):
        if _is_of(value, half):
            value.type = ir.TensorType(_WHOLE)
    for node in graph:
        for name, attribute in list(node.attributes.items()):
            if name in TYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT and attribute.value == half:
                node.attributes[name] = ir.AttrInt64(name, int(_WHOLE))
            elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype == half:
                wide = ir.tensor(attribute.as_tensor().numpy().astype(np.float32))
                node.attributes[name] = ir.AttrTensor(name, wide)


def _rounds(node: ir.Node, moved: set[ir.Value]) -> bool:
    """Whether a Cast to float16 is there to round: nothing rounds its result again.

    ``moved`` takes what is made of the result, where that is only moved.
    """
    if node.op_type != "Cast" or node.domain or not _is_half(node.outputs[0]) or not node.outputs[0].uses():
        return False
    operand = node.inputs[0]
    if operand is None or operand.dtype != _WHOLE or not _ends_in_casts(node.outputs[0], _is_exact, set()):
        return False
    found: set[ir.Value] = set()
    if _ends_in_casts(node.outputs[0], _is_move, found):
        moved.update(found)
    return True


def _ends_in_casts(value: ir.Value, passes: Callable[[ir.Node, int], bool], found: set[ir.Value]) -> bool:
    """Whether Casts alone read a value, or nodes that pass and whose results are read so; ``found`` takes them."""
    found.add(value)
    return all(
        use.node.op_type == "Cast" or (passes(use.node, use.idx) and _ends_in_casts(use.node.outputs[0], passes, found))
        for use in value.uses()
    )


def _is_move(node: ir.Node, place: int) -> bool:
    return node.op_type in _MOVES and place == 0


def _is_exact(node: ir.Node, place: int) -> bool:
    if node.domain or len(node.outputs) > 1:
        return False
    others = [value for index, value in enumerate(node.inputs) if index != place and value is not None]
    choice = node.op_type in _CHOICES and all(value.is_initializer() for value in others)
    return choice or (node.op_type in _EXACT and place == 0)


def _round(cast: ir.Node) -> None:
    """Down to float16, as the model says, and up again at once."""
    graph, half = cast.graph, cast.outputs[0]
    assert isinstance(graph, ir.Graph)
    cast.attributes["to"] = ir.AttrInt64("to", int(_HALF))
    half.type = ir.TensorType(_HALF)
    wide = cast_node(half, _WHOLE, f"{half.name}/widened")
    ir.convenience.replace_all_uses_with(half, wide.outputs[0], replace_graph_outputs=True)
    wide.replace_input_with(0, half)
    graph.insert_after(cast, wide)


def _drop_casts(graph: ir.Graph) -> None:
    for node in list(graph):
        if node.op_type == "Cast" and node.inputs[0] is not None and not node.domain:
            _drop_if_same(graph, node, node.inputs[0])


def _drop_if_same(graph: ir.Graph, cast: ir.Node, operand: ir.Value) -> None:
    if not operand.dtype == cast.outputs[0].dtype == _WHOLE:
        return
    if cast.outputs[0].is_graph_output():
        cast.op_type = "Identity"  # keeps the output's name
        cast.attributes.clear()
        return
    ir.convenience.replace_all_uses_with(cast.outputs[0], operand)
    graph.remove(cast, safe=True)


def _cast_around(node: ir.Node) -> None:
    """Halves for an operator that looks at their bits, as its type attribute or its operand said before."""
    graph, operand, result = node.graph, node.inputs[0], node.outputs[0]
    assert isinstance(graph, ir.Graph)
    assert operand is not None
    target = ir.DataType(node.attributes["to"].as_int())
    size = {_HALF: 2, _WHOLE: 4}
    if operand.dtype == _WHOLE and target.itemsize == size[_HALF]:
        narrow = cast_node(operand, _HALF, f"{node.name}/narrowed")
        graph.insert_before(node, narrow)
        node.replace_input_with(0, narrow.outputs[0])
    if target == _WHOLE and operand.dtype is not None and operand.dtype.itemsize == size[_HALF]:
        node.attributes["to"] = ir.AttrInt64("to", int(_HALF))
        wide = cast_node(result, _WHOLE, f"{node.name}/widened")
        ir.convenience.replace_all_uses_with(result, wide.outputs[0], replace_graph_outputs=True)
        wide.replace_input_with(0, result)
        result.type = ir.TensorType(_HALF)
        graph.insert_after(node, wide)
