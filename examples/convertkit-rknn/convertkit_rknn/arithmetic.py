"""Arithmetic of different operands in the form that RKNN-Toolkit2 reads between integers.

before:  x [1, 16, 32] → Add stored [1, 16, 32]
after:   Reshape [1, 1, 16, 32] → Add stored [1, 1, 16, 32] → Reshape [1, 16, 32]

before:  x [1, 16, 32] → Sub y [1, 16, 1]
after:   Reshape [1, 1, 16, 32] → Sub, Reshape y [1, 1, 16, 1] → Reshape [1, 16, 32]

before:  x [1, 8, 4, 4] → Sub stored [1, 1, 4, 4]
after:   x → Add, what is stored with the other sign

RKNN-Toolkit2 2.5.0 crashes on the former: on one, two, three or five axes where one operand is stored, or shorter than
the other, and on differences and quotients of four by what is stored.  A single stored value it takes anywhere.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted, replaced
from convertkit_rknn.sizes import Sizes, known_sizes, reshaped, stated

_AXES = 4
_INVERSE = {"Sub": ("Add", np.negative), "Div": ("Mul", np.reciprocal)}
_KINDS = ("Add", "Mul", *_INVERSE)


def write_arithmetic(model: ir.Model) -> int:
    """In place; how many operators were written."""
    return sum(_is_written(model.graph, node) for node in tuple(model.graph) if node.op_type in _KINDS)


def _is_written(graph: ir.Graph, node: ir.Node) -> bool:
    result = node.outputs[0]
    sizes = known_sizes(result)
    operands = [value for value in node.inputs if value is not None]
    if result.dtype != ir.DataType.FLOAT or not sizes or not _differ(operands, sizes):
        return False
    four = [_of_operand(known_sizes(value), sizes) for value in operands]
    if not all(four):
        return False
    kind, operands = _turned(graph, node, operands)
    if (kind, operands, four) == (node.op_type, list(node.inputs), [known_sizes(value) for value in operands]):
        return False
    written = [_in_sizes(graph, node, value, wanted) for value, wanted in zip(operands, four, strict=True)]
    if len(sizes) == _AXES:
        replaced(node, kind, written)
        return True
    whole = _four(sizes)
    computed = inserted(node, kind, written, result, shape=ir.Shape(whole)).outputs[0]
    replaced(node, "Reshape", [computed, stated(graph, result, sizes)])
    return True


def _differ(operands: list[ir.Value], sizes: Sizes) -> bool:
    """Whether one is stored or shorter than the result, and more than a single value."""
    shorter = [value for value in operands if value.const_value is not None or known_sizes(value) != sizes]
    known = all(known_sizes(value) or value.const_value is not None for value in operands)
    return known and any(math.prod(known_sizes(value)) > 1 for value in shorter)


def _turned(graph: ir.Graph, node: ir.Node, operands: list[ir.Value]) -> tuple[str, list[ir.Value]]:
    """A difference from what is stored as a sum, a quotient by it as a product."""
    stored = operands[-1].const_value
    if node.op_type not in _INVERSE or stored is None:
        return node.op_type, operands
    kind, inverse = _INVERSE[node.op_type]
    with np.errstate(divide="ignore", over="ignore"):  # by 0, which is infinite in both forms
        turned = inverse(stored.numpy())
    return kind, [operands[0], add_constant(graph, f"{operands[-1].name}/{kind}", turned)]


def _of_operand(own: Sizes, sizes: Sizes) -> Sizes:
    """Four axes for one of ``own`` sizes that meets ``sizes``; none where axes that join are neither all nor 1."""
    aligned = (1,) * (len(sizes) - len(own)) + own
    middle = aligned[1:-2]
    is_whole = len(sizes) <= _AXES or middle == sizes[1:-2] or set(middle) == {1}
    return _four(aligned) if is_whole else ()


def _four(sizes: Sizes) -> Sizes:
    """Ones in front, or all axes between the first and the last two as one."""
    if len(sizes) <= _AXES:
        return (1,) * (_AXES - len(sizes)) + sizes
    return sizes[0], math.prod(sizes[1:-2]), sizes[-2], sizes[-1]


def _in_sizes(graph: ir.Graph, node: ir.Node, value: ir.Value, sizes: Sizes) -> ir.Value:
    if known_sizes(value) == sizes:
        return value
    if value.const_value is not None:
        return add_constant(graph, f"{value.name}/four", value.const_value.numpy().reshape(sizes))
    return reshaped(graph, node, value, sizes)
