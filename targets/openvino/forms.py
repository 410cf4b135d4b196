"""Operators that OpenVINO 2026.4 computes differently or not at all, in forms that it computes as ONNX says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.interpolation import Method
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.gathered_resizes import write_resize
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.pads import write_wrapped
from convertkit.targets.forms.recurrences import batch_inside
from convertkit.targets.forms.transforms import write_transform
from convertkit.targets.forms.writing import Place, dims, write_each
from convertkit.targets.openvino.pooling import write_max_pool

_BYTES = frozenset({ir.DataType.UINT8, ir.DataType.INT8})
_COORDINATES = frozenset({"half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"})


def write_exact_forms(model: ir.Model) -> None:
    """Rewrite in place; ``Unsupported`` names a node that has no exact form."""
    expand_functions(model, lambda node: not _is_expanded(node))
    write_each(model, _FORMS)


def _is_expanded(node: ir.Node) -> bool:
    """By the body that ONNX gives the operator, as OpenVINO's reader does not look at all of its attributes."""
    if node.op_type == "Attention":
        return any(node.attributes.get_int(f"{side}_window_size", -1) >= 0 for side in ("left", "right"))
    return node.op_type == "NegativeLogLikelihoodLoss"


def _wrap(node: ir.Node) -> None:
    """Sums of bytes wrap around in ONNX Runtime and NumPy; OpenVINO keeps them at the end of the range.

    before:  z:u8 = Sub (a:u8, b:u8)
    after:   z:u8 = Cast (BitwiseAnd (Sub (Cast (a), Cast (b)), 255))
    """
    result = node.outputs[0]
    if result.dtype not in _BYTES:
        return
    place, whole = Place(node), ir.DataType.INT32
    wide = [place.op("Cast", value, dtype=whole, to=int(whole)) for value in node.inputs]
    sum_ = place.op(node.op_type, *wide, like=result, dtype=whole)
    middle = place.constant(np.int32(128)) if result.dtype == ir.DataType.INT8 else None
    moved = sum_ if middle is None else place.op("Add", sum_, middle)
    kept = place.op("BitwiseAnd", moved, place.constant(np.int32(255)))
    back = kept if middle is None else place.op("Sub", kept, middle)
    place.becomes(place.op("Cast", back, dtype=result.dtype, to=int(result.dtype)))


def _one_hot(node: ir.Node) -> None:
    """A float between two indices is none of them; OpenVINO cuts it off."""
    indices, depth = node.inputs[0], node.inputs[1]
    if indices is None or depth is None or indices.dtype is None or not indices.dtype.is_floating_point():
        return
    place, kind = Place(node), int(indices.dtype)
    one = place.op("Squeeze", place.op("Cast", depth, dtype=indices.dtype, to=kind), shape=())
    below = place.op("Sub", place.op("Neg", one), place.op("CastLike", place.constant(np.float32(1)), one))
    near = place.op("Min", place.op("Max", indices, below), one)
    whole = place.op("Equal", near, place.op("Floor", near), dtype=ir.DataType.BOOL)
    kept = place.op("Where", whole, near, one, like=near)
    node.replace_input_with(0, place.op("Cast", kept, dtype=ir.DataType.INT64, to=int(ir.DataType.INT64)))


def _resize(node: ir.Node) -> None:
    write_resize(node, _is_exact)


def _is_exact(node: ir.Node, method: Method) -> bool:
    """Whether OpenVINO's Interpolate computes it as ONNX says."""
    if method.coordinates not in _COORDINATES:
        return False
    return method.mode == "nearest" or not (method.antialias or (method.exclude_outside and method.mode == "cubic"))


def _transform(node: ir.Node) -> None:
    """Of real numbers, or of one side of a spectrum: OpenVINO gives these other shapes."""
    sizes = dims(node.inputs[0])
    if sizes is not None and (sizes[-1] == 1 or node.attributes.get_int("onesided", 0) != 0):
        write_transform(node)


_FORMS: Mapping[str, Callable[[ir.Node], None]] = {
    "Add": _wrap,
    "DFT": _transform,
    "GRU": batch_inside,
    "LSTM": batch_inside,
    "LpNormalization": write_lp_normalization,
    "MaxPool": write_max_pool,
    "Mul": _wrap,
    "OneHot": _one_hot,
    "Pad": write_wrapped,
    "RNN": batch_inside,
    "Resize": _resize,
    "Sub": _wrap,
}
