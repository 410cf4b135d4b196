"""Loops that tf2onnx makes of TensorFlow's ``While``, as far as they hold recurrent cells.

What only counts, stays the same or decides nothing is taken out of them.  What is left is a loop over the rows of a
sequence, in which cells are recognised.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.converters.stablehlo.recognise.recurrent import recognise_recurrent
from convertkit.converters.stablehlo.recognise.turns import ROWS, plain, take_out
from convertkit.converters.tensorflow.lengths import is_length_of, is_one_more_at_most, origin, same_size
from convertkit.onnx.canonical import canonicalize, free_dims, simplify
from convertkit.onnx.edit import array_of, is_float32, producer

_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def with_recurrent_operators(model: ir.Model) -> ir.Model:
    """A canonical model with LSTM, GRU and RNN for cells in its loops; itself where none was found."""
    if not any(node.op_type == "Loop" for node in model.graph):
        return model
    changed = model.clone()
    found = _recurrent(changed)
    loops = [node for node in changed.graph if node.op_type == "Loop" and _tidied(node)]
    simplify(changed)
    names = free_dims(changed)
    for node in loops:
        if node.graph is not None and _reads_rows(node, names):
            for value in node.outputs:
                value.shape = None  # tf2onnx does not know them
            recognise_recurrent(node)
    if _recurrent(changed) == found:
        return model
    _forget_sizes(changed)
    return with_recurrent_operators(canonicalize(changed))  # the next layer's loop asks for sizes behind this one's


def _recurrent(model: ir.Model) -> int:
    return sum(node.op_type in _RECURRENT for node in model.graph)


def _forget_sizes(model: ir.Model) -> None:
    """Take away the names of sizes that no input has, so that they are inferred again behind a new operator."""
    names = free_dims(model)
    for node in model.graph:
        for value in node.outputs:
            if value.shape is not None and not value.is_graph_output():
                sizes = [dim if isinstance(dim, int) or dim.value in names else None for dim in value.shape]
                value.shape = ir.Shape(sizes)


def _tidied(node: ir.Node) -> bool:
    """Make every turn of a loop differ by its number and its states only; whether it runs to its last turn."""
    body = node.attributes["body"].as_graph()
    if node.inputs[0] is None:
        return False
    take_out(node, [place for place in range(len(node.inputs) - 2) if _is_repeated(node, place)])
    take_out(node, [place for place in range(len(node.inputs) - 2) if _is_counted(node, place)])
    trips, turn, going = node.inputs[0], body.inputs[0], body.inputs[1]
    if node.inputs[1] is None and plain(body.outputs[0]) is going:
        return True
    if not _holds_at_first(node.inputs[1], trips) or not _holds(body.outputs[0], turn, trips):
        return False
    node.replace_input_with(1, None)
    same = ir.node("Identity", [going], name=f"{node.name}/going_on")
    same.outputs[0].name, same.outputs[0].type, same.outputs[0].shape = same.name, going.type, going.shape
    body.append(same)
    body.outputs[0] = same.outputs[0]
    return True


def _is_repeated(node: ir.Node, place: int) -> bool:
    """Whether a state stays as it was before the loop; then it is read from there."""
    body, before = node.attributes["body"].as_graph(), node.inputs[2 + place]
    state = body.inputs[2 + place]
    if before is None or plain(body.outputs[1 + place]) is not state:
        return False
    state.replace_all_uses_with(before)
    if not node.outputs[place].is_graph_output():
        node.outputs[place].replace_all_uses_with(before)
    return not node.outputs[place].is_graph_output()


def _is_counted(node: ir.Node, place: int) -> bool:
    """Whether a state is the number of the turn, from 0 on, which nothing asks for behind the loop."""
    body, start, after = node.attributes["body"].as_graph(), array_of(node.inputs[2 + place]), node.outputs[place]
    state, turn = body.inputs[2 + place], body.inputs[0]
    step = producer(plain(body.outputs[1 + place]), "Add")
    if start is None or step is None or start.ndim or start.dtype.kind != "i" or start != 0:
        return False
    one = next((array_of(step.inputs[1 - side]) for side in (0, 1) if step.inputs[side] is state), None)
    if one is None or one.ndim or one != 1 or after.uses() or after.is_graph_output() or state.dtype is None:
        return False
    made = ir.node("Cast", [turn], {"to": int(state.dtype)}, name=f"{state.name}/turn")
    number = made.outputs[0]
    number.name, number.type, number.shape = made.name, state.type, ir.Shape([])
    body.insert_before(next(iter(body)), made)
    state.replace_all_uses_with(number)
    return True


def _holds_at_first(value: ir.Value | None, trips: ir.Value) -> bool:
    """Whether a condition holds before the first turn, where there is one: ``0 < trips``."""
    known = array_of(value)
    if value is None or known is not None:
        return known is None or bool(known.all())
    node = value.producer()
    if node is not None and node.op_type == "And":
        return all(_holds_at_first(each, trips) for each in node.inputs)
    if node is None or node.op_type != "Less":
        return False
    least = array_of(node.inputs[0])
    return least is not None and not least.any() and origin(node.inputs[1]) is origin(trips)


def _holds(value: ir.Value, turn: ir.Value, trips: ir.Value) -> bool:
    """Whether a condition holds after every turn but the last: ``turn < trips`` and ``turn + 1 < trips``.

    tf2onnx compares integers as floats; the source compares them as they are.
    """
    known, node = array_of(value), plain(value).producer()
    if known is not None:
        return bool(known.all())
    if node is not None and node.op_type == "And":
        return all(each is not None and _holds(each, turn, trips) for each in node.inputs)
    if node is None or node.op_type != "Less" or not is_one_more_at_most(node.inputs[0], turn):
        return False
    limit, number = array_of(node.inputs[1]), array_of(trips)
    if limit is not None and number is not None:
        return bool(limit.size == number.size == 1 and limit.reshape(()) == number.reshape(()))
    return origin(node.inputs[1]) is origin(trips)


def _reads_rows(node: ir.Node, names: frozenset[str]) -> bool:
    """Mark what reads one row in each turn, of a sequence of as many; whether all have the batch of the states."""
    body, trips = node.attributes["body"].as_graph(), node.inputs[0]
    turn, sequences = body.inputs[0], []
    for each in body:
        if each.op_type != "Gather" or each.attributes.get_int("axis", 0) != 0 or origin(each.inputs[1]) is not turn:
            continue
        sequence = each.inputs[0]
        if sequence is None or sequence.shape is None or len(sequence.shape) < 2:
            return False
        if array_of(trips) is None and is_length_of(trips, sequence, names):
            each.meta[ROWS] = (turn, False)
        sequences.append(sequence)
    states = [value for value in node.inputs[2:] if is_float32(value)]
    return all(
        state is not None and state.shape is not None and len(state.shape) == 2
        and all(same_size(state.shape[0], sequence.shape[1], names) for sequence in sequences if sequence.shape)
        for state in states
    )  # fmt: skip
