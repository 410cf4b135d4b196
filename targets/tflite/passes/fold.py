"""Fold Quantize and Dequantize around an operator into its integer kernel.

before:  x:i8 → Dequantize → Conv → Quantize → y:i8
after:   x:i8 → Conv[int8] → y:i8

Which operators: ``INTEGER`` (kernels that are fast and right within one LSB) and, with
``full_integer``, ``SLOW`` ones too.  What is not folded runs in float between its Dequantize and
Quantize, which is what the QDQ graph says literally.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.profile import KEEP_FLOAT
from convertkit.targets.forms.edits import insert_before, typed
from convertkit.targets.tflite.annotations import NHWC, OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.averages import counts_as_onnx
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.passes.qdq_groups import QdqGroup, fold_group, qdq_group
from convertkit.targets.tflite.tensor import QuantParams

Rule = Callable[[QdqGroup], bool]
"""Whether an operator with integer inputs and outputs has an exact kernel; may insert requantizations."""


def fold_quantized(part: Part, *, full_integer: bool) -> None:
    """Fold every operator that has an exact integer kernel, in place.

    A model with an integer interface wants integers throughout, slow kernels included.
    """
    whole = full_integer or any(quantization_of(value) is not None for value in part.graph.inputs)
    rules = INTEGER | SLOW if whole else INTEGER
    for node in list(part.graph):
        rule = rules.get((node.domain, node.op_type))
        qdq = None if rule is None or KEEP_FLOAT in node.metadata_props else qdq_group(node)
        if rule is not None and qdq is not None and rule(qdq):
            fold_group(qdq)
    _drop_unused(part.graph)


def _drop_unused(graph: ir.Graph) -> None:
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)


# --- rules --------------------------------------------------------------------------------------


def _weighted(axis_of: Callable[[ir.Node, int], int]) -> Rule:
    """Operators with a constant integer weight (input 1) and a bias (input 2)."""

    def rule(qdq: QdqGroup) -> bool:
        weight, bias = [*qdq.inputs[1:], None, None][:2]
        params = qdq.params(1)
        if weight is None or params is None or array_of(weight) is None or any(params.zero_point):
            return False
        if weight.dtype not in (ir.DataType.INT8, ir.DataType.INT4) or (
            weight.dtype == ir.DataType.INT4 and qdq.kind != ir.DataType.INT8
        ):
            return False
        rank = len(weight.shape or ())
        if params.axis is not None and params.axis != axis_of(qdq.node, rank):
            return False
        return bias is None or array_of(bias) is not None

    return rule


def _same(qdq: QdqGroup) -> bool:
    """Operators that only move or choose elements; where scales differ, the conversion stands behind them."""
    return qdq.inputs[0] is not None and _one_scale(qdq.params(0))


def _same_for_all(*, by_floats: bool, begin: int = 0) -> Rule:
    """Operators that mix elements of several tensors: each from ``begin`` on gets the output's parameters first.

    ``by_floats``: by Dequantize and Quantize, since XNNPACK's kernel from integers to integers rounds the ratio of the
    scales to 1/256 and ties away from zero, so that a tenth of the integers is another one.
    """

    def rule(qdq: QdqGroup) -> bool:
        if any(not _one_scale(qdq.params(place)) for place in range(begin, len(qdq.inputs))):
            return False
        for place, value in enumerate(qdq.inputs[begin:], begin):
            assert value is not None
            if quantization_of(value) != qdq.result:
                real = qdq.node.inputs[place]
                assert real is not None
                qdq.inputs[place] = _requantized(qdq, place, real if by_floats else value)
        return True

    return rule


def _requantized(qdq: QdqGroup, place: int, value: ir.Value) -> ir.Value:
    """``value``, integers or floats, as integers of the output's parameters."""
    name = "int16" if qdq.kind == ir.DataType.INT16 else "int8"
    made = ir.node("Quantize", [value], {"to": name}, domain=OWN, name=f"{qdq.node.name}/requantize_{place}")
    result = insert_before(qdq.node, made, like=value)
    result.name = f"{qdq.node.name}/requantized_{place}"
    typed(result, result.shape, qdq.kind)
    set_quantization(result, qdq.result)
    return result


