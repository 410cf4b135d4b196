"""ONNX in the forms that MNN's converter takes, in place; what is computed stays the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import initializer, inserted, is_float32, replaced, sizes
from convertkit.onnx.interpolation import Method
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.gathered_resizes import write_resize
from convertkit.targets.forms.log_sums import write_log_sum_exp
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.pads import write_all_axes, write_cropped, write_wrapped
from convertkit.targets.forms.places import from_the_start
from convertkit.targets.forms.recurrences import RECURRENT, batch_inside, forwards, read_last_states, refuse_ignored
from convertkit.targets.forms.remainders import write_infinite_divisors
from convertkit.targets.forms.rounded import write_rounding
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.softplus import write_softplus
from convertkit.targets.forms.stored import make_stored_real
from convertkit.targets.forms.transforms import write_transform
from convertkit.targets.forms.truths import write_is_infinite, write_is_nan, write_truth
from convertkit.targets.forms.words import Words
from convertkit.targets.forms.writing import Place, refusal, write_each
from convertkit.targets.mnn.extremes import KINDS, write_extremes
from convertkit.targets.mnn.halves import write_halves
from convertkit.targets.mnn.one_hot import write_one_hot
from convertkit.targets.mnn.pools import POOLS, write_pool
from convertkit.targets.mnn.scatters import SCATTERS, write_scatter
from convertkit.targets.mnn.shapes import close_rows, write_shapes

_BODIES = frozenset({
    "AffineGrid", "Attention", "BatchNormalization", "CausalConvWithState", "CenterCropPad", "Einsum", "Gelu",
    "GroupNormalization", "Hardmax", "InstanceNormalization", "LpPool", "MeanVarianceNormalization", "Mish",
    "NegativeLogLikelihoodLoss", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare",
    "Shrink", "SoftmaxCrossEntropyLoss",
})  # fmt: skip
"""What MNN lacks, approximates or computes wrongly, and ONNX or we give a body of operators that it computes.

Its converter reduces by the last four over every axis where ONNX gives axes as an input.
"""

_VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
"""Operators whose converters end by a signal where there is one operand; the mean of two gives nothing."""

_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})

_PLACES = frozenset({"GatherElements", "GatherND", "ScatterElements"})
"""Operators whose negative places MNN does not count from the end; those of Gather and ScatterND it does."""


def write_forms(model: ir.Model) -> tuple[str, ...]:
    """All of them; what a user has to know of integers that the data decides.

    ``Unsupported`` names a node whose integers MNN does not hold, or of which it would ignore something.
    """
    for forms in (_FIRST, _THEN):
        expand_functions(model, lambda node: node.op_type not in _BODIES)
        write_each(model, forms)
    for node in tuple(model.graph.all_nodes()):
        write_shapes(node)
    close_rows(model.graph)
    write_long_shifts(model, holds_signed=True)
    write_infinite_divisors(model)
    make_stored_real(model)
    write_rounding(model)
    write_each(model, {"Round": write_halves})
    for node in model.graph.all_nodes():
        if node.op_type in _QUANTIZERS and not node.domain:
            raise refusal(node, "MNN's converter does not read it, and it is not a pair with stored parameters")
    words = Words("MNN")
    for node in model.graph.all_nodes():
        words.look(node)
    for node in tuple(model.graph.all_nodes()):
        if node.op_type in _PLACES and not node.domain:
            from_the_start(node)
    return words.notes


def _write_few(node: ir.Node) -> None:
    """One operand as it is; a mean of several as a sum and a factor."""
    given = [value for value in node.inputs if value is not None]
    if len(given) == 1:
        replaced(node, "Identity", given)
    elif node.op_type == "Mean":
        total = inserted(node, "Sum", given, node.outputs[0]).outputs[0]
        count = initializer(node, np.array(len(given), np.float32), f"{node.name}/count")
        replaced(node, "Div", [total, count])


def _of_one_type(node: ir.Node) -> None:
    """An integer exponent of a float as a float; MNN gives nothing for two types."""
    base, exponent = node.inputs
    if base is not None and exponent is not None and is_float32(base) and exponent.dtype != base.dtype:
        cast = inserted(node, "Cast", [exponent], base, {"to": int(ir.DataType.FLOAT)}, exponent.shape)
        node.replace_input_with(1, cast.outputs[0])


def _state_parts(node: ir.Node) -> None:
    """The sizes of parts that are not equal, which MNN takes for equal ones.  Source: ONNX operators, Split-18."""
    known, count = sizes(node.inputs[0]), node.attributes.get_int("num_outputs", 0)
    size = known[node.attributes.get_int("axis", 0)] if known else None
    if not count or not size or size % count == 0:
        return
    part = -(-size // count)
    parts = np.array([*[part] * (count - 1), size - part * (count - 1)], np.int64)
    node.resize_inputs(2)
    node.replace_input_with(1, initializer(node, parts, f"{node.name}/parts"))
    node.attributes.pop("num_outputs")


def _state_axis(node: ir.Node) -> None:
    """The last one, where it is left to its default: MNN's converter ends by a signal.  Source: LogSoftmax-13."""
    if "axis" not in node.attributes:
        node.attributes["axis"] = ir.AttrInt64("axis", -1)


