"""The chain rule for single operators: the gradients of a node's inputs from that of its output, as more nodes.

Gradients weigh errors here, so the slope of a function of single numbers is a difference quotient.
Semantics: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import Attribute, array_of, axes_of
from convertkit.quantization.graph.gradient_tape import NoRule, Tape, static
from convertkit.quantization.graph.units import is_constant

_STEP = 2.0**-7
_POINTWISE = frozenset({
    "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Gelu", "Erf", "Elu", "Selu",
    "Softplus", "Softsign", "Mish", "Neg", "Abs", "Exp", "Sin", "Cos", "PRelu", "Identity",
})  # fmt: skip

Parts = Sequence[ir.Value | None]
Rule = Callable[[Tape, ir.Node, ir.Value], Parts]
"""The gradients of a node's inputs from that of its first output; None for an input that has none."""


def parts_of(tape: Tape, node: ir.Node, found: Mapping[ir.Value, ir.Value]) -> Parts:
    """The gradients of the node's inputs, where those of its outputs are ``found``; raises :class:`NoRule`."""
    if node.domain:
        raise NoRule
    if node.op_type == "Split":
        zeros = (tape.op("Sub", output, output) for output in node.outputs)
        pieces = [found.get(output) or zero for output, zero in zip(node.outputs, zeros, strict=True)]
        return [tape.op("Concat", *pieces, axis=node.attributes.get_int("axis", 0))]
    if node.outputs[0] not in found:
        raise NoRule
    if node.op_type in _POINTWISE:
        return _pointwise(tape, node, found[node.outputs[0]])
    if node.op_type not in _RULES:
        raise NoRule
    return _RULES[node.op_type](tape, node, found[node.outputs[0]])


