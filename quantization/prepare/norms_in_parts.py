"""Layer, instance, group and root-mean-square norms as operators that have integer kernels, for ``--full-integer``.

before:  y = LayerNormalization (x, scale, bias)
after:   d = Sub (x, ReduceMean (x))
         y = Add (Mul (Mul (d, Pow (Add (ReduceMean (Mul (d, d)), epsilon), -0.5)), scale), bias)

A root-mean-square normalization leaves out the mean; the groups of channels are rows of a reshaped image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted, is_float32, replaced
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import constant, is_constant

_PARTS = ("Add", "Mul", "Pow.constant", "ReduceMean", "Reshape", "Sub")
_OF_CHANNELS = frozenset({"GroupNormalization", "InstanceNormalization"})
_NORMS = _OF_CHANNELS | {"LayerNormalization", "RMSNormalization"}


def norms_in_parts(model: ir.Model, profile: QuantProfile) -> None:
    """Rewrite every such normalization that ``profile`` has no rule for, in place, where it has rules for the parts."""
    if any(profile.rule((part,)) is None for part in _PARTS):
        return
    for node in tuple(model.graph):
        if node.op_type in _NORMS and not node.domain and profile.rule((node.op_type,)) is None and _is_written(node):
            _rewrite(model.graph, node)


def _is_written(node: ir.Node) -> bool:
    """Of float32, with one result and stored scale and bias; of groups of channels, with known sizes."""
    x = node.inputs[0]
    if len(node.outputs) != 1 or x is None or x.shape is None or not is_float32(x):
        return False
    if node.op_type == "GroupNormalization" and not all(isinstance(size, int) for size in list(x.shape)[1:]):
        return False
    return all(value is None or (is_constant(value) and is_float32(value)) for value in node.inputs[1:])


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    x, old = node.inputs[0], node.outputs[0]
    assert x is not None
    assert x.shape is not None
    grouped = node.op_type == "GroupNormalization"
    whole = _in_groups(graph, node, x) if grouped else x
    operator, operands = "Mul", list(_normalized(graph, node, whole))
    if grouped:
        rows = inserted(node, operator, operands, whole).outputs[0]
        operator, operands = "Reshape", [rows, _sizes(graph, old, list(x.shape))]
    for after, value in zip(("Mul", "Add"), node.inputs[1:], strict=False):
        if value is None:
            continue
        result = inserted(node, operator, operands, old, shape=x.shape).outputs[0]
        operator, operands = after, [result, _along(graph, node, value, len(x.shape))]
    replaced(node, operator, operands)


def _normalized(graph: ir.Graph, node: ir.Node, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Two factors: ``x`` without its mean, and the reciprocal of the root of its variance."""
    assert x.shape is not None
    old, rank = node.outputs[0], len(x.shape)
    first = 2 if node.op_type in _OF_CHANNELS else node.attributes.get_int("axis", -1) % rank
    axes = add_constant(graph, f"{old.name}_axes", np.arange(first, rank, dtype=np.int64))
    left = ir.Shape([*list(x.shape)[:first], *[1] * (rank - first)])
    centred = x
    if node.op_type != "RMSNormalization":
        mean = inserted(node, "ReduceMean", [x, axes], old, {"keepdims": 1}, left).outputs[0]
        centred = inserted(node, "Sub", [x, mean], old, shape=x.shape).outputs[0]
    square = inserted(node, "Mul", [centred, centred], old, shape=x.shape).outputs[0]
    variance = inserted(node, "ReduceMean", [square, axes], square, {"keepdims": 1}, left).outputs[0]
    epsilon = _number(graph, old, "epsilon", node.attributes.get_float("epsilon", 1e-5))
    padded = inserted(node, "Add", [variance, epsilon], variance).outputs[0]
    return centred, inserted(node, "Pow", [padded, _number(graph, old, "power", -0.5)], padded).outputs[0]


def _in_groups(graph: ir.Graph, node: ir.Node, x: ir.Value) -> ir.Value:
    """``x`` as (batch, groups, all of a group)."""
    assert x.shape is not None
    sizes = [size for size in list(x.shape)[1:] if isinstance(size, int)]
    groups = node.attributes.get_int("num_groups", 1)
    shape = [x.shape[0], groups, math.prod(sizes) // groups]
    rows = _sizes(graph, node.outputs[0], shape, "groups")
    return inserted(node, "Reshape", [x, rows], x, shape=ir.Shape(shape)).outputs[0]


def _sizes(graph: ir.Graph, of: ir.Value, shape: Sequence[int | ir.SymbolicDim], name: str = "sizes") -> ir.Value:
    """Of a reshape that leaves the batch as it is."""
    sizes = [0, *(size for size in shape[1:] if isinstance(size, int))]
    return add_constant(graph, f"{of.name}_{name}", np.array(sizes, np.int64))


def _number(graph: ir.Graph, of: ir.Value, name: str, number: float) -> ir.Value:
    return add_constant(graph, f"{of.name}_{name}", np.array(number, np.float32))


def _along(graph: ir.Graph, node: ir.Node, value: ir.Value, rank: int) -> ir.Value:
    """Scale or bias as it broadcasts: of channels for an instance or a group normalization, else of the last axes."""
    if node.op_type not in _OF_CHANNELS:
        return value
    return add_constant(graph, f"{value.name}_channels", constant(value).reshape(-1, *[1] * (rank - 2)))
