"""TensorFlow's ways to resize pictures that ONNX's Resize does not have, registered with tf2onnx.

Bicubic weights come from a table of 1,024 in TensorFlow and are up to 7e-4 from the formula; area has windows of
fractions of pixels; ``antialias`` and the kernels behind it are ScaleAndTranslate.  All are linear, and separate for
rows and columns.  So TensorFlow's own kernel, given a unit matrix, tells the weights, and two products with those are
the resize to the last rounding.  That needs a height and a width that are known.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from convertkit.artifact import Array
from convertkit.converters.tensorflow.compat import Resize, tf_op

Resizer = Callable[[Array, Array], Any]
"""Pictures and a size [height, width] to the resized pictures."""
_FLOAT = 1
"""ONNX's element type for float32."""


def _known(ctx: Any, node: Any) -> tuple[int, int, int, int] | None:
    """Height and width before and after, where all four are known."""
    shape = ctx.get_shape(node.input[0])
    if not shape or len(shape) != 4 or min(shape[1:3]) < 1 or not node.inputs[1].is_const():
        return None
    height, width = (int(each) for each in node.inputs[1].get_tensor_value())
    return shape[1], shape[2], height, width


def _weights(resizer: Resizer, before: int, after: int, *, rows: bool) -> Array:
    """Weights [after, before] of one axis: what a picture with one 1 in each channel becomes.

    The other axis has its one pixel for itself.
    """
    unit = np.eye(before, dtype=np.float32).reshape((1, before, 1, before) if rows else (1, 1, before, before))
    size = np.array([after, 1] if rows else [1, after], np.int32)
    with tf.Graph().as_default() as graph:  # tf2onnx is building another
        resized = resizer(unit, size)
    with tf.compat.v1.Session(graph=graph) as session:
        return np.asarray(session.run(resized)).reshape(after, before)


def _stored(node: Any, instead: Array) -> Array:
    """A constant's numbers; ``instead`` of what is computed."""
    return np.asarray(node.get_tensor_value(as_list=False)) if node.is_const() else instead


def _by_products(ctx: Any, node: Any, rows: Array, columns: Array) -> None:
    """``columns @ (rows @ pictures)`` in place of ``node``; pictures are [n, height, width, channels]."""

    def op(kind: str, *inputs: str, **attributes: Any) -> str:
        return str(ctx.make_node(kind, list(inputs), attr=attributes).output[0])

    def constant(name: str, value: Array) -> str:
        return str(ctx.make_const(f"{node.name}_{name}", value).output[0])

    channels = ctx.get_shape(node.input[0])[3]
    flat = constant("flat", np.array([0, rows.shape[1], columns.shape[1] * channels if channels > 0 else -1], np.int64))
    full = constant("full", np.array([0, rows.shape[0], columns.shape[1], channels], np.int64))
    x = op("Reshape", op("Cast", node.input[0], to=_FLOAT), flat)
    x = op("Reshape", op("MatMul", constant("rows", rows), x), full)
    shapes, dtypes, outputs = node.output_shapes, node.output_dtypes, node.output
    ctx.remove_node(node.name)
    inputs = [constant("columns", columns), x]
    ctx.make_node("MatMul", inputs, name=node.name, outputs=outputs, shapes=shapes, dtypes=dtypes)


