"""LSTM, GRU and RNN in the forms that more readers compute, a node at a time and in place."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, dims

RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def batch_inside(node: ir.Node) -> None:
    """``layout`` 1 as transposes around ``layout`` 0, for readers that do not look at it.

    Source: ONNX operators, LSTM-22: X (batch, steps, inputs), states (batch, directions, hidden), Y (batch, steps,
    directions, hidden).
    """
    if not node.attributes.get_int("layout", 0):
        return
    place = Place(node)
    node.attributes["layout"] = ir.AttrInt64("layout", 0)
    for number in (0, 5, 6):
        value = node.inputs[number] if len(node.inputs) > number else None
        sizes = dims(value)
        if value is not None and sizes is not None:
            turned = place.op("Transpose", value, shape=[sizes[1], sizes[0], *sizes[2:]], perm=(1, 0, 2))
            node.replace_input_with(number, turned)
    for result, there, back in zip(node.outputs, _THERE, _BACK, strict=False):
        if result.uses() or result.is_graph_output():
            sizes = dims(result)
            place.read_through(result, "Transpose", perm=back)
            result.shape = None if sizes is None else ir.Shape([sizes[each] for each in there])


_THERE = ((1, 2, 0, 3), (1, 0, 2), (1, 0, 2))
_BACK = ((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))


def forwards(node: ir.Node) -> None:
    """``direction`` reverse as a forward layer between two gathers, which turn the steps around.

    before:  y = LSTM[reverse] (x)
    after:   y = Gather (LSTM (Gather (x, …, 1, 0)), …, 1, 0)

    Leaves layers whose number of steps is only known at run time, and those with lengths of sequences.
    """
    x, sizes = node.inputs[0], dims(node.inputs[0])
    if node.attributes.get_string("direction", "forward") != "reverse" or x is None or sizes is None:
        return
    steps = sizes[0]
    if not isinstance(steps, int) or (len(node.inputs) > 4 and node.inputs[4] is not None):
        return
    place = Place(node)
    turned = place.constant(np.arange(steps - 1, -1, -1, dtype=np.int64))
    node.replace_input_with(0, place.op("Gather", x, turned, axis=0))
    every = node.outputs[0]
    if every.uses() or every.is_graph_output():
        place.read_behind(every, "Gather", turned, axis=0)
    node.attributes["direction"] = ir.AttrString("direction", "forward")