def _state_epsilon(node: ir.Node) -> None:
    """The number that is left to its default, which MNN takes for 0.  Source: ONNX operators, BatchNormalization-15."""
    if "epsilon" not in node.attributes:
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 1e-5)


def _recurrent(node: ir.Node) -> None:
    """MNN looks at neither attribute."""
    batch_inside(node)
    forwards(node)
    refuse_ignored(node, "MNN")
    if node.op_type == "GRU":
        read_last_states(node)


def _write_slopes(node: ir.Node) -> None:
    """Slopes of other than channels, of which MNN takes the first ones, as ``max (x, 0) + slope · min (x, 0)``."""
    x, slope = node.inputs
    before, given = sizes(x), sizes(slope)
    if x is None or slope is None or given is None or before is None:
        return
    lined = (1,) * (len(before) - len(given)) + given
    if all(size == 1 for axis, size in enumerate(lined) if axis != 1):
        return
    place, zero = Place(node), Place(node).constant(np.float32(0))
    above, below = (place.op(kind, x, zero) for kind in ("Max", "Min"))
    place.becomes(place.op("Add", above, place.op("Mul", slope, below, like=x)))


def _refuse_samples(node: ir.Node) -> None:
    """MNN samples images along lines alone: others give the numbers of another mode, and nearest ones another half."""
    mode = node.attributes.get_string("mode", "linear")
    if mode not in ("linear", "bilinear"):
        raise refusal(node, f"mode {mode}, which MNN computes in another way; linear is exact")
    if node.attributes.get_string("padding_mode", "zeros") == "reflection":
        raise refusal(node, "padding_mode reflection, which MNN computes in another way; zeros and border are exact")


def _resize(node: ir.Node) -> None:
    write_resize(node, _is_exact)


def _is_exact(node: ir.Node, method: Method) -> bool:
    """Whether MNN computes it as ONNX says; it does not look at axes, and of cubic ones its border is another."""
    if "axes" in node.attributes or method.antialias or method.exclude_outside:
        return False
    if method.mode == "nearest":
        return method.coordinates == "asymmetric" and method.nearest == "floor"
    return method.coordinates in _LINEAR and (method.mode == "linear" or method.coordinates == "align_corners")


_LINEAR = frozenset({"half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"})


def _pad(node: ir.Node) -> None:
    write_wrapped(node)
    if node.graph is not None:
        write_all_axes(node)
        write_cropped(node)


_FIRST: Mapping[str, Callable[[ir.Node], None]] = {
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(KINDS, write_extremes),
    **dict.fromkeys(SCATTERS, write_scatter),
    "DFT": write_transform,
    "GridSample": _refuse_samples,
    "LpNormalization": write_lp_normalization,
    "OneHot": write_one_hot,
    "Pad": _pad,
    "Resize": _resize,
}
_THEN: Mapping[str, Callable[[ir.Node], None]] = {
    **dict.fromkeys(POOLS, write_pool),
    **dict.fromkeys(_VARIADIC, _write_few),
    "BatchNormalization": _state_epsilon,
    "Cast": write_truth,
    "IsInf": write_is_infinite,
    "IsNaN": write_is_nan,
    "LogSoftmax": _state_axis,
    "PRelu": _write_slopes,
    "ReduceLogSumExp": write_log_sum_exp,
    "Pow": _of_one_type,
    "Softplus": write_softplus,
    "Split": _state_parts,
}
"""What the first ones write may need these, too."""
