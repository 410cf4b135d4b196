"""LSTM, GRU and RNN in the forms that more readers compute, a node at a time and in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, dims, refusal

RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
"""The activations of one direction where a node states none."""


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


def unusual(kind: str, activations: Sequence[str]) -> bool:
    """Whether any direction has other activations than the usual ones; ONNX takes their names in any case."""
    usual = USUAL[kind]
    return [each.lower() for each in activations] != [*usual] * (len(activations) // len(usual))


def refuse_ignored(node: ir.Node, reader: str) -> None:
    """``Unsupported`` for what a ``reader`` would not look at: lengths, other activations, a clip, a way back.

    Lengths that are all the number of steps say nothing.  Comes behind :func:`forwards`.
    """
    lengths, sizes = node.inputs[4] if len(node.inputs) > 4 else None, dims(node.inputs[0])
    stored, steps = array_of(lengths), None if sizes is None else sizes[0]
    if lengths is not None and (stored is None or not isinstance(steps, int) or (stored != steps).any()):
        raise refusal(node, f"lengths of sequences, which {reader} does not look at")
    stated = node.attributes.get_strings("activations", ())
    if unusual(node.op_type, stated):
        raise refusal(node, f"activations {', '.join(stated)}: {reader} has {', '.join(USUAL[node.op_type])} alone")
    for name in ("clip", "input_forget"):
        if name in node.attributes and node.attributes[name].value:
            raise refusal(node, f"{name}, which {reader} does not look at")
    if node.attributes.get_string("direction", "forward") == "reverse":
        reason = f"direction reverse, which {reader} does not look at, over steps whose number is known at run time"
        raise refusal(node, f"{reason}; fix it with --static")


def read_last_states(node: ir.Node) -> None:
    """The last states of a layer of both directions from its states of all steps, for readers that give others.

    before:  y, h = GRU[bidirectional] (x)
    after:   y = GRU[bidirectional] (x), h = Concat (Gather (y, -1)[0:1], Gather (y, 0)[1:2])

    Comes behind :func:`batch_inside`, and leaves layers with lengths of sequences.
    """
    all_steps, last = (*node.outputs, None, None)[:2]
    sizes = dims(last)
    has_lengths = len(node.inputs) > 4 and node.inputs[4] is not None
    if node.attributes.get_string("direction", "forward") != "bidirectional" or has_lengths:
        return
    if all_steps is None or last is None or sizes is None or not (last.uses() or last.is_graph_output()):
        return
    if all_steps.shape is None:
        steps = dims(node.inputs[0])
        all_steps.name = all_steps.name or f"{node.name}/all_steps"
        all_steps.type = last.type
        all_steps.shape = ir.Shape([ir.SymbolicDim(None) if steps is None else steps[0], *sizes])
    Place(node).read_through(last, "Identity")
    ((reader, _),) = last.uses()
    place, parts = Place(reader), []
    for direction, step in enumerate((-1, 0)):
        states = place.op("Gather", all_steps, place.constant(np.int64(step)), shape=sizes, axis=0)
        ends = [place.constant(np.array([each])) for each in (direction, direction + 1, 0)]
        parts.append(place.op("Slice", states, *ends, shape=(1, *sizes[1:])))
    place.becomes(place.op("Concat", *parts, shape=sizes, axis=0))


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
