"""How long ONNX Runtime's float convolutions take for rows of this and that length, in parts that are alike.

A kernel computes six outputs of a row together, and one at a time those whose window reaches over the row's ends.  A
single one waits for its sums: of 16 filters it takes as long as six, of 64 a third of six.
Source: MLAS, ``MlasConvNchwcKernel``.  Measured: ``bench/onnxruntime_sideways.py``.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.onnx.edit import sizes

_TOGETHER = 6
_LANES, _BLOCKS = 16, 4
"""Filters of a block, and blocks that are computed together."""
_STEP_NS = 0.3
"""Of one output, weight and set of blocks."""


def window_saving_ns(node: ir.Node) -> float:
    """Nanoseconds a sample that a 2-D convolution saves by exchanged height and width; 0 for other nodes."""
    if node.op_type != "Conv":
        return 0.0
    read, weight, made = (sizes(value) for value in (*node.inputs[:2], node.outputs[0]))
    if read is None or weight is None or made is None:
        return 0.0
    filters, channels, *window = (size or 1 for size in weight)
    if math.prod(window) == 1:
        return 0.0  # all places are computed as one row
    group = node.attributes.get_int("group", 1)
    blocks = 1 if group == filters else min(math.ceil(filters / group / _LANES), _BLOCKS)
    sets = math.ceil(filters / _LANES) / blocks
    height, width = made[2] or 1, made[3] or 1
    ends = [_ends(node, axis, made[axis + 2] or 1, read[axis + 2] or 1, window[axis]) for axis in (0, 1)]
    more = height * _row(width, ends[1], blocks) - width * _row(height, ends[0], blocks)
    return more * _STEP_NS * channels * math.prod(window) * sets


def _row(length: int, ends: int, blocks: int) -> float:
    """Steps of a row of so many outputs, of which so many reach over its ends."""
    ends = min(ends, length)
    return ends + math.ceil((length - ends) / _TOGETHER) * max(1.0, 0.75 * blocks)


def _ends(node: ir.Node, axis: int, outputs: int, inputs: int, window: int) -> int:
    """How many outputs along an axis read beyond the input."""
    pads = node.attributes.get_ints("pads", (0, 0, 0, 0))
    stride = node.attributes.get_ints("strides", (1, 1))[axis]
    reach = (window - 1) * node.attributes.get_ints("dilations", (1, 1))[axis]
    starts = (place * stride - pads[axis] for place in range(outputs))
    return sum(start < 0 or start + reach >= inputs for start in starts)
