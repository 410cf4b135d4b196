"""Windows over pictures that tf2onnx lacks or gets wrong, registered with it.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from convertkit.converters.tensorflow.compat import CropAndResize, ExtractImagePatches, tf_op
from convertkit.converters.tensorflow.forms import FLOAT, Form

Axis = tuple[int, int, int, int]
"""Of one axis: how many windows, padding in front and behind, and the size of the axis with it."""


def _axis(size: int, window: int, stride: int, rate: int, padding: str) -> Axis:
    """SAME and VALID as TensorFlow counts them, the odd element behind."""
    full = (window - 1) * rate + 1
    if padding == "VALID":
        return (size - full) // stride + 1, 0, 0, size
    if padding != "SAME":
        raise ValueError(f"padding {padding}")
    count = -(-size // stride)
    whole = max((count - 1) * stride + full - size, 0)
    return count, whole // 2, whole - whole // 2, size + whole


def _padded(f: Form, x: str, rows: Axis, columns: Axis, value: Any) -> str:
    pads = [0, rows[1], columns[1], 0, 0, rows[2], columns[2], 0]
    return f.op("Pad", x, f.constant(pads), f.like(value)) if any(pads) else x


def _picture(f: Form) -> tuple[int, int]:
    """Height and width; ``ValueError`` where one is dynamic."""
    shape = f.shape()
    if len(shape) != 4 or min(shape[1:3]) < 1:
        raise ValueError(f"{f.node.type} of pictures whose height and width are known only at run time")
    return shape[1], shape[2]


@tf_op("Dilation2D")
class Dilation2D:
    """The maximum over shifted pictures, each with its element of the filter; what is outside never is the largest."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        if np.dtype(f.numpy()).kind != "f":
            raise ValueError("Dilation2D of whole numbers")
        height, width = _picture(f)
        high, wide = f.shape(1)[:2]
        strides, rates = (list(f.flag(name))[1:3] for name in ("strides", "rates"))
        rows = _axis(height, high, strides[0], rates[0], f.flag("padding"))
        columns = _axis(width, wide, strides[1], rates[1], f.flag("padding"))
        x, shifted = _padded(f, node.input[0], rows, columns, np.finfo(f.numpy()).min), []
        for row, column in np.ndindex(high, wide):
            top, left = row * rates[0], column * rates[1]
            part = f.part(x, 1, top, top + (rows[0] - 1) * strides[0] + 1, strides[0])
            part = f.part(part, 2, left, left + (columns[0] - 1) * strides[1] + 1, strides[1])
            weight = f.op("Gather", f.op("Gather", node.input[1], f.constant(row), axis=0), f.constant(column), axis=0)
            shifted.append(f.op("Add", part, weight))
        f.end(f.op("Max", *shifted))


@tf_op("ExtractImagePatches")
class Patches(ExtractImagePatches):  # type: ignore[misc]  # tf2onnx has no types
    """Rows and columns taken by their places, and turned; tf2onnx's form fails of dilated windows."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        f = Form(ctx, node)
        shape = f.shape()
        if len(shape) != 4 or min(shape[1:]) < 1:
            cls.version_9(ctx, node, **how)
            return
        sizes, strides, rates = (list(f.flag(name))[1:3] for name in ("ksizes", "strides", "rates"))
        axes = [_axis(shape[i + 1], sizes[i], strides[i], rates[i], f.flag("padding")) for i in (0, 1)]
        x = _padded(f, node.input[0], axes[0], axes[1], 0)
        for i in (0, 1):
            places = np.arange(axes[i][0])[:, None] * strides[i] + np.arange(sizes[i]) * rates[i]
            x = f.op("Gather", x, f.constant(places.reshape(-1)), axis=i + 1)
        (rows, columns), channels = (axes[0][0], axes[1][0]), shape[3]
        x = f.op("Reshape", x, f.constant([-1, rows, sizes[0], columns, sizes[1], channels]))
        x = f.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
        f.end(f.op("Reshape", x, f.constant([-1, rows, columns, sizes[0] * sizes[1] * channels])))


@tf_op("CropAndResize")
class Crops(CropAndResize):  # type: ignore[misc]  # tf2onnx has no types
    """Two products with the weights of each box's rows and columns, where all sizes are known."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        f = Form(ctx, node)
        shape = f.shape()
        if len(shape) != 4 or min(shape[1:]) < 1 or not node.inputs[3].is_const():
            cls.version_10(ctx, node, **how)
            return
        _, height, width, channels = shape
        high, wide = (int(each) for each in f.known(3))
        nearest = f.flag("method", "bilinear") == "nearest"
        x = f.op("Gather", f.cast(node.input[0], FLOAT), node.input[2], axis=0)
        rows, row_in = _weights(f, 0, height, high, nearest)
        columns, column_in = _weights(f, 1, width, wide, nearest)
        x = f.op("MatMul", rows, f.op("Reshape", x, f.constant([-1, height, width * channels])))
        x = f.op("Reshape", x, f.constant([-1, high, width, channels]))
        x = f.op("MatMul", f.op("Unsqueeze", columns, f.constant([1])), x)
        inside = f.op("And", f.op("Unsqueeze", row_in, f.constant([2])), f.op("Unsqueeze", column_in, f.constant([1])))
        inside = f.op("Unsqueeze", inside, f.constant([3]))
        f.end(f.op("Where", inside, x, f.constant(f.flag("extrapolation_value", 0.0), np.float32)))