def _pointwise(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x, others = _of(node, 0), [value for value in node.inputs[1:] if value is not None]
    if len(others) != len(node.inputs) - 1:
        raise NoRule
    step = tape.real(_STEP)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    ends = [tape.op(node.op_type, tape.op(sign, x, step), *others, **attributes) for sign in ("Add", "Sub")]
    return [tape.op("Mul", gradient, tape.op("Mul", tape.op("Sub", *ends), tape.real(0.5 / _STEP)))]


def _conv(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x, weight = _of(node, 0), _of(node, 1)
    if not is_constant(weight) or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NoRule
    window = _Window(node, static(weight)[2:])
    return [window.spread(tape, gradient, weight, static(x)[2:], node.attributes.get_int("group", 1))]


def _conv_transpose(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    weight = _of(node, 1)
    plain = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in node.attributes
    if not is_constant(weight) or not plain:
        raise NoRule
    window, group = _Window(node, static(weight)[2:]), node.attributes.get_int("group", 1)
    return [tape.op("Conv", gradient, weight, **window.attributes, group=group)]


def _average_pool(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    shape, kernel = static(_of(node, 0)), node.attributes.get_ints("kernel_shape", ())
    window = _Window(node, kernel)
    padded = any(window.pads) and node.attributes.get_int("count_include_pad", 0) != 1
    if padded or node.attributes.get_int("ceil_mode", 0) == 1 or "auto_pad" in node.attributes:
        raise NoRule
    ones = tape.constant(np.full((shape[1], 1, *kernel), 1 / math.prod(kernel), np.float32))
    return [window.spread(tape, gradient, ones, shape[2:], shape[1])]


def _max_pool(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """Each gradient goes to where the maximum was."""
    x = _of(node, 0)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    places = tape.op("MaxPool", x, **attributes)
    flat = tape.constant([-1])
    nothing = tape.op("Reshape", tape.op("Sub", x, x), flat)
    there = [tape.op("Reshape", value, flat) for value in (places, gradient)]
    return [tape.like(tape.op("ScatterElements", nothing, *there, axis=0, reduction="add"), x)]


def _global_average(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x = _of(node, 0)
    each = tape.op("Mul", gradient, tape.real(1 / math.prod(static(x)[2:])))
    return [tape.op("Expand", each, tape.op("Shape", x))]


def _mean(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x = _of(node, 0)
    shape = static(x)
    axes = axes_of(node, len(shape))
    if axes is None:
        raise NoRule
    kept = tape.constant([1 if axis in axes else size for axis, size in enumerate(shape)])
    count = math.prod(shape[axis] for axis in axes) if node.op_type == "ReduceMean" else 1
    each = tape.op("Mul", tape.op("Reshape", gradient, kept), tape.real(1 / count))
    return [tape.op("Expand", each, tape.op("Shape", x)), None]


def _gemm(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    if node.attributes.get_int("transA", 0):
        raise NoRule
    alpha, turned = node.attributes.get_float("alpha", 1.0), 1 - node.attributes.get_int("transB", 0)
    return [tape.op("Gemm", gradient, _of(node, 1), alpha=alpha, transB=turned), None, None]


def _matmul(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    one, other = _of(node, 0), _of(node, 1)
    ranks = [len(static(value)) for value in (one, other)]
    same = ranks[0] == ranks[1] and static(one)[:-2] == static(other)[:-2]
    if min(ranks) < 2 or not (same or (ranks[1] == 2 and is_constant(other))):
        raise NoRule
    swaps = [tape.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
             for value, rank in zip((one, other), ranks, strict=True)]  # fmt: skip
    first = tape.op("MatMul", gradient, swaps[1])
    return [first, None if is_constant(other) else tape.op("MatMul", swaps[0], gradient)]


def _add(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    other = tape.op("Neg", gradient) if node.op_type == "Sub" else gradient
    return [_unless_constant(tape, node, place, part) for place, part in enumerate((gradient, other))]


def _mul(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    factors = [tape.op("Mul", gradient, _of(node, 1 - place)) for place in (0, 1)]
    return [_unless_constant(tape, node, place, part) for place, part in enumerate(factors)]


def _div(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    if not is_constant(_of(node, 1)):
        raise NoRule
    return [_unless_constant(tape, node, 0, tape.op("Div", gradient, _of(node, 1))), None]


def _unless_constant(tape: Tape, node: ir.Node, place: int, part: ir.Value) -> ir.Value | None:
    value = _of(node, place)
    return None if is_constant(value) else tape.summed(part, node.outputs[0], value)


def _reshape(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    return [tape.like(gradient, _of(node, 0))]


def _transpose(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    rank = len(static(_of(node, 0)))
    order = node.attributes.get_ints("perm", tuple(reversed(range(rank))))
    return [tape.op("Transpose", gradient, perm=[int(place) for place in np.argsort(order)])]


def _concat(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    axis = node.attributes.get_int("axis", 0)
    ends = np.cumsum([0, *(static(_of(node, place))[axis] for place in range(len(node.inputs)))])
    where = tape.constant([axis])
    return [tape.op("Slice", gradient, tape.constant([int(start)]), tape.constant([int(end)]), where)
            for start, end in pairwise(ends)]  # fmt: skip


def _slice(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """What was not taken gets zeros around it."""
    shape = static(_of(node, 0))
    starts, ends = (array_of(_of(node, place)) for place in (1, 2))
    axes = array_of(_of(node, 3)) if len(node.inputs) > 3 else np.arange(0 if starts is None else starts.size)
    if starts is None or ends is None or axes is None or len(node.inputs) > 4:
        raise NoRule
    pads = np.zeros((2, len(shape)), np.int64)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        first, last, _ = slice(int(start), int(end)).indices(shape[axis])
        pads[:, axis] = first, shape[axis] - max(first, last)
    return [tape.op("Pad", gradient, tape.constant(pads.reshape(-1)))]


def _gather(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """What was taken gets its gradient back, as often as it was taken; the rest gets none."""
    x, indices = _of(node, 0), array_of(_of(node, 1))
    shape = static(x)
    if indices is None:
        raise NoRule
    axis = node.attributes.get_int("axis", 0) % len(shape)
    taken = [indices.size if place == axis else size for place, size in enumerate(shape)]
    along = np.mod(indices, shape[axis]).reshape([-1 if place == axis else 1 for place in range(len(shape))])
    places = tape.op("Expand", tape.constant(along.astype(np.int64)), tape.constant(taken))
    nothing = tape.op("Expand", tape.real(0.0), tape.op("Shape", x))
    back = tape.op("Reshape", gradient, tape.constant(taken))
    return [tape.op("ScatterElements", nothing, places, back, axis=axis, reduction="add"), None]


def _softmax(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    y, axis = node.outputs[0], tape.constant([node.attributes.get_int("axis", -1)])
    return [tape.op("Mul", y, tape.op("Sub", gradient, tape.op("ReduceSum", tape.op("Mul", gradient, y), axis)))]


def _layer_normalization(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x = _of(node, 0)
    rank = len(static(x))
    axes = tape.constant(list(range(node.attributes.get_int("axis", -1) % rank, rank)))
    centred = tape.op("Sub", x, tape.op("ReduceMean", x, axes))
    variance = tape.op("ReduceMean", tape.op("Mul", centred, centred), axes)
    deviation = tape.op("Sqrt", tape.op("Add", variance, tape.real(node.attributes.get_float("epsilon", 1e-5))))
    unit, scaled = tape.op("Div", centred, deviation), tape.op("Mul", gradient, _of(node, 1))
    along = tape.op("Mul", unit, tape.op("ReduceMean", tape.op("Mul", scaled, unit), axes))
    rest = tape.op("Sub", tape.op("Sub", scaled, tape.op("ReduceMean", scaled, axes)), along)
    return [tape.op("Div", rest, deviation), None, None]


_RULES: Mapping[str, Rule] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul, "Add": _add, "Sub": _add,
    "Mul": _mul, "Div": _div, "AveragePool": _average_pool, "MaxPool": _max_pool, "GlobalAveragePool": _global_average,
    "ReduceMean": _mean, "ReduceSum": _mean, "Reshape": _reshape, "Flatten": _reshape, "Squeeze": _reshape,
    "Unsqueeze": _reshape, "Transpose": _transpose, "Concat": _concat, "Slice": _slice,
    "Gather": _gather, "Softmax": _softmax, "LayerNormalization": _layer_normalization,
}  # fmt: skip


class _Window:
    """Strides, dilations and pads of a node, as attributes for its opposite."""

    def __init__(self, node: ir.Node, kernel: Sequence[int]) -> None:
        rank, given = len(kernel), node.attributes
        self.kernel = tuple(kernel)
        self.strides = tuple(given.get_ints("strides", (1,) * rank))
        self.dilations = tuple(given.get_ints("dilations", (1,) * rank))
        self.pads = tuple(given.get_ints("pads", (0,) * (2 * rank)))
        self.made = static(node.outputs[0])[2:]

    @property
    def attributes(self) -> dict[str, Attribute]:
        return {"strides": self.strides, "dilations": self.dilations, "pads": self.pads}

    def spread(self, tape: Tape, gradient: ir.Value, weight: ir.Value, shape: Sequence[int], group: int) -> ir.Value:
        """What was read through the window gets its gradient back, of this spatial shape."""
        rank = len(self.kernel)
        more = [
            size + self.pads[axis] + self.pads[axis + rank] - (self.made[axis] - 1) * self.strides[axis]
            - (self.kernel[axis] - 1) * self.dilations[axis] - 1
            for axis, size in enumerate(shape)
        ]  # fmt: skip
        return tape.op("ConvTranspose", gradient, weight, **self.attributes, group=group, output_padding=more)


def _of(node: ir.Node, place: int) -> ir.Value:
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        raise NoRule
    return value
