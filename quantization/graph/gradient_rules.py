"""The chain rule for single operators: the gradients of a node's inputs from that of its output, as more nodes.

Gradients weigh errors here, so the slope of a function of single numbers is a difference quotient.
Semantics: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, axes_of
from convertkit.quantization.graph.gradient_tape import NoRule, Parts, Rule, Tape, Window, of, static
from convertkit.quantization.graph.units import is_constant

_STEP = 2.0**-7
_LEAST_SLOPE = 1e-6
"""A root of nothing has no slope."""
_POINTWISE = frozenset({
    "Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Gelu", "Erf", "Elu", "Selu",
    "Softplus", "Softsign", "Mish", "Neg", "Abs", "Exp", "Sin", "Cos", "PRelu", "Identity",
})  # fmt: skip


def parts_of(tape: Tape, node: ir.Node, found: Mapping[ir.Value, ir.Value]) -> Parts:
    """Of each input, from the gradients of outputs that are ``found``; raises :class:`NoRule`."""
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
    x, others = of(node, 0), [value for value in node.inputs[1:] if value is not None]
    if len(others) != len(node.inputs) - 1:
        raise NoRule
    step = tape.real(_STEP)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    ends = [tape.op(node.op_type, tape.op(sign, x, step), *others, **attributes) for sign in ("Add", "Sub")]
    return [tape.op("Mul", gradient, tape.op("Mul", tape.op("Sub", *ends), tape.real(0.5 / _STEP)))]


def _conv(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x, weight = of(node, 0), of(node, 1)
    if not is_constant(weight) or node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NoRule
    window = Window(node, static(weight)[2:])
    return [window.spread(tape, gradient, weight, static(x)[2:], node.attributes.get_int("group", 1))]


def _conv_transpose(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    weight = of(node, 1)
    plain = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET" and "output_shape" not in node.attributes
    if not is_constant(weight) or not plain:
        raise NoRule
    window, group = Window(node, static(weight)[2:]), node.attributes.get_int("group", 1)
    return [tape.op("Conv", gradient, weight, **window.attributes, group=group)]


def _average_pool(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    shape, kernel = static(of(node, 0)), node.attributes.get_ints("kernel_shape", ())
    window = Window(node, kernel)
    padded = any(window.pads) and node.attributes.get_int("count_include_pad", 0) != 1
    if padded or node.attributes.get_int("ceil_mode", 0) == 1 or "auto_pad" in node.attributes:
        raise NoRule
    ones = tape.constant(np.full((shape[1], 1, *kernel), 1 / math.prod(kernel), np.float32))
    return [window.spread(tape, gradient, ones, shape[2:], shape[1])]


def _max_pool(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """Each gradient goes to where the maximum was."""
    x = of(node, 0)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    places = tape.op("MaxPool", x, **attributes)
    flat = tape.constant([-1])
    nothing = tape.op("Reshape", tape.op("Sub", x, x), flat)
    there = [tape.op("Reshape", value, flat) for value in (places, gradient)]
    return [tape.like(tape.op("ScatterElements", nothing, *there, axis=0, reduction="add"), x)]


def _global_average(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x = of(node, 0)
    each = tape.op("Mul", gradient, tape.real(1 / math.prod(static(x)[2:])))
    return [tape.op("Expand", each, tape.op("Shape", x))]


def _mean(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x = of(node, 0)
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
    return [tape.op("Gemm", gradient, of(node, 1), alpha=alpha, transB=turned), None, None]


def _matmul(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    one, other = of(node, 0), of(node, 1)
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
    factors = [tape.op("Mul", gradient, of(node, 1 - place)) for place in (0, 1)]
    return [_unless_constant(tape, node, place, part) for place, part in enumerate(factors)]


def _quotient(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """By the numerator, and by what it is divided by."""
    divisor = of(node, 1)
    first = tape.op("Div", gradient, divisor)
    second = tape.op("Neg", tape.op("Mul", first, node.outputs[0]))
    return [_unless_constant(tape, node, place, part) for place, part in enumerate((first, second))]


def _root(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    twice = tape.op("Max", tape.op("Mul", node.outputs[0], tape.real(2.0)), tape.real(_LEAST_SLOPE))
    return [tape.op("Div", gradient, twice)]


def _reciprocal(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    y = node.outputs[0]
    return [tape.op("Neg", tape.op("Mul", gradient, tape.op("Mul", y, y)))]


def _power(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """Whole exponents alone: others have no value on one side of zero."""
    exponent = array_of(of(node, 1))
    if exponent is None or exponent.size != 1 or float(exponent.item()) not in (1.0, 2.0, 3.0):
        raise NoRule
    return [*_pointwise(tape, node, gradient), None]


def _largest(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """Of several values, or of some axes of one, what the output is takes all of the gradient."""
    if node.op_type in ("Max", "Min"):
        parts = [tape.op("Mul", gradient, _is_it(tape, node, place)) for place in range(len(node.inputs))]
        return [_unless_constant(tape, node, place, part) for place, part in enumerate(parts)]
    shape = static(of(node, 0))
    axes = tuple(range(2, len(shape))) if node.op_type == "GlobalMaxPool" else axes_of(node, len(shape))
    if axes is None and len(node.inputs) == 1 and not node.attributes.get_int("noop_with_empty_axes", 0):
        axes = tuple(range(len(shape)))
    if axes is None:
        raise NoRule
    kept = tape.constant([1 if axis in axes else size for axis, size in enumerate(shape)])
    most, each = (tape.op("Reshape", value, kept) for value in (node.outputs[0], gradient))
    there = tape.op("CastLike", tape.op("Equal", of(node, 0), most), gradient)
    return [tape.op("Mul", there, each), None]


def _is_it(tape: Tape, node: ir.Node, place: int) -> ir.Value:
    return tape.op("CastLike", tape.op("Equal", of(node, place), node.outputs[0]), node.outputs[0])


def _where(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    nothing = tape.op("Sub", gradient, gradient)
    parts = [tape.op("Where", of(node, 0), *pair) for pair in ((gradient, nothing), (nothing, gradient))]
    return [None, *(_unless_constant(tape, node, place + 1, part) for place, part in enumerate(parts))]


def _expand(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    return [tape.summed(gradient, node.outputs[0], of(node, 0)), None]


def _pad(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """What was put around it is cut off."""
    shape, pads = static(of(node, 0)), array_of(of(node, 1))
    if pads is None or pads.size != 2 * len(shape) or node.attributes.get_string("mode", "constant") != "constant":
        raise NoRule
    starts = pads[: len(shape)]
    if (pads < 0).any():
        raise NoRule
    ends = tape.constant(starts + np.array(shape, np.int64))
    return [tape.op("Slice", gradient, tape.constant(starts), ends, tape.constant(list(range(len(shape))))), None, None]


def _resize(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """Each axis by itself is a matrix, which the operator makes of the unit matrix; back goes the transposed one."""
    shape, made = static(of(node, 0)), static(node.outputs[0])
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    scales = array_of(node.inputs[2]) if len(node.inputs) == 3 and node.inputs[2] is not None else None
    if {"axes", "keep_aspect_ratio_policy"} & set(attributes) or _mode(node) == "tf_crop_and_resize":
        raise NoRule
    for axis, (before, after) in enumerate(zip(shape, made, strict=True)):
        if before == after:
            continue
        nothing = tape.constant(np.zeros(0, np.float32))
        sizes = [tape.constant(np.array([1, scales[axis]], np.float32))] if scales is not None and scales.size else [
            nothing, tape.constant([before, after])]  # fmt: skip
        matrix = tape.op("Resize", tape.constant(np.eye(before, dtype=np.float32)), nothing, *sizes, **attributes)
        order = [*(place for place in range(len(shape)) if place != axis), axis]
        moved = tape.op("Transpose", gradient, perm=order)
        back = tape.op("MatMul", moved, tape.op("Transpose", matrix, perm=[1, 0]))
        gradient = tape.op("Transpose", back, perm=[int(place) for place in np.argsort(order)])
    return [gradient, *(None for _ in node.inputs[1:])]


def _mode(node: ir.Node) -> str:
    return node.attributes.get_string("coordinate_transformation_mode", "half_pixel") or ""


def _unless_constant(tape: Tape, node: ir.Node, place: int, part: ir.Value) -> ir.Value | None:
    value = of(node, place)
    return None if is_constant(value) else tape.summed(part, node.outputs[0], value)


def _reshape(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    return [tape.like(gradient, of(node, 0))]


def _transpose(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    rank = len(static(of(node, 0)))
    order = node.attributes.get_ints("perm", tuple(reversed(range(rank))))
    return [tape.op("Transpose", gradient, perm=[int(place) for place in np.argsort(order)])]


def _concat(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    axis = node.attributes.get_int("axis", 0)
    ends = np.cumsum([0, *(static(of(node, place))[axis] for place in range(len(node.inputs)))])
    where = tape.constant([axis])
    return [tape.op("Slice", gradient, tape.constant([int(start)]), tape.constant([int(end)]), where)
            for start, end in pairwise(ends)]  # fmt: skip


def _slice(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """What was not taken gets zeros around it."""
    shape = static(of(node, 0))
    starts, ends = (array_of(of(node, place)) for place in (1, 2))
    axes = array_of(of(node, 3)) if len(node.inputs) > 3 else np.arange(0 if starts is None else starts.size)
    if starts is None or ends is None or axes is None or len(node.inputs) > 4:
        raise NoRule
    pads = np.zeros((2, len(shape)), np.int64)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        first, last, _ = slice(int(start), int(end)).indices(shape[axis])
        pads[:, axis] = first, shape[axis] - max(first, last)
    return [tape.op("Pad", gradient, tape.constant(pads.reshape(-1)))]


def _gather(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    """What was taken gets its gradient back, as often as it was taken; the rest gets none."""
    x, indices = of(node, 0), array_of(of(node, 1))
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


def _log_softmax(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    total = tape.op("ReduceSum", gradient, tape.constant([node.attributes.get_int("axis", -1)]))
    return [tape.op("Sub", gradient, tape.op("Mul", tape.op("Exp", node.outputs[0]), total))]


def _layer_normalization(tape: Tape, node: ir.Node, gradient: ir.Value) -> Parts:
    x = of(node, 0)
    rank = len(static(x))
    axes = tape.constant(list(range(node.attributes.get_int("axis", -1) % rank, rank)))
    centred = tape.op("Sub", x, tape.op("ReduceMean", x, axes))
    variance = tape.op("ReduceMean", tape.op("Mul", centred, centred), axes)
    deviation = tape.op("Sqrt", tape.op("Add", variance, tape.real(node.attributes.get_float("epsilon", 1e-5))))
    unit, scaled = tape.op("Div", centred, deviation), tape.op("Mul", gradient, of(node, 1))
    along = tape.op("Mul", unit, tape.op("ReduceMean", tape.op("Mul", scaled, unit), axes))
    rest = tape.op("Sub", tape.op("Sub", scaled, tape.op("ReduceMean", scaled, axes)), along)
    return [tape.op("Div", rest, deviation), None, None]


_RULES: Mapping[str, Rule] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul, "Add": _add, "Sub": _add,
    "Mul": _mul, "Div": _quotient, "AveragePool": _average_pool, "MaxPool": _max_pool,
    "GlobalAveragePool": _global_average,
    "ReduceMean": _mean, "ReduceSum": _mean, "Reshape": _reshape, "Flatten": _reshape, "Squeeze": _reshape,
    "Unsqueeze": _reshape, "Transpose": _transpose, "Concat": _concat, "Slice": _slice,
    "Gather": _gather, "Pad": _pad, "Expand": _expand, "Where": _where, "Max": _largest, "Min": _largest,
    "ReduceMax": _largest, "ReduceMin": _largest, "GlobalMaxPool": _largest, "Sqrt": _root, "Reciprocal": _reciprocal,
    "Pow": _power, "LogSoftmax": _log_softmax, "Softmax": _softmax, "LayerNormalization": _layer_normalization,
    "Resize": _resize,
}  # fmt: skip
