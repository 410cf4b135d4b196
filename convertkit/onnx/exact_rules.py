"""onnxscript's rewriting rules, each only where the result stays what it was.

The library matches constants with tolerances (``x + 0`` with 1e-8, ``x * 1`` with a relative 1e-5) and leaves some
conditions out.  Each rule stands here under its name with the question that is asked before its own; a rule that does
not stand here is not used.  ``docs/explanation/exact-rules.md`` says of each what it demands and why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.onnxscript_compat import condition_of, pattern_of

Question = Callable[[ir.Node], bool]
"""Whether a rule is exact at the node that its pattern ends in; asked before the rule's own conditions."""

_HELD_BY_FLOAT32 = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.BOOL}
    | {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16}
)
_HELD_BY_DOUBLE = 1 << 53


def title(rule: Any) -> str:
    """The rule's name; where it has none, the operators of its pattern and the name of its condition."""
    if rule.name:
        return str(rule.name)
    steps = re.findall(r"= (\w+) \((.*)\)", pattern_of(rule))
    operators = " > ".join(f"{op}({re.sub(r'anonymous:[0-9]+', '.', inputs)})" for op, inputs in steps)
    own = condition_of(rule).__name__
    return operators if own == "always_true" else f"{operators} if {own}"


def exactly(rule: Any, question: Question) -> Callable[..., Any]:
    """The condition of ``rule`` behind ``question``."""
    own = condition_of(rule)
    return lambda context, **bound: question(context.root) and own(context, **bound)


def always(node: ir.Node) -> bool:
    """The rule's own conditions are exact."""
    del node
    return True


def neutral_factor(node: ir.Node) -> bool:
    """``x * 1`` and ``x / 1``, of exactly one."""
    return any(known is not None and known.ndim == 0 and bool(known == 1) for known in map(_constant, node.inputs))


def neutral_summand(node: ir.Node) -> bool:
    """``x + -0.0`` and integers' ``x + 0``: ``x + 0.0`` makes 0.0 of -0.0."""
    return any(known is not None and _is_zero(known, negative=True) for known in map(_constant, node.inputs))


def neutral_subtrahend(node: ir.Node) -> bool:
    """``x - 0.0`` and integers' ``x - 0``: ``x - -0.0`` makes 0.0 of -0.0."""
    known = _constant(node.inputs[1])
    return known is not None and _is_zero(known, negative=False)


def both_reshaped(node: ir.Node) -> bool:
    """Reshape(MatMul(Reshape(a), Reshape(b))) is MatMul(a, b) where the same rows meet the same columns.

    The rule looks at the shapes of ``a``, ``b`` and the result, and not at what the inner Reshapes make of them.
    """
    sides = _producer(node.inputs[0]).inputs
    return _multiply_alike([_producer(side).inputs[0] for side in sides], sides)


def left_reshaped(node: ir.Node) -> bool:
    """The same of Reshape(MatMul(Reshape(a), b))."""
    left, right = _producer(node.inputs[0]).inputs
    return _multiply_alike([_producer(left).inputs[0], right], [left, right])


def held_constant(node: ir.Node) -> bool:
    """A constant that is cast keeps its value: the rule casts as numpy's constructor does, which refuses or wraps."""
    value = _producer(node.inputs[0]).attributes.get("value")
    if value is None:
        return True
    stored = value.as_tensor().numpy().reshape(-1)
    target = ir.DataType(node.attributes["to"].as_int()).numpy()
    with np.errstate(all="ignore"):
        return bool(np.array_equal(stored.astype(target).astype(stored.dtype), stored))


def no_empty_sizes(node: ir.Node) -> bool:
    """A size of 0 means "as in the input" to Reshape."""
    shapes = [value.shape for value in (node.inputs[0], node.outputs[0]) if value is not None]
    return all(shape is None or 0 not in tuple(shape) for shape in shapes)


def meeting_bounds(node: ir.Node) -> bool:
    """Clip(Clip(x)) is one Clip where the two intervals meet: else the outer bound wins, and joined the upper one."""
    lows, highs = zip(*(_bounds(clip, math.inf) for clip in (_producer(node.inputs[0]), node)), strict=True)
    return bool(max(lows) <= min(highs))


def clip_of_relu(node: ir.Node) -> bool:
    """Clip(Relu(x)) is one Clip; the rule compares the lower bound with 0 as a double."""
    return abs(_bounds(node, unbounded=0)[0]) <= _HELD_BY_DOUBLE


