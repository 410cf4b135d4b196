"""Layer, instance and root-mean-square normalizations as operators that have integer kernels, for ``--full-integer``.

before:  y = LayerNormalization (x, scale, bias)
after:   d = Sub (x, ReduceMean (x))
         y = Add (Mul (Mul (d, Pow (Add (ReduceMean (Mul (d, d)), epsilon), -0.5)), scale), bias)

A root-mean-square normalization leaves out the mean.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted, is_float32, replaced
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import constant, is_constant

_PARTS = ("Add", "Mul", "Pow.constant", "ReduceMean", "Sub")
_NORMS = frozenset({"LayerNormalization", "InstanceNormalization", "RMSNormalization"})


def norms_in_parts(model: ir.Model, profile: QuantProfile) -> None:
    """Rewrite every such normalization that ``profile`` has no rule for, in place, where it has rules for the parts."""
    if any(profile.rule((part,)) is None for part in _PARTS):
        return
    for node in tuple(model.graph):
        if node.op_type in _NORMS and not node.domain and profile.rule((node.op_type,)) is None and _is_written(node):
            _rewrite(model.graph, node)


def _is_written(node: ir.Node) -> bool:
    """Of float32, with one result and stored scale and bias."""
    x = node.inputs[0]
    whole = len(node.outputs) == 1 and x is not None and x.shape is not None and is_float32(x)
    return whole and all(value is None or (is_constant(value) and is_float32(value)) for value in node.inputs[1:])


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    x, old = node.inputs[0], node.outputs[0]
    assert x is not None
    assert x.shape is not None
    rank = len(x.shape)
    first = 2 if node.op_type == "InstanceNormalization" else node.attributes.get_int("axis", -1) % rank
    axes = add_constant(graph, f"{old.name}_axes", np.arange(first, rank, dtype=np.int64))
    left = ir.Shape([*list(x.shape)[:first], *[1] * (rank - first)])
    centred = x
    if node.op_type != "RMSNormalization":
        mean = inserted(node, "ReduceMean", [x, axes], old, {"keepdims": 1}, left).outputs[0]
        centred = inserted(node, "Sub", [x, mean], old).outputs[0]
    square = inserted(node, "Mul", [centred, centred], old).outputs[0]
    variance = inserted(node, "ReduceMean", [square, axes], square, {"keepdims": 1}, left).outputs[0]
    epsilon = _number(graph, old, "epsilon", node.attributes.get_float("epsilon", 1e-5))
    padded = inserted(node, "Add", [variance, epsilon], variance).outputs[0]
    factor = inserted(node, "Pow", [padded, _number(graph, old, "power", -0.5)], padded).outputs[0]
    operator, operands, like = "Mul", [centred, factor], factor
    for after, value in zip(("Mul", "Add"), node.inputs[1:], strict=False):
        if value is None:
            continue
        like = inserted(node, operator, operands, like, shape=old.shape).outputs[0]
        operator, operands = after, [like, _along(graph, node, value, rank)]
    replaced(node, operator, operands)


def _number(graph: ir.Graph, of: ir.Value, name: str, number: float) -> ir.Value:
    return add_constant(graph, f"{of.name}_{name}", np.array(number, np.float32))


def _along(graph: ir.Graph, node: ir.Node, value: ir.Value, rank: int) -> ir.Value:
    """Scale or bias as it broadcasts: of channels for an instance normalization, else of the last axes."""
    if node.op_type != "InstanceNormalization":
        return value
    return add_constant(graph, f"{value.name}_channels", constant(value).reshape(-1, *[1] * (rank - 2)))
