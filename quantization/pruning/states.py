"""How channels go through LSTM, GRU and RNN: the units of their state are channels of all gates.

Layouts of inputs and weights: https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.quantization.pruning.channels import Channels, Layout, layout_nothing, layout_of
from convertkit.quantization.pruning.group import Group
from convertkit.quantization.pruning.moves import fixed

_WEIGHT, _STATE, _BIAS, _LENGTHS, _PEEPHOLES = 1, 2, 3, 4, 7
_AT_ONCE = 2
"""The axis of channels in what is read, ``(time, batch, channels)``."""


def recurrent(channels: Channels, node: ir.Node) -> Layout | None:
    """A unit goes from every gate of every direction, from the weights of the state and from what reads it."""
    layout = channels.of(node.inputs[0])
    weight, state = fixed(node, _WEIGHT), fixed(node, _STATE)
    given = dict(enumerate(node.inputs))
    if weight is None or state is None or node.attributes.get_int("layout", 0) != 0:
        return None
    if layout is not None:
        if layout.axis != _AT_ONCE or layout.size != weight.shape[2]:
            return None
        channels.cut(node, _WEIGHT, 2, layout, node.inputs[0])
    rest = [index for index in range(_BIAS, len(node.inputs)) if index != _LENGTHS and given[index] is not None]
    if any(fixed(node, index) is None for index in rest):
        channels.freeze(node.inputs[_BIAS:])  # a state that comes from elsewhere has the size that it has
        return layout_nothing()
    size = int(state.shape[2])
    units = layout_of(Group(size), 0)
    for index in (_WEIGHT, _STATE, *rest):
        array = fixed(node, index)
        assert array is not None
        axis = 2 if array.ndim == 3 and index not in (_WEIGHT, _STATE) else 1
        gates = array.shape[axis] // size
        channels.cut(node, index, axis, units.picked(np.tile(np.arange(size), gates)))
    channels.cut(node, _STATE, 2, units, node.outputs[0])
    channels.counted(node, "hidden_size", units)
    for place, value in enumerate(node.outputs):
        if value.name:
            channels.layouts[value] = units.picked(np.arange(size), 2 if place else 3)
    return channels.of(node.outputs[0]) or layout_nothing()