def relu_of_clip(node: ir.Node) -> bool:
    """Relu(Clip(x)) is one Clip where its upper bound is not negative."""
    low, high = _bounds(_producer(node.inputs[0]), unbounded=0)
    return abs(low) <= _HELD_BY_DOUBLE and high >= 0


def joined_extremes(node: ir.Node) -> bool:
    """Min(Min(x, a), b), and Max: their constants are not NaN, and there is one."""
    known = [_constant(value) for one in (_producer(node.inputs[0]), node) for value in one.inputs[1:]]
    return bool(known) and all(each is not None and not np.isnan(each).any() for each in known)


def scalar_bounds(node: ir.Node) -> bool:
    """Min(Max(x, low), high) is a Clip where the bounds are scalars that do not widen x."""
    inner = _producer(node.inputs[0])
    shape = inner.inputs[0].shape if inner.inputs[0] is not None else None
    rank = 0 if shape is None else len(shape)
    known = [_constant(value) for one in (inner, node) for value in one.inputs[1:]]
    both = len(inner.inputs) > 1 and len(node.inputs) > 1
    return both and all(each is not None and each.ndim <= rank and not np.isnan(each).any() for each in known)


def cast_held(node: ir.Node) -> bool:
    """Cast(Cast(x, float32), float16) rounds twice, unless float32 holds all that x may be."""
    first = _producer(node.inputs[0]).inputs[0]
    return first is not None and first.dtype in _HELD_BY_FLOAT32


def replaces_all(node: ir.Node) -> bool:
    """ScatterND over all rows is its updates where they replace and are not added, and where the rows are counted."""
    data = node.inputs[0]
    counted = data is not None and data.shape is not None and len(data.shape) > 0 and isinstance(data.shape[0], int)
    return counted and node.attributes.get_string("reduction", "none") == "none"


def undilated(node: ir.Node) -> bool:
    """The pads of ``auto_pad`` are computed without dilations, and of sizes of the kernel that are known."""
    kernel = node.inputs[1]
    sizes = () if kernel is None or kernel.shape is None else kernel.shape[2:]
    if not node.attributes.get_ints("kernel_shape", ()) and not all(isinstance(size, int) for size in sizes):
        return False
    asked = node.attributes.get_string("auto_pad", "NOTSET")
    if asked == "VALID":
        return not any(node.attributes.get_ints("pads", ()))
    return all(each == 1 for each in node.attributes.get_ints("dilations", ()))


def pads_with_zero_point(node: ir.Node) -> bool:
    """ConvInteger pads with its zero point, which the rule takes to be 0."""
    point = node.inputs[2] if len(node.inputs) > 2 else None
    known = _constant(point)
    return point is None or (known is not None and not known.any())


def folded_statistics(node: ir.Node) -> bool:
    """BatchNormalization by stored statistics whose factors keep the weights finite.

    A rounding: each weight and the bias are rounded a few times more, by less than a convolution's own sums.
    """
    inner = _producer(node.inputs[0])
    scale, _, mean, variance = (_constant(value) for value in node.inputs[1:5])
    weights = _constant(inner.inputs[1])
    if node.attributes.get_int("training_mode", 0) or len(node.outputs) > 1 or None in inner.inputs:
        return False
    if scale is None or mean is None or variance is None or weights is None:
        return False
    if {scale.dtype, mean.dtype, variance.dtype} != {weights.dtype} or not weights.size:
        return False
    if weights.dtype == np.float64 and "epsilon" not in node.attributes:
        return False  # the rule takes the default in double precision, which ONNX rounds to float32
    with np.errstate(all="ignore"):
        factors = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
        return bool(np.isfinite(np.abs(factors).max() * np.abs(weights).max()))


def _producer(value: ir.Value | None) -> ir.Node:
    node = None if value is None else value.producer()
    assert node is not None, "of the pattern"
    return node