@tf_op(["ResizeBicubic", "ResizeArea"])
class Weighted(Resize):  # type: ignore[misc]  # tf2onnx has no types
    """Two products, or tf2onnx's form, which is held against TensorFlow, where a size is not known."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        known = _known(ctx, node)
        if known is None:
            cls.version_11(ctx, node, **how)
            return
        made = getattr(tf.raw_ops, node.type)
        flags = {name: bool(node.get_attr_value(name, False)) for name in ("align_corners", "half_pixel_centers")}
        if node.type == "ResizeArea":
            del flags["half_pixel_centers"]

        def resizer(pictures: Array, size: Array) -> Any:
            return made(images=pictures, size=size, **flags)

        height, width, taller, wider = known
        rows = _weights(resizer, height, taller, rows=True)
        _by_products(ctx, node, rows, _weights(resizer, width, wider, rows=False))


@tf_op("ScaleAndTranslate")
class ScaleAndTranslate:
    """``tf.image.resize`` with ``antialias`` or a Lanczos, Gaussian or Mitchell kernel."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        known = _known(ctx, node)
        if known is None:
            raise ValueError("ScaleAndTranslate needs pictures of a known height and width")
        height, width, taller, wider = known
        # tf.image.resize divides the sizes in the graph; whether this is that quotient the comparison tells
        ratio = np.array([taller, wider], np.float32) / np.array([height, width], np.float32)
        scale = _stored(node.inputs[2], ratio)
        shift = _stored(node.inputs[3], np.zeros(2, np.float32))
        kernel = node.get_attr_str("kernel_type") if "kernel_type" in node.attr else "lanczos3"
        antialias = bool(node.get_attr_value("antialias", True))

        def resizer(axis: int) -> Resizer:
            scales, shifts = np.ones(2, np.float32), np.zeros(2, np.float32)
            scales[axis], shifts[axis] = scale[axis], shift[axis]
            how = {"scale": scales, "translation": shifts, "kernel_type": kernel, "antialias": antialias}
            return lambda pictures, size: tf.raw_ops.ScaleAndTranslate(images=pictures, size=size, **how)

        rows = _weights(resizer(0), height, taller, rows=True)
        _by_products(ctx, node, rows, _weights(resizer(1), width, wider, rows=False))


@tf_op("ResizeBilinear")
class Bilinear(Resize):  # type: ignore[misc]  # tf2onnx has no types
    """tf2onnx's form, whose factors are large enough for the sizes to be whole.

    7 / 10 in float32 makes 6 of 10 elements by ONNX's rule, which rounds down.  The next float32 moves a value by a
    last digit.
    """

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        known = _known(ctx, node)
        cls.version_11(ctx, node, **how)
        if known is None:
            return
        height, width, taller, wider = known
        resize = ctx.get_node_by_name(node.name).inputs[0]
        factors = np.array([1, 1, _reaching(height, taller), _reaching(width, wider)], np.float32)
        ctx.replace_input(resize, resize.input[2], ctx.make_const(f"{node.name}_factors", factors).output[0], 2)


@tf_op("ResizeNearestNeighbor")
class Nearest(Resize):  # type: ignore[misc]  # tf2onnx has no types
    """tf2onnx's form for whole factors, else the rows and columns that TensorFlow's kernel takes.

    Others come to their places by a product in TensorFlow and by a quotient in ONNX Runtime, which float32 rounds to
    neighbours (where 80 rows become 24, say).  And factors could make other sizes, as for bilinear.
    """

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        known = _known(ctx, node)
        places = [] if known is None else cls._places(node, *known)
        if known is None or all(_repeats(taken, before) for taken, before in zip(places, known[:2], strict=True)):
            cls.version_11(ctx, node, **how)
            return
        x = node.input[0]
        shapes, dtypes, outputs = node.output_shapes, node.output_dtypes, node.output
        ctx.remove_node(node.name)
        for axis in (1, 2):
            taken = ctx.make_const(f"{node.name}_places_{axis}", places[axis - 1]).output[0]
            ends = {"name": node.name, "outputs": outputs, "shapes": shapes, "dtypes": dtypes} if axis == 2 else {}
            x = ctx.make_node("Gather", [x, taken], attr={"axis": axis}, **ends).output[0]

    @staticmethod
    def _places(node: Any, height: int, width: int, taller: int, wider: int) -> list[Array]:
        """The rows and the columns that are taken."""
        flags = {name: bool(node.get_attr_value(name, False)) for name in ("align_corners", "half_pixel_centers")}

        def resizer(pictures: Array, size: Array) -> Any:
            return tf.raw_ops.ResizeNearestNeighbor(images=pictures, size=size, **flags)

        sizes = ((height, taller, True), (width, wider, False))
        weights = [_weights(resizer, before, after, rows=rows) for before, after, rows in sizes]
        return [each.argmax(axis=1).astype(np.int64) for each in weights]


def _repeats(taken: Array, before: int) -> bool:
    """Whether each of so many elements is taken equally often, in order."""
    return len(taken) % before == 0 and np.array_equal(taken, np.repeat(np.arange(before), len(taken) // before))


def _reaching(before: int, after: int) -> np.float32:
    """The least float32 that, times ``before``, is not below ``after``."""
    factor = np.float32(after / before)
    return factor if float(factor) * before >= after else np.nextafter(factor, np.float32(np.inf))
