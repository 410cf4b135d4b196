"""Convolutions of rows and volumes where MNN has layers of images alone, and comparisons that it gets wrong."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer, inserted, replaced, sizes
from convertkit.targets.forms.writing import Place, refusal

_TRAILING = {"strides": 1, "dilations": 1, "kernel_shape": 1, "output_padding": 0}
"""Attributes with a number for each spatial axis, and that of one more axis of size 1."""
_VOLUME = 5
_ROWS = frozenset({"Conv", "ConvTranspose"})
_FUSED = frozenset({"Clip", "Identity", "LeakyRelu", "PRelu", "Relu"})
"""Operators that keep the sizes that MNN gives their operand."""
_COMPARES = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"})


def write_shapes(node: ir.Node) -> None:
    """Rewrite ``node`` where MNN needs another form.  ``Unsupported`` for what it has no layer of that runs."""
    if node.domain:
        return
    if node.op_type in _ROWS and len(sizes(node.inputs[0]) or ()) == 3 and _lacks_rows(node):
        _as_image(node)
    elif node.op_type in ("Conv", "ConvTranspose") and len(sizes(node.inputs[0]) or ()) == _VOLUME:
        raise refusal(node, "a convolution of volumes, which MNN's converter writes and its library does not run")
    elif node.op_type in _COMPARES:
        _of_one_shape(node)
        if node.op_type == "Less":
            _turned(node)
        elif node.op_type == "Equal":
            _equal(node)


def close_rows(graph: ir.Graph) -> None:
    """Outputs of convolutions of rows, to which MNN gives a fourth axis where nothing but an activation follows.

    before:  y[N,C,L] = Relu (Conv (x))
    after:   y[N,C,L] = Reshape (Relu (Conv (x)), [0, 0, -1])
    """
    for value in tuple(graph.outputs):
        made = node = value.producer()
        while node is not None and not node.domain and node.op_type in _FUSED:
            node = None if node.inputs[0] is None else node.inputs[0].producer()
        if made is None or node is None or node.op_type != "Conv" or len(sizes(value) or ()) != 3:
            continue
        Place(made).read_behind(value, "Reshape", initializer(made, np.array([0, 0, -1]), f"{made.name}/rows"))


def _lacks_rows(node: ir.Node) -> bool:
    """Whether MNN gives an image for them: of a stored window it convolves them as rows."""
    return node.op_type == "ConvTranspose" or array_of(node.inputs[1]) is None


def _of_one_shape(node: ir.Node) -> None:
    """Both operands in the shape of the result where they differ along inner axes, which MNN compares wrongly."""
    whole, shapes = sizes(node.outputs[0]), [sizes(value) for value in node.inputs]
    if not whole or any(shape is None for shape in shapes):
        return
    lined = [(1,) * (len(whole) - len(shape or ())) + tuple(shape or ()) for shape in shapes]
    if lined[0] == lined[1] or any(all(size == 1 for size in shape) for shape in lined):
        return
    target = initializer(node, np.array([size or 1 for size in whole], np.int64), f"{node.name}/whole")
    for place, (value, shape) in enumerate(zip(node.inputs, lined, strict=True)):
        if value is not None and shape != whole:
            wide = ir.Shape([size or other for size, other in zip(whole, node.outputs[0].shape or (), strict=True)])
            made = inserted(node, "Expand", [value, target], value, shape=wide)
            node.replace_input_with(place, made.outputs[0])


def _turned(node: ir.Node) -> None:
    """``y > x`` for ``x < y``, which MNN computes wrongly for two tensors."""
    less, more = node.inputs
    if less is not None and more is not None:
        replaced(node, "Greater", [more, less])


def _equal(node: ir.Node) -> None:
    """``x >= y and x <= y`` for floats: of some sizes MNN takes 0 and -0 for two numbers."""
    x, y = node.inputs
    if x is not None and y is not None and x.dtype is not None and x.dtype.is_floating_point():
        result = node.outputs[0]
        parts = [inserted(node, kind, [x, y], result).outputs[0] for kind in ("GreaterOrEqual", "LessOrEqual")]
        replaced(node, "And", parts)


def _as_image(node: ir.Node) -> None:
    """A convolution of rows, of which MNN gives an image.

    before:  x [N, C, L] → ConvTranspose, or Conv
    after:   x → Unsqueeze → the same of [N, C, L, 1] → Squeeze
    """
    x, weight, *bias = node.inputs
    assert x is not None
    assert weight is not None
    axis = initializer(node, np.array([3], np.int64), f"{node.name}/column")
    rows, window = (inserted(node, "Unsqueeze", [each, axis], each, shape=_column(each)) for each in (x, weight))
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    for name, value in _TRAILING.items():
        if name in attributes:
            attributes[name] = [*attributes[name], value]
    if "pads" in attributes:
        first, last = attributes["pads"]
        attributes["pads"] = [first, 0, last, 0]
    if "output_shape" in attributes:
        attributes["output_shape"] = [*attributes["output_shape"], 1]
    given = [rows.outputs[0], window.outputs[0], *(each for each in bias if each is not None)]
    made = inserted(node, node.op_type, given, node.outputs[0], attributes, _column(node.outputs[0]))
    replaced(node, "Squeeze", [made.outputs[0], axis])


def _column(value: ir.Value) -> ir.Shape:
    return ir.Shape([*(value.shape or ()), 1])
