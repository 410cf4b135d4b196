"""Convolutions with strides that the NPU's integers do not have, as those of blocks.

before:  x [1, 3, 64, 64], w [32, 3, 16, 16] → Conv, strides 16
after:   SpaceToDepth, blocks of 4 × 4 [1, 48, 16, 16], w [32, 48, 4, 4] → Conv, strides 4

before:  x [1, 4, 100], w [8, 4, 20] → Conv, stride 10, padding 5
after:   Pad → Reshape [1, 4, 55, 2] → Transpose [1, 4, 2, 55] → Reshape [1, 8, 55], w [8, 8, 10] → Conv, stride 5

RKNN-Toolkit2 2.5.0 crashes on a convolution of integers with a stride of more than 7, or ends with a KeyError where it
stays float beside integers.  Where each channel has its own window of two axes, it takes any stride.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted
from convertkit_rknn.sizes import known_sizes, reshaped

_LONGEST = 7
_IMAGE = 2


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of the image: pixels beside its ends (cut off where negative) and the window, in whole blocks."""

    size: int
    kernel: int
    stride: int
    before: int
    given: int
    side: int

    @property
    def window(self) -> int:
        """Pixels of a window of whole blocks."""
        return -(-self.kernel // self.side) * self.side

    @property
    def total(self) -> int:
        """Pixels that windows of whole blocks stand on."""
        count = (self.size + self.before + self.given - self.kernel) // self.stride + 1
        return (count - 1) * self.stride + self.window

    @property
    def behind(self) -> int:
        return self.total - self.before - self.size


def write_long_strides(model: ir.Model) -> None:
    """In place; what is dilated, or of sizes that are not known, stays as it is."""
    for node in tuple(model.graph):
        strides = node.attributes.get_ints("strides", ()) if node.op_type == "Conv" else ()
        if max(strides, default=0) > _LONGEST and not _is_depthwise(node, len(strides)):
            axes = _axes(node, strides)
            if axes:
                _write(model.graph, node, axes)


def _is_depthwise(node: ir.Node, axes: int) -> bool:
    """Whether each channel has its own window of two axes."""
    sizes = known_sizes(node.inputs[0])
    return axes == _IMAGE and len(sizes) > 1 and sizes[1] > 1 and node.attributes.get_int("group", 1) == sizes[1]


def _axes(node: ir.Node, strides: Sequence[int]) -> tuple[_Axis, ...]:
    """How each axis is cut into blocks; none where that is not what it computes."""
    weights, attributes = node.inputs[1], node.attributes
    dilations = attributes.get_ints("dilations", ())
    image, window = known_sizes(node.inputs[0])[2:], known_sizes(weights)[2:]
    if weights is None or weights.const_value is None or not image or set(dilations) - {1}:
        return ()
    if attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return ()
    pads = attributes.get_ints("pads", (0,) * (2 * len(image)))
    half = len(image)
    sides = map(_side, strides)
    return tuple(map(_Axis, image, window, strides, pads[:half], pads[half:], sides))


def _side(stride: int) -> int:
    """The least side of a block by which the stride is short enough."""
    return next(side for side in range(1, stride + 1) if stride % side == 0 and stride // side <= _LONGEST)


def _write(graph: ir.Graph, node: ir.Node, axes: Sequence[_Axis]) -> None:
    data, weights = node.inputs[0], node.inputs[1]
    assert data is not None
    assert weights is not None
    assert weights.const_value is not None
    sides = tuple(axis.side for axis in axes)
    is_square = len(axes) == _IMAGE and len(set(sides)) == 1 and node.attributes.get_int("group", 1) == 1
    whole = _padded(graph, node, _cut(graph, node, data, axes), axes)
    blocks = _to_depth(node, whole, sides[0]) if is_square else _apart(graph, node, whole, sides)
    moved = _moved(weights.const_value.numpy(), axes, is_square)
    node.replace_input_with(0, blocks)
    node.replace_input_with(1, add_constant(graph, f"{weights.name}/blocks", moved))
    stated = {
        "strides": [axis.stride // axis.side for axis in axes],
        "kernel_shape": moved.shape[2:],
        "pads": [0] * (2 * len(axes)),
    }
    for name, values in stated.items():
        node.attributes[name] = ir.AttrInt64s(name, list(values))


def _cut(graph: ir.Graph, node: ir.Node, data: ir.Value, axes: Sequence[_Axis]) -> ir.Value:
    """Without what no window reaches."""
    kept = [min(axis.size, axis.size + axis.behind) for axis in axes]
    if kept == [axis.size for axis in axes]:
        return data
    places = {"starts": [0] * len(axes), "ends": kept, "axes": [2 + place for place in range(len(axes))]}
    stored = [add_constant(graph, f"{data.name}/{name}", np.array(each, np.int64)) for name, each in places.items()]
    shape = ir.Shape([*known_sizes(data)[:2], *kept])
    return inserted(node, "Slice", [data, *stored], data, shape=shape).outputs[0]


def _padded(graph: ir.Graph, node: ir.Node, data: ir.Value, axes: Sequence[_Axis]) -> ir.Value:
    pads = [0, 0, *(axis.before for axis in axes), 0, 0, *(max(axis.behind, 0) for axis in axes)]
    if not any(pads):
        return data
    stored = add_constant(graph, f"{data.name}/pads", np.array(pads, np.int64))
    shape = ir.Shape([*known_sizes(data)[:2], *(axis.total for axis in axes)])
    return inserted(node, "Pad", [data, stored], data, shape=shape).outputs[0]


def _to_depth(node: ir.Node, data: ir.Value, side: int) -> ir.Value:
    """Channels are row of the block, column, channel: what the NPU does in one operator."""
    batch, channels, *image = known_sizes(data)
    shape = ir.Shape([batch, channels * side * side, *(size // side for size in image)])
    return inserted(node, "SpaceToDepth", [data], data, {"blocksize": side}, shape).outputs[0]


def _apart(graph: ir.Graph, node: ir.Node, data: ir.Value, sides: Sequence[int]) -> ir.Value:
    """Channels are channel, place in the block: those of a group stay together."""
    batch, channels, *image = known_sizes(data)
    counts = [size // side for size, side in zip(image, sides, strict=True)]
    pairs = [size for pair in zip(counts, sides, strict=True) for size in pair]
    order = [0, 1, *range(3, 2 + len(pairs), 2), *range(2, 2 + len(pairs), 2)]
    apart = reshaped(graph, node, data, [batch, channels, *pairs])
    shape = ir.Shape([batch, channels, *sides, *counts])
    turned = inserted(node, "Transpose", [apart], apart, {"perm": order}, shape).outputs[0]
    return reshaped(graph, node, turned, [batch, channels * math.prod(sides), *counts])


def _moved(weights: np.ndarray, axes: Sequence[_Axis], is_square: bool) -> np.ndarray:
    """Windows of pixels as windows of blocks, with channels in the order of :func:`_to_depth` or :func:`_apart`."""
    outputs, channels, *window = weights.shape
    whole = np.zeros((outputs, channels, *(axis.window for axis in axes)), weights.dtype)
    whole[(slice(None), slice(None), *map(slice, window))] = weights
    counts = [axis.window // axis.side for axis in axes]
    pairs = [size for count, axis in zip(counts, axes, strict=True) for size in (count, axis.side)]
    inside, blocks = range(3, 2 + len(pairs), 2), range(2, 2 + len(pairs), 2)
    order = (0, *inside, 1, *blocks) if is_square else (0, 1, *inside, *blocks)
    return np.ascontiguousarray(whole.reshape(outputs, channels, *pairs).transpose(order).reshape(outputs, -1, *counts))
