"""Which nodes count: their floats are whole numbers, places or angles, of which bfloat16 keeps eight bits alone.

Of 257 it makes 256, and a sine of an angle of many turns is any number.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.quantization.graph.units import is_float

_MOVES = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
})  # fmt: skip
_POINTWISE = frozenset({
    "Abs", "Add", "Ceil", "Clip", "Div", "Floor", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "Relu",
    "Round", "Sqrt", "Sub", "Where",
})  # fmt: skip
_DELICATE = frozenset({"Sin", "Cos", "Tan", "Floor", "Ceil", "Round", "Mod"})


def counting(graph: ir.Graph) -> frozenset[ir.Node]:
    """What reads floats made of integers, up to the first arithmetic, and what makes those that become integers.

    Angles, and what is rounded to whole numbers, are among the latter; both ways, values that are moved stay the same,
    and back from there also what is computed element by element counts, up to the first product or sum over an axis.
    """
    return frozenset((*_behind_integers(graph), *_before_integers(graph)))


def _behind_integers(graph: ir.Graph) -> set[ir.Node]:
    counts = set[ir.Value]()
    found = set[ir.Node]()
    for node in graph:
        if node.op_type == "Cast" and not node.domain and _is_integer(node.inputs[0]):
            counts.update(filter(is_float, node.outputs))
        elif any(value in counts for value in node.inputs if value is not None):
            found.add(node)
            if node.op_type in _MOVES:
                counts.update(filter(is_float, node.outputs))
    return found


def _before_integers(graph: ir.Graph) -> set[ir.Node]:
    found = set[ir.Node]()
    waiting = [node for node in graph if node.op_type in _DELICATE and not node.domain]
    found.update(waiting)
    waiting += [node for node in graph if node.op_type == "Cast" and _is_integer(node.outputs[0])]
    while waiting:
        node = waiting.pop()
        makers = [value.producer() for value in node.inputs if value is not None and is_float(value)]
        for maker in makers:
            if maker is not None and maker not in found and maker.op_type != "Cast":
                found.add(maker)
                if maker.op_type in _MOVES or maker.op_type in _POINTWISE:
                    waiting.append(maker)
    return found


def _is_integer(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_integer()
