"""Gather and GatherND with a result of more than five dimensions, which Core ML's tensors do not have, before reshapes.

    before:  GatherND (2, 3, 4, 5) by (2, 3, 2, 1) → (2, 3, 2, 3, 4, 5) → Reshape (12, 60)
    after:   GatherND (2, 3, 4, 5) by (12, 1) → (12, 3, 4, 5) → Reshape (12, 60)

The places that are picked are one axis, whatever their order was; what is picked keeps its own axes.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, drop_unused, initializer, inserted, replaced, sizes
from convertkit.targets.coreml.builder import MOST_DIMENSIONS

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def lower_picks(model: ir.Model) -> None:
    """Write every such node with fewer dimensions, in place; others stay, and are refused where they are met."""
    found = [node for node in model.graph if node.op_type in ("Gather", "GatherND") and not node.domain]
    for node in found:
        result = _static(node.outputs[0])
        if result is not None and len(result) > MOST_DIMENSIONS and _only_reshaped(node.outputs[0]):
            _rewrite(node)
    if found:
        drop_unused(model.graph)


def _static(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape, where it is known and there are elements."""
    known = sizes(value)
    if known is None or None in known or 0 in known:
        return None
    return tuple(size for size in known if size is not None)


def _only_reshaped(result: ir.Value) -> bool:
    readers = [use.node for use in result.uses()]
    whole = all(each.op_type in _RESHAPES and not each.domain and each.inputs[0] is result for each in readers)
    return whole and not result.is_graph_output() and all(_static(each.outputs[0]) is not None for each in readers)


def _rewrite(node: ir.Node) -> None:
    """``node`` with one axis of places; nothing where a size is not known."""
    value, places = node.inputs
    shape, given = _static(value), _static(places)
    if value is None or places is None or shape is None or given is None:
        return
    flat: tuple[int, ...] = (math.prod(given),)
    if node.op_type == "Gather":
        axis, count = node.attributes.get_int("axis", 0) % len(shape), math.prod(given)
        result = (*shape[:axis], count, *shape[axis + 1 :])
    else:
        batch, depth = node.attributes.get_int("batch_dims", 0), given[-1]
        count = math.prod(given[batch:-1])
        flat, result = (*given[:batch], count, depth), (*given[:batch], count, *shape[batch + depth :])
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    picked = inserted(
        node, node.op_type, [value, _flat(node, places, flat)], node.outputs[0], attributes, ir.Shape(result)
    )
    for use in list(node.outputs[0].uses()):
        after = _static(use.node.outputs[0])
        assert after is not None
        replaced(use.node, "Reshape", [picked.outputs[0], initializer(node, np.array(after, np.int64), "sizes")])
    assert node.graph is not None
    picked.name = node.name or picked.name
    node.graph.remove(node, safe=True)


def _flat(node: ir.Node, places: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """The places as ``shape``: as a constant, or behind a reshape, of what a reshape to many dimensions began with."""
    known = array_of(places)
    if known is not None:
        return initializer(node, known.reshape(shape), f"{places.name}/flat")
    maker = places.producer()
    if maker is not None and maker.op_type in _RESHAPES and not maker.domain and maker.inputs[0] is not None:
        places = maker.inputs[0]
    wanted = [places, initializer(node, np.array(shape, np.int64), "sizes")]
    return inserted(node, "Reshape", wanted, places, shape=ir.Shape(shape)).outputs[0]