def _weights(f: Form, axis: int, before: int, after: int, nearest: bool) -> tuple[str, str]:
    """Weights [box, after, before] of one axis, and which of the places [box, after] lie in the picture.

    Source of the rule: ``tf.image.crop_and_resize``, "boxes".
    """
    boxes = f.node.input[1]
    start, end = (f.op("Gather", boxes, f.constant([axis + side]), axis=1) for side in (0, 2))
    last = f.constant(before - 1, np.float32)
    if after > 1:
        step = f.op("Div", f.op("Mul", f.op("Sub", end, start), last), f.constant(after - 1, np.float32))
        steps = f.op("Mul", f.constant(np.arange(after)[None], np.float32), step)
        place = f.op("Add", f.op("Mul", start, last), steps)
    else:
        place = f.op("Mul", f.op("Mul", f.op("Add", start, end), f.constant(0.5, np.float32)), last)
    outside = f.op("Or", f.op("Less", place, f.constant(0, np.float32)), f.op("Greater", place, last))
    low = f.op("Floor", place)
    part = f.op("Sub", place, low)
    if nearest:
        part = f.cast(f.op("Not", f.op("Less", part, f.constant(0.5, np.float32))), FLOAT)
    part, low = (f.op("Unsqueeze", each, f.constant([2])) for each in (part, low))
    numbers, one = f.constant(np.arange(before), np.float32), f.constant(1, np.float32)
    first = f.op("Mul", f.cast(f.op("Equal", low, numbers), FLOAT), f.op("Sub", one, part))
    second = f.op("Mul", f.cast(f.op("Equal", f.op("Add", low, one), numbers), FLOAT), part)
    return f.op("Add", first, second), f.op("Not", outside)


def pad_no_less_than_nothing(model: ir.Model) -> None:
    """Give each ConvTranspose more output for padding below 0, which ONNX forbids, in place."""
    for node in model.graph.all_nodes():
        pads = node.attributes.get_ints("pads", ()) if node.op_type == "ConvTranspose" else ()
        if not pads or min(pads) >= 0:
            continue
        half = len(pads) // 2
        whole = [pads[axis] + pads[axis + half] for axis in range(half)]
        more = node.attributes.get_ints("output_padding", [0] * half)
        kept = [0 if total < 0 else pads[place] for place, total in enumerate(whole * 2)]
        node.attributes["pads"] = ir.AttrInt64s("pads", kept)
        grown = [extra - min(total, 0) for extra, total in zip(more, whole, strict=True)]
        node.attributes["output_padding"] = ir.AttrInt64s("output_padding", grown)


def state_pads_of_stride_one(model: ir.Model) -> None:
    """State what SAME_UPPER pads without strides, whatever the sizes are, in place.

    ONNX Runtime computes no padding of a window with dilations.
    """
    for node in model.graph.all_nodes():
        rule = node.attributes.get_string("auto_pad", "NOTSET") if node.op_type == "Conv" else "NOTSET"
        kernel = node.attributes.get_ints("kernel_shape", ())
        ones = (1,) * len(kernel)
        strides, dilations = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
        if rule != "SAME_UPPER" or not kernel or set(strides) != {1}:
            continue
        totals = [(size - 1) * gap for size, gap in zip(kernel, dilations, strict=True)]
        pads = [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
        node.attributes["pads"] = ir.AttrInt64s("pads", pads)
        node.attributes.pop("auto_pad")