def _arithmetic(qdq: QdqGroup) -> bool:
    """Operators whose kernels rescale: every data input has one scale."""
    return all(_one_scale(qdq.params(place)) for place in range(len(qdq.inputs)))


_LOUDER = 2.0**20
_FINER = 2.0**14
"""A sum's inputs this far apart, or an output this much finer than them, abort the process in TFLite's ADD."""


def _sum(qdq: QdqGroup) -> bool:
    """Sums and differences of scales that are not worlds apart, as those of scores and of a mask of -1e38 are."""
    if not _arithmetic(qdq):
        return False
    scales = [params.scale[0] for place in range(len(qdq.inputs)) if (params := qdq.params(place)) is not None]
    return max(scales) <= _LOUDER * min(scales) and max(scales) <= _FINER * qdq.result.scale[0]


def _reduction(qdq: QdqGroup) -> bool:
    return _one_scale(qdq.params(0))


def _bytes(qdq: QdqGroup) -> bool:
    """Operators whose kernels take int8, not int16."""
    return qdq.kind == ir.DataType.INT8 and _one_scale(qdq.params(0))


def _fixed(scale: float, zero_point: int) -> Rule:
    """Operators whose kernels prescribe the output's parameters."""

    def rule(qdq: QdqGroup) -> bool:
        wanted = QuantParams.per_tensor(1 / 32768 if qdq.kind == ir.DataType.INT16 else scale, zero_point)
        if qdq.kind == ir.DataType.INT16:
            wanted = QuantParams.per_tensor(1 / 32768, 0)
        return _one_scale(qdq.params(0)) and qdq.result == wanted

    return rule


def _clamp(qdq: QdqGroup) -> bool:
    """Relu and Clip whose bounds are the ends of the output's range: what is left is a requantization."""
    if not _one_scale(qdq.params(0)) or qdq.kind is None:
        return False
    low, high = _bounds(qdq.node)
    kind = np.iinfo(qdq.kind.numpy())
    scale, point = qdq.result.scale[0], qdq.result.zero_point[0]
    at_low = low is None or np.rint(low / scale) + point <= kind.min
    at_high = high is None or np.rint(high / scale) + point >= kind.max
    if not (at_low and at_high):
        return False
    node = qdq.node
    node.op_type, node.domain = "Quantize", OWN
    node.attributes.clear()
    node.attributes["to"] = ir.AttrString("to", kind.dtype.name)
    node.resize_inputs(1)
    del qdq.inputs[1:]
    return True


def _bounds(node: ir.Node) -> tuple[float | None, float | None]:
    if node.op_type == "Relu":
        return 0.0, None
    limits = [array_of(node.inputs[place]) if place < len(node.inputs) else None for place in (1, 2)]
    low, high = (None if limit is None else float(limit) for limit in limits)
    return low, high


def _pad(qdq: QdqGroup) -> bool:
    """Padding with real zero is padding with the zero point; the other modes repeat elements, whatever they mean."""
    value = array_of(qdq.inputs[2]) if len(qdq.inputs) > 2 and qdq.inputs[2] is not None else None
    if len(qdq.inputs) > 2 and qdq.inputs[2] is not None and (value is None or float(value) != 0.0):
        return False
    if value is not None:
        qdq.node.replace_input_with(2, None)
        qdq.inputs[2] = None
    return _one_scale(qdq.params(0))


def _resize(qdq: QdqGroup) -> bool:
    """Interpolation only at one scale: its kernel rounds at the input's, and a second rounding would follow."""
    mode = qdq.node.attributes.get("mode")
    if mode is None or mode.value == "nearest":
        return _one_scale(qdq.params(0))
    return mode.value == "linear" and qdq.params(0) == qdq.result


def _one_scale(params: QuantParams | None) -> bool:
    return params is not None and params.axis is None


def _gemm_axis(node: ir.Node, rank: int) -> int:
    transposed = node.attributes.get("transB")
    return 0 if transposed is not None and transposed.value else 1


