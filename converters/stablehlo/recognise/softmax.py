"""Softmax and its logarithm from maximum, exponentials and sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from convertkit.onnx.recognise.match import added

Size = int | ir.SymbolicDim


def recognise_softmax(node: ir.Node) -> None:
    """The stable softmax over one axis, as ``jax.nn.softmax`` and Keras write it.

    before:  x → ReduceMax(a) → [Max(-inf)] → Reshape → m;  e = Exp(Sub(x, m));  Div(e, Reshape(ReduceSum(e, a)))
    after:   x → Softmax(axis=a)

    Softmax is defined as exactly this; rows of -inf, NaN and +inf give NaN in both.
    """
    if node.op_type != "Div" or node.domain != "" or node.inputs[0] is None:
        return
    power = node.inputs[0]
    _written(node, "Softmax", power, _operand(power, "Exp"), node.inputs[1])


def recognise_log_softmax(node: ir.Node) -> None:
    """Its logarithm.

    before:  d = Sub(x, m) with m as above;  Sub(d, Log(Reshape(ReduceSum(Exp(d), a))))
    after:   x → LogSoftmax(axis=a)
    """
    if node.op_type != "Sub" or node.domain != "" or node.inputs[0] is None:
        return
    difference, total = node.inputs[0], _operand(node.inputs[1], "Log")
    for power in [use.node.outputs[0] for use in difference.uses() if use.node.op_type == "Exp"]:
        _written(node, "LogSoftmax", power, difference, total)


def _written(
    node: ir.Node, operator: str, power: ir.Value, difference: ir.Value | None, total: ir.Value | None
) -> None:
    """Put ``operator`` for ``node`` where ``power`` is e to the ``difference`` from x's greatest, ``total`` its sum."""
    minus = None if difference is None else difference.producer()
    if minus is None or minus.op_type != "Sub" or minus.domain != "" or node.op_type == "Identity":
        return
    x = minus.inputs[0]
    if (
        x is None
        or x.dtype != ir.DataType.FLOAT
        or x.shape is None
        or power.shape is None
        or not _alike(list(power.shape), list(x.shape))
    ):
        return
    axis = _reduced(total, "ReduceSum", power)
    if axis is None or axis != _reduced(minus.inputs[1], "ReduceMax", x):
        return
    old = node.outputs[0]
    result = added(node, operator, [x], old, f"{node.name or old.name}/{operator.lower()}")
    made = result.producer()
    assert made is not None
    made.attributes["axis"] = ir.AttrInt64("axis", axis)
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
    if reduction.inputs[0] is None or len(reduction.inputs) != 2 or reduction.inputs[1] is None:
        return None
    axes = reduction.inputs[1].const_value
    if axes is None or axes.size != 1:
        return None
    axis = _place(source, reduction.inputs[0], int(axes.numpy().reshape(-1)[0]))
    wanted = [1 if place == axis else size for place, size in enumerate(source.shape)]
    leading = [1] * (len(wanted) - len(value.shape))  # what broadcasting puts in front
    return axis if axis is not None and _alike([*leading, *value.shape], wanted) else None


def _place(value: ir.Value, source: ir.Value, axis: int) -> int | None:
    """The axis of ``value`` that ``axis`` of ``source`` is, where they differ in axes of size 1 at most."""
    if value.shape is None or source.shape is None:
        return None
    axis %= len(source.shape)
    if value is source:
        return axis
    node = value.producer()
    if node is None or node.op_type not in ("Reshape", "Unsqueeze", "Squeeze") or node.inputs[0] is not source:
        return None
    here, there = ([place for place, size in enumerate(shape) if size != 1] for shape in (value.shape, source.shape))
    same = _alike([value.shape[place] for place in here], [source.shape[place] for place in there])
    return here[there.index(axis)] if same and axis in there else None


def _alike(sizes: Sequence[Size], others: Sequence[Size]) -> bool:
    """Whether shapes of equally many elements are the same; one dynamic size follows from the others."""
    if list(sizes) == list(others) and all(isinstance(size, int) or size.value is not None for size in sizes):
        return True
    pairs = list(zip(sizes, others, strict=False))
    free = sum(not isinstance(one, int) and not isinstance(other, int) for one, other in pairs)
    known = all(one == other != 0 for one, other in pairs if isinstance(one, int) or isinstance(other, int))
    return len(sizes) == len(others) and free == 1 and known


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
