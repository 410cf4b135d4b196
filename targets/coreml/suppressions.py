"""Scores that a NonMaxSuppression left, back in their places: as a selection, with sizes that are known.

    before:  rows = NonMaxSuppression(boxes, scores, …), left = ScatterND(zeros, rows, GatherND(scores, rows))
    after:   marks = Marks(boxes, scores, …), left = Where(marks, scores, 0)

ONNX's operator tells as many rows as there are, none for a picture without a thing; what Core ML does with a tensor
without elements is not documented.  ``Marks`` are booleans (images, classes, boxes).  Where the rows have lost their
class, the scores are (images, boxes), and a box is marked where one of its classes is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, drop_unused, initializer, inserted, producer, replaced, sizes

DOMAIN, MARKS = "convertkit.coreml", "Marks"


def lower_suppressions(model: ir.Model) -> None:
    """Write every such pair in place; others keep their rows."""
    found = False
    for node in [each for each in model.graph if each.op_type == "ScatterND" and not each.domain]:
        found |= _rewritten(node)
    if found:
        model.graph.opset_imports[DOMAIN] = 1
        _drop_unread(model.graph)
        drop_unused(model.graph)


def _rewritten(node: ir.Node) -> bool:
    zeros, rows, updates = node.inputs
    picked = producer(updates, "GatherND")
    blank = array_of(zeros)
    if picked is None or rows is None or picked.inputs[1] is not rows or blank is None or blank.any():
        return False
    if node.attributes.get_string("reduction", "none") != "none":
        return False
    scores, shape = picked.inputs[0], sizes(picked.inputs[0])
    suppressed, all_classes = _told_by(rows)
    if suppressed is None or scores is None or shape != blank.shape:
        return False
    marks = _marks(suppressed)
    if marks is None:
        return False
    if not all_classes:
        marks = _any_class(node, marks)
    if sizes(marks) != shape:
        return False
    zero = initializer(node, np.zeros((), blank.dtype), "zero")
    replaced(node, "Where", [marks, scores, zero])
    return True


def _told_by(rows: ir.Value) -> tuple[ir.Node | None, bool]:
    """What makes the rows, and whether they still have their class between image and box."""
    whole = producer(rows, "NonMaxSuppression")
    part = producer(rows, "Gather")
    if whole is not None or part is None:
        return whole, True
    columns = array_of(part.inputs[1])
    kept = columns is not None and columns.tolist() == [0, 2] and part.attributes.get_int("axis", 0) % 2 == 1
    return (producer(part.inputs[0], "NonMaxSuppression") if kept else None), False


def _marks(node: ir.Node) -> ir.Value | None:
    """The booleans of a suppression, made once in front of it; None where its sizes are not known."""
    boxes, scores = node.inputs[:2]
    shape = sizes(scores)
    if boxes is None or scores is None or shape is None or None in shape:
        return None
    for use in scores.uses():
        if use.node.op_type == MARKS and use.node.domain == DOMAIN and tuple(use.node.inputs) == tuple(node.inputs):
            return use.node.outputs[0]
    attributes = [ir.AttrInt64("center_point_box", node.attributes.get_int("center_point_box", 0))]
    made = ir.Node(DOMAIN, MARKS, list(node.inputs), attributes, num_outputs=1, name=f"{node.name}/{MARKS}")
    value = made.outputs[0]
    value.name, value.shape, value.type = made.name, scores.shape, ir.TensorType(ir.DataType.BOOL)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return value


def _any_class(node: ir.Node, marks: ir.Value) -> ir.Value:
    """(images, classes, boxes) to (images, boxes)."""
    shape = sizes(marks)
    assert shape is not None
    flat = ir.Shape([shape[0], shape[2]])
    whole = inserted(node, "Cast", [marks], marks, {"to": int(ir.DataType.INT32)})
    whole.outputs[0].type = ir.TensorType(ir.DataType.INT32)
    axes = initializer(node, np.array([1], np.int64), "axes")
    most = inserted(node, "ReduceMax", [whole.outputs[0], axes], whole.outputs[0], {"keepdims": 0}, flat)
    return inserted(node, "Cast", [most.outputs[0]], marks, {"to": int(ir.DataType.BOOL)}, flat).outputs[0]


def _drop_unread(graph: ir.Graph) -> None:
    for node in [each for each in reversed(graph) if each.op_type in ("GatherND", "Gather", "NonMaxSuppression")]:
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