def _gemm(qdq: QdqGroup) -> bool:
    """Gemm without factors."""
    node = qdq.node
    plain = all(name not in node.attributes or node.attributes[name].value == 1.0 for name in ("alpha", "beta"))
    transposed = node.attributes.get("transA")
    return plain and not (transposed is not None and transposed.value) and _weighted(_gemm_axis)(qdq)


def _conv(qdq: QdqGroup) -> bool:
    """Two-dimensional and one-dimensional convolutions: volumes have no integer kernel."""
    value = qdq.inputs[0]
    return value is not None and len(value.shape or ()) <= 4 and _weighted(lambda node, rank: 0)(qdq)


def _conv_transpose(qdq: QdqGroup) -> bool:
    group = qdq.node.attributes.get("group")
    value = qdq.inputs[0]
    single = group is None or group.value == 1
    return single and value is not None and len(value.shape or ()) <= 4 and _weighted(lambda node, rank: 1)(qdq)


def _matmul(qdq: QdqGroup) -> bool:
    return (
        len(qdq.inputs[1].shape or ()) == 2 and _weighted(lambda node, rank: rank - 1)(qdq)
        if (qdq.inputs[1] is not None)
        else False
    )


def _product(qdq: QdqGroup) -> bool:
    """Two matrices of one scale each, or one by a stored matrix of weights, which may have a scale for each column."""
    right = qdq.inputs[1]
    is_weight = right is not None and array_of(right) is not None and len(right.shape or ()) == 2
    return _matmul(qdq) if is_weight else _arithmetic(qdq)


def _average(qdq: QdqGroup) -> bool:
    """Averages that the kernel counts as ONNX does, and whose input and output share parameters."""
    return counts_as_onnx(qdq.node, qdq.inputs[0]) and _one_scale(qdq.params(0))


_MOVES = """Reshape Flatten Squeeze Unsqueeze Transpose Slice Split Gather GatherElements GatherND Identity Tile Expand
DepthToSpace SpaceToDepth ReduceMax ReduceMin"""
_MIXES = ("Concat", "Max", "Min")

INTEGER: dict[tuple[str, str], Rule] = {
    (NHWC, "Conv"): _conv,
    (NHWC, "ConvTranspose"): _conv_transpose,
    ("", "Gemm"): _gemm,
    ("", "MatMul"): _matmul,
    (OWN, "Dense"): _matmul,
    **{("", name): _sum for name in ("Add", "Sub")},
    ("", "Mul"): _arithmetic,
    **{("", name): _same for name in _MOVES.split()},
    **{(NHWC, name): _same for name in ("MaxPool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth")},
    **{("", name): _same_for_all(by_floats=True) for name in _MIXES},
    ("", "Pad"): _pad,
    (NHWC, "Resize"): _resize,
    (NHWC, "GlobalAveragePool"): _reduction,
    ("", "ReduceMean"): _reduction,
    ("", "Relu"): _clamp,
    ("", "Clip"): _clamp,
    ("", "LeakyRelu"): _arithmetic,
    ("", "Sigmoid"): _fixed(1 / 256, -128),
    ("", "Tanh"): _fixed(1 / 128, 0),
}
"""Operators whose integer kernels are fast and exact."""

SLOW: dict[tuple[str, str], Rule] = {
    (NHWC, "AveragePool"): _average,
    ("", "Softmax"): _fixed(1 / 256, -128),
    ("", "LogSoftmax"): _fixed(16 / 256, 127),
    ("", "HardSwish"): _bytes,
    ("", "PRelu"): lambda qdq: _bytes(qdq) and _arithmetic(qdq),
    ("", "ReduceSum"): _reduction,
    **{("", name): _same_for_all(by_floats=False) for name in _MIXES},
    ("", "Where"): _same_for_all(by_floats=False, begin=1),
    ("", "MatMul"): _product,
    (OWN, "BatchMatMul"): _product,
}
"""Operators whose integer kernels are slower than Dequantize, float, Quantize."""
