"""Channels behind operators that take a value apart: Split and Slice."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.quantization.pruning.channels import Channels, Layout
from convertkit.quantization.pruning.moves import fixed, rank


def split(channels: Channels, node: ir.Node) -> Layout | None:
    """Parts along another axis have all channels; of equal parts of the channels those at the same place go together.

    So no part is left without any.  Of parts of other sizes all channels stay.
    """
    layout, axes = channels.of(node.inputs[0]), rank(node.inputs[0])
    if layout is None or axes is None:
        return None
    parts = (layout,) * len(node.outputs)
    if node.attributes.get_int("axis", 0) % axes == layout.axis:
        sizes = fixed(node, 1) if len(node.inputs) > 1 and node.inputs[1] is not None else None
        each, left = divmod(layout.size, len(node.outputs))
        unknown = sizes is None and len(node.inputs) > 1 and node.inputs[1] is not None
        if left or unknown or (sizes is not None and (sizes != each).any()):
            return None
        if not layout.tied(np.arange(layout.size) % each):
            return None
        parts = tuple(layout.picked(np.arange(place * each, (place + 1) * each)) for place in range(len(node.outputs)))
        if sizes is not None:
            channels.split(node, parts)
    for output, part in zip(node.outputs, parts, strict=True):
        channels.layouts[output] = part
    return parts[0]


def sliced(channels: Channels, node: ir.Node) -> Layout | None:
    """A slice of other axes than the channels'."""
    layout, axes = channels.of(node.inputs[0]), rank(node.inputs[0])
    if layout is None or axes is None:
        return None
    starts, listed = fixed(node, 1), fixed(node, 3)
    if starts is None or (listed is None and len(node.inputs) > 3 and node.inputs[3] is not None):
        return None
    cut = range(starts.size) if listed is None else (int(axis) % axes for axis in listed.ravel())
    return None if layout.axis in set(cut) else layout