def _constant(value: ir.Value | None) -> Array | None:
    """The constant behind ``value``, None where it is computed or may be given by the caller."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    array: Array = value.const_value.numpy()
    return array


def _is_zero(known: Array, *, negative: bool) -> bool:
    if known.ndim or not bool(known == 0):
        return False
    return known.dtype.kind in "iu" or bool(np.signbit(known.astype(np.float64))) is negative


def _bounds(clip: ir.Node, unbounded: float) -> tuple[float, float]:
    """Lower and upper bound of a Clip: NaN where one is computed, ``unbounded`` where there is none."""
    low, high = ((*clip.inputs, None, None)[index] for index in (1, 2))
    return -unbounded if low is None else _scalar(low), unbounded if high is None else _scalar(high)


def _scalar(value: ir.Value) -> float:
    known = _constant(value)
    return math.nan if known is None or known.size != 1 else known.item()


def _multiply_alike(outer: Sequence[ir.Value | None], inner: Sequence[ir.Value | None]) -> bool:
    """Whether MatMul of ``outer`` multiplies the same rows and columns as MatMul of ``inner``, their reshaped forms."""
    shapes = [_sizes(value) for value in (*outer, *inner)]
    if any(shape is None for shape in shapes):
        return False
    left, right, rows, columns = (shape or () for shape in shapes)
    if right == columns and len(right) == 2 and rows[-1:] == left[-1:]:
        return True
    if len(left) == 1:
        return rows == (1, *left) and right == columns
    if len(right) == 1:
        return columns == (*right, 1) and left == rows
    if rows[-2:] != left[-2:] or columns[-2:] != right[-2:]:
        return False
    return _pairs(left[:-2], right[:-2]) == _pairs(rows[:-2], columns[:-2])


def _sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    known = tuple(size for size in tuple(value.shape) if isinstance(size, int))
    return known if len(known) == len(value.shape) else None


def _pairs(left: tuple[int, ...], right: tuple[int, ...]) -> list[tuple[int, int]]:
    """Which matrix of the left meets which of the right, in the order of the results."""
    numbered = (np.arange(math.prod(sizes)).reshape(sizes) for sizes in (left, right))
    try:
        pairs = np.broadcast_arrays(*numbered)
    except ValueError:
        return [(-1, len(left))]
    return list(zip(*(each.reshape(-1).tolist() for each in pairs), strict=True))


AUDITED: Mapping[str, Question] = {
    "Mul(x, 1)": neutral_factor,
    "Mul(1, x)": neutral_factor,
    "Add(x, 0)": neutral_summand,
    "Add(0, x)": neutral_summand,
    "Sub(x, 0)": neutral_subtrahend,
    "Div(x, 1)": neutral_factor,
    "Reshape(input_a, shape_a) > Reshape(input_b, shape_b) > MatMul(., .) > Reshape(., shape_c)"
    " if check_if_not_need_reshape": both_reshaped,
    "Reshape(input_a, shape_a) > MatMul(., input_b) > Reshape(., shape_c) if check_if_not_need_reshape": left_reshaped,
    "ConstantOfShape(shape, value=scalar) > Cast(., to=dtype)": held_constant,
    "ConstantOfShape(shape) > Cast(., to=dtype)": always,
    "Slice(data, starts, ends, axes, steps) if _check_if_redundant_slice": always,
    "Slice(data, starts, ends, axes, steps) if _same_shape": always,
    "MaterializeReshapeShape": no_empty_sizes,
    "FuseSuccessiveMin": joined_extremes,
    "FuseSuccessiveMax": joined_extremes,
    "FuseMinMaxToClip": scalar_bounds,
    "FuseMaxMinToClip": scalar_bounds,
    "FuseSuccessiveClipRelu": clip_of_relu,
    "FuseSuccessiveReluClip": relu_of_clip,
    "FuseSuccessiveRelu": always,
    "FuseSuccessiveClip": meeting_bounds,
    "CastCast": cast_held,
    "CastIdentity": always,
    "ExpandIdentity": always,
    "Flatten2Reshape": no_empty_sizes,
    "ReshapeReshape": always,
    "TransposeIdentity": always,
    "TransposeTranspose": always,
    "UnsqueezeUnsqueeze": always,
    "SqueezeReshape1d": always,
    "ScatterAllDynamic": always,
    "ScatterAllStatic": replaces_all,
    "NormalizePadFormatConv": undilated,
    "NormalizePadFormatConvInteger": undilated,
    "FuseConvPad": always,
    "FuseConvIntegerPad": pads_with_zero_point,
    "FuseBatchNormIntoConv": folded_statistics,
    "FuseBatchNormIntoConvTranspose": folded_statistics,
    "FuseBatchNormIntoGemm": folded_statistics,
    "RemoveOptionalBiasFromConv": always,
    "RemoveOptionalBiasFromConvTranspose": always,
    "RemoveOptionalBiasFromQLinearConv": always,
    "RemoveOptionalBiasFromGemm": always,
}
"""What is asked of each rule, by :func:`title`."""

LEFT_OUT: Mapping[str, str] = {
    "Dropout(x, ratio=0.0)": "no opset here has the attribute; constant folding drops Dropout by its inputs",
    "Dropout(x, training_mode=False)": "no opset has the attribute",
    "SlicesSplit": "of an odd size Split makes the first part the larger one",
}
"""Rules that are not used, and why."""
