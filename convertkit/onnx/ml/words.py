"""Names of classes: what a classifier says in words, as places in the list of them.

The canonical form looks a word up last: ``Gather`` from a list of words.  ONNX Runtime does that, too; a target that
knows no text leaves it out (:func:`number_words`), and the artifact's interface keeps the list.
"""

from __future__ import annotations

import onnx_ir as ir

_MOVES_DATA = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"})
CLASSIFIERS = frozenset({"LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"})


def words_of(value: ir.Value) -> tuple[str, ...]:
    """The words of which an output of text holds some, in order; empty where they are not known, and for numbers."""
    if value.dtype != ir.DataType.STRING:
        return ()
    node = value.producer()
    while node is not None and not node.domain and node.op_type in _MOVES_DATA and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    if node is None or value.index() != 0:
        return ()
    if node.op_type in CLASSIFIERS and node.domain:
        return tuple(node.attributes.get_strings("classlabels_strings", ()))
    return _looked_up(node)


def _looked_up(node: ir.Node) -> tuple[str, ...]:
    if node.op_type != "Gather" or node.domain or node.inputs[0] is None:
        return ()
    stored = node.inputs[0].const_value
    if stored is None or stored.dtype != ir.DataType.STRING or len(stored.shape) != 1:
        return ()
    return words(stored)


def words(stored: ir.TensorProtocol) -> tuple[str, ...]:
    """A constant's."""
    flat = stored.numpy().reshape(-1).tolist()
    return tuple(each.decode("utf-8") if isinstance(each, bytes) else str(each) for each in flat)


def number_words(model: ir.Model) -> bool:
    """Leave out the looking up of words at the model's end, in place: its outputs become int64; whether it did."""
    found = False
    for node in list(model.graph):
        if _looked_up(node) and _ends(node.outputs[0]):
            _leave_out(model.graph, node)
            found = True
    return found


def _ends(value: ir.Value) -> bool:
    """Whether nothing reads a value but what moves it to an output."""
    moves = [use.node for use in value.uses()]
    if not moves and not value.is_graph_output():
        return False
    return all(not node.domain and node.op_type in _MOVES_DATA and _ends(node.outputs[0]) for node in moves)


def _leave_out(graph: ir.Graph, node: ir.Node) -> None:
    places, text = node.inputs[1], node.outputs[0]
    to = {"to": int(ir.DataType.INT64)}
    made = ir.node("Cast", [places], to, name=f"{node.name}/place")
    number = made.outputs[0]
    number.shape, name = text.shape, text.name
    graph.insert_before(node, made)
    ir.convenience.replace_all_uses_with(text, number, replace_graph_outputs=True)
    text.name, number.name = f"{name}/word", name
    graph.remove(node, safe=True)
    _are_numbers(number)


def _are_numbers(value: ir.Value) -> None:
    value.type = ir.TensorType(ir.DataType.INT64)
    for use in value.uses():
        _are_numbers(use.node.outputs[0])
