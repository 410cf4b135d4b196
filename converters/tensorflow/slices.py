"""Slices whose axes tf2onnx names twice, which ONNX forbids: an axis that an ellipsis takes whole, and takes again."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer

_WHOLE = 1_000_000_000
"""The end that tf2onnx writes for "to the end"."""


def drop_whole_axes(model: ir.Model) -> None:
    """Take out of each Slice the ranges of whole axes, where it names an axis twice, in place."""
    for node in [each for each in model.graph.all_nodes() if each.op_type == "Slice" and not each.domain]:
        arrays = [array_of(value) for value in node.inputs[1:]]
        if len(arrays) < 4 or any(array is None for array in arrays):
            continue
        starts, ends, axes, steps = (np.asarray(array) for array in arrays[:4])
        whole = (starts == 0) & (ends >= _WHOLE) & (steps == 1)
        if len(set(axes.tolist())) == len(axes) or whole.all():
            continue
        for place, array in enumerate((starts, ends, axes, steps), start=1):
            name = f"{node.outputs[0].name}/range_{place}"
            node.replace_input_with(place, initializer(node, array[~whole], name))
