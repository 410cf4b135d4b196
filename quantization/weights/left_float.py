"""What stays float beside integers, in half of its bytes: convolutions with few weights, tables that are added.

Float16 keeps 11 bits of each number, where the integers beside it keep 8.  A runtime makes them float32 when it loads
the model.  Biases beside integer weights stay float32: the fast kernels of LiteRT 2.3 take no others there.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, bypass, drop_unused, only_user
from convertkit.quantization.graph.units import constant, is_constant, is_float
from convertkit.quantization.weights.half import store_half

LEAST_NUMBERS = 256
"""Of a constant: a smaller one saves no more than its own DEQUANTIZE takes in the file."""
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Where"})
_LEAST_DIVISOR = 2.0**-14
"""A smaller one loses digits in float16, or is 0."""
_MOST_CANCELLED = 64.0
"""How much larger the terms of a sum may be than what is left of them."""


def store_what_is_float(model: ir.Model) -> None:
    """Float32 constants as float16 behind a Cast, in place; of tables added one after the other only their sum."""
    for node in tuple(model.graph):
        _join(model.graph, node)
    drop_unused(model.graph)
    store_half(model, _is_wanted)


def _is_wanted(value: ir.Value) -> bool:
    """Whether convolutions of float weights alone read it, or it is a table that elementwise operators read."""
    array = constant(value)
    is_table = sum(size > 1 for size in array.shape) > 1
    return array.size >= LEAST_NUMBERS and all(
        _is_float_convolution(node)
        or (is_table and node.op_type in _ELEMENTWISE and not node.domain and not _divides(node, place, array))
        for node, place in value.uses()
    )


def _divides(node: ir.Node, place: int, array: Array) -> bool:
    """Whether small numbers of a table are divided by: what they lose is not small beside what the others give."""
    return node.op_type == "Div" and place == 1 and float(np.abs(array).min()) < _LEAST_DIVISOR


def _is_float_convolution(node: ir.Node) -> bool:
    weight = node.inputs[1] if node.op_type in _CONVOLUTIONS and not node.domain else None
    return weight is not None and is_constant(weight)


def _join(graph: ir.Graph, node: ir.Node) -> None:
    """Add(Add(x, positions), types) → Add(x, positions + types), two tables of equal shape."""
    reader = only_user(node.outputs[0]) if _adds(node) else None
    if reader is None or reader.graph is not graph or not _adds(reader):
        return
    source, mine = _operands(node)
    _, table = _operands(reader)
    if mine is None or table is None or source is None or source.shape != node.outputs[0].shape:
        return
    one, other = constant(mine), constant(table)
    if one.shape != other.shape or one.size < LEAST_NUMBERS or not _is_kept(one, other):
        return
    place = next(index for index, value in enumerate(reader.inputs) if value is table)
    reader.replace_input_with(place, add_constant(graph, f"{table.name}_joined", one + other))
    bypass(node, source)


def _adds(node: ir.Node) -> bool:
    return node.op_type == "Add" and not node.domain and len(node.inputs) == 2 and is_float(node.outputs[0])


def _operands(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """What is computed and what is constant of an Add; None where it has not one of each."""
    given = [value for value in node.inputs if value is not None]
    fixed = [value for value in given if is_constant(value)]
    computed = [value for value in given if not is_constant(value)]
    return (computed[0], fixed[0]) if len(fixed) == 1 and len(computed) == 1 else (None, None)


def _is_kept(one: Array, other: Array) -> bool:
    """Whether the sum keeps what its terms say: of large ones that cancel, what x + one rounds off is part of y."""
    terms = float(np.abs(one).max(initial=0.0)) + float(np.abs(other).max(initial=0.0))
    return bool(np.isfinite(terms)) and terms <= _MOST_CANCELLED * float(np.sqrt(np.mean((one + other) ** 2)))
