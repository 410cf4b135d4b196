"""Softmax from its maximum, exponentials and sum."""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.converters.stablehlo.recognise.match import added


def recognise_softmax(node: ir.Node) -> None:
    """The stable softmax over one axis, as ``jax.nn.softmax`` and Keras write it.

    before:  x → ReduceMax(a) → [Max(-inf)] → Reshape → m;  e = Exp(Sub(x, m));  Div(e, Reshape(ReduceSum(e, a)))
    after:   x → Softmax(axis=a)

    Softmax is defined as exactly this; rows of -inf, NaN and +inf give NaN in both.
    """
    if node.op_type != "Div" or node.domain != "" or node.inputs[0] is None:
        return
    power = node.inputs[0]
    difference = _operand(power, "Exp")
    minus = None if difference is None else difference.producer()
    if minus is None or minus.op_type != "Sub" or minus.domain != "":
        return
    x = minus.inputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT or x.shape is None or power.shape != x.shape:
        return
    total = _reduced(node.inputs[1], "ReduceSum", power)
    greatest = _reduced(minus.inputs[1], "ReduceMax", x)
    if total is None or total != greatest:
        return
    old = node.outputs[0]
    name = f"{node.name or old.name}/softmax"
    result = added(node, "Softmax", [x], old, name)
    made = result.producer()
    assert made is not None
    made.attributes["axis"] = ir.AttrInt64("axis", total)
    node.op_type = "Identity"
    node.resize_inputs(1)
    node.replace_input_with(0, result)


def _operand(value: ir.Value | None, operator: str) -> ir.Value | None:
    node = None if value is None else value.producer()
    return node.inputs[0] if node is not None and node.op_type == operator and node.domain == "" else None


def _reduced(value: ir.Value | None, operator: str, source: ir.Value) -> int | None:
    """The one axis over which ``value`` reduces ``source``, where it keeps that axis with size 1."""
    if value is None or value.shape is None or source.shape is None:
        return None
    inner = value
    node = value.producer()
    if node is not None and node.op_type in ("Reshape", "Unsqueeze") and node.inputs[0] is not None:
        inner = node.inputs[0]
    inner = _without_floor(inner)
    reduction = inner.producer()
    if reduction is None or reduction.op_type != operator or reduction.domain != "":
        return None
    if reduction.inputs[0] is not source or len(reduction.inputs) != 2 or reduction.inputs[1] is None:
        return None
    axes = reduction.inputs[1].const_value
    if axes is None or axes.size != 1:
        return None
    axis = int(axes.numpy().reshape(-1)[0]) % len(source.shape)
    wanted = [1 if place == axis else size for place, size in enumerate(source.shape)]
    known = all(isinstance(size, int) or size.value is not None for size in wanted)
    leading = [1] * (len(wanted) - len(value.shape))  # what broadcasting puts in front
    return axis if known and [*leading, *value.shape] == wanted else None


def _without_floor(value: ir.Value) -> ir.Value:
    """What is compared with -inf, which changes no maximum."""
    node = value.producer()
    if node is None or node.op_type != "Max" or node.domain != "" or len(node.inputs) != 2:
        return value
    for place in (0, 1):
        floor, other = node.inputs[place], node.inputs[1 - place]
        number = None if floor is None else floor.const_value
        if other is not None and number is not None and number.size == 1 and number.numpy().reshape(-1)[0] == -math.inf:
            return other
    return value
