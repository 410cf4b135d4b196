"""Operators that OpenVINO 2026.4 computes differently or not at all, in forms that it computes as ONNX says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.onnx.fourier import transform
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.recurrences import batch_inside
from convertkit.targets.forms.writing import Place, dims
from convertkit.targets.openvino.pooling import write_max_pool
from convertkit.targets.openvino.resizing import write_resize

_BYTES = frozenset({ir.DataType.UINT8, ir.DataType.INT8})
_LARGEST_TRANSFORM = 1 << 20
"""Elements of a matrix; a longer transform is left to OpenVINO."""


def write_exact_forms(model: ir.Model) -> None:
    """Rewrite in place; ``Unsupported`` names a node that has no exact form."""
    expand_functions(model, lambda node: not _is_expanded(node))
    for node in tuple(model.graph.all_nodes()):
        form = _FORMS.get(node.op_type)
        if form is not None and not node.domain:
            form(node)


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


def _lp_normalization(node: ir.Node) -> None:
    """What has norm 0 stays 0; OpenVINO adds a small number to each norm."""
    x, sizes = node.inputs[0], dims(node.inputs[0])
    if x is None or sizes is None:
        return
    axis = node.attributes.get_int("axis", -1) % len(sizes)
    place, shape = Place(node), [1 if each == axis else size for each, size in enumerate(sizes)]
    kind = "ReduceL1" if node.attributes.get_int("p", 2) == 1 else "ReduceL2"
    norm = place.op(kind, x, place.constant(np.array([axis])), shape=shape, keepdims=1)
    zero, one = (place.op("CastLike", place.constant(np.float32(each)), x, like=norm, shape=()) for each in (0, 1))
    empty = place.op("Equal", norm, zero, dtype=ir.DataType.BOOL)
    place.becomes(place.op("Div", x, place.op("Where", empty, one, norm, like=norm), like=x))


def _wrapped_pad(node: ir.Node) -> None:
    """``mode`` wrap as a gather along each padded axis."""
    if node.attributes.get_string("mode", "constant") != "wrap":
        return
    place, value, sizes = Place(node), node.inputs[0], dims(node.inputs[0])
    given = [array_of(each) for each in node.inputs[1:]]
    pads, axes = given[0], given[2] if len(given) > 2 else None
    if value is None or sizes is None or pads is None or (len(node.inputs) > 3 and node.inputs[3] and axes is None):
        raise place.refused("OpenVINO does not wrap around by pads that are computed")
    named = range(len(sizes)) if axes is None else [int(each) % len(sizes) for each in axes]
    for axis, first, last in zip(named, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True):
        size = sizes[axis]
        if not first and not last:
            continue
        if not isinstance(size, int):
            raise place.refused("OpenVINO does not wrap around an axis whose size is dynamic")
        indices = np.arange(-int(first), size + int(last)) % size
        sizes = (*sizes[:axis], len(indices), *sizes[axis + 1 :])
        value = place.op("Gather", value, place.constant(indices), shape=sizes, axis=axis)
    place.becomes(value if value.producer() else place.op("Identity", value))


def _transform(node: ir.Node) -> None:
    """A DFT of real numbers, or of one side of a spectrum, as a product: OpenVINO gives these other shapes."""
    x, sizes = node.inputs[0], dims(node.inputs[0])
    length, where = (array_of(node.inputs[place]) if len(node.inputs) > place else None for place in (1, 2))
    computed = any(value is not None and array_of(value) is None for value in node.inputs[1:])
    onesided, inverse = (bool(node.attributes.get_int(name, 0)) for name in ("onesided", "inverse"))
    if x is None or sizes is None or computed or (sizes[-1] != 1 and not onesided):
        return
    first = 1 if node.graph is not None and node.graph.opset_imports.get("", 20) < 20 else -2  # DFT-17 has an attribute
    axis = (node.attributes.get_int("axis", first) if where is None else int(where)) % len(sizes)
    size, parts = sizes[axis], sizes[-1]
    if not isinstance(size, int) or not isinstance(parts, int) or x.dtype != ir.DataType.FLOAT:
        return
    points = int(length) if length is not None else 2 * (size - 1) if inverse and onesided else size
    weights = transform(size, points, parts, inverse, onesided)
    if weights.size > _LARGEST_TRANSFORM:
        return
    place, rest = Place(node), [each for each in range(len(sizes) - 1) if each != axis]
    perm, outer = [*rest, axis, len(sizes) - 1], [sizes[each] for each in rest]
    value = place.op("Transpose", x, shape=[*outer, size, parts], perm=perm)
    flat = place.constant(np.array([*[0] * len(outer), size * parts]))
    value = place.op("Reshape", value, flat, shape=[*outer, size * parts])
    count, kinds = weights.shape[:2]
    table = place.constant(np.ascontiguousarray(weights.reshape(count * kinds, size * parts).T))
    value = place.op("MatMul", value, table, shape=[*outer, count * kinds])
    full = place.constant(np.array([*[0] * len(outer), count, kinds]))
    value = place.op("Reshape", value, full, shape=[*outer, count, kinds])
    back = [perm.index(each) for each in range(len(sizes))]
    place.becomes(place.op("Transpose", value, like=node.outputs[0], perm=back))


_FORMS: Mapping[str, Callable[[ir.Node], None]] = {
    "Add": _wrap,
    "DFT": _transform,
    "GRU": batch_inside,
    "LSTM": batch_inside,
    "LpNormalization": _lp_normalization,
    "MaxPool": write_max_pool,
    "Mul": _wrap,
    "OneHot": _one_hot,
    "Pad": _wrapped_pad,
    "RNN": batch_inside,
    "Resize": write_resize,
    "Sub": _wrap,
}
