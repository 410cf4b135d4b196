"""Shape arithmetic over dynamic dimensions: what a model computes from sizes becomes a constant where it can.

before:  Reshape(x: [N,64,4,32], Concat(Shape(x)[0:1], [64], [128]))
after:   Reshape(x, [-1, 64, 128])

The sizes that a model states for its inner values are forgotten and inferred again from its inputs: an
exporter's mistake there must not become one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.edit import array_of, bypass
from convertkit.targets.forms.edits import new_constant, typed
from convertkit.targets.forms.sizes import Size, product
from convertkit.targets.forms.symbolic import Knowledge, expanded, numbers, reshaped

_MAX_ROUNDS = 200
"""One for each layer whose computed shape hides the next one's: more than the deepest networks have."""
_TO_THE_END = np.iinfo(np.int64).max

Rewrite = Callable[[ir.Graph, Knowledge, ir.Node], bool]
"""Simplifies one node where what is known allows it, and says whether it did."""


def fold_sizes(model: ir.Model) -> bool:
    """Replace computed shapes by constants as far as dynamic dimensions allow, in place; whether any was."""
    if all(isinstance(size, int) for value in model.graph.inputs for size in value.shape or ()):
        return False
    _forget(model.graph)
    common.ShapeInferencePass()(model)
    for done in range(_MAX_ROUNDS):
        know = Knowledge()
        changed = _sweep(model.graph, know)
        if not changed:
            know.record(model.graph)
            return done > 0
        common.RemoveUnusedNodesPass()(model)
        common.ShapeInferencePass()(model)
    return True


def _forget(graph: ir.Graph) -> None:
    for node in graph:
        for value in node.outputs:
            if value.shape is not None:
                value.shape = ir.Shape([size if isinstance(size, int) else None for size in value.shape])


def _sweep(graph: ir.Graph, know: Knowledge) -> bool:
    changed = False
    for node in list(graph):
        if node.graph is not graph:
            continue
        know.learn(node)
        rewrite = REWRITES.get(node.op_type) if node.domain == "" else None
        changed |= _became_constant(graph, know, node) or (rewrite is not None and rewrite(graph, know, node))
    return changed


def _became_constant(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """A small integer result whose elements are all known."""
    result = node.outputs[0] if node.outputs else None
    found = None if result is None else know.vectors.get(result)
    known = None if found is None else numbers(found)
    if result is None or known is None or result.is_graph_output() or result.shape is None or result.dtype is None:
        return False
    array = np.array(known, result.dtype.numpy()).reshape(() if len(result.shape) == 0 else -1)
    result.replace_all_uses_with(new_constant(graph, f"{result.name}/known", array))
    graph.remove(node, safe=True)
    return True


def _reshape(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """One dynamic size is what is left (-1); others are copied from the same axis (0)."""
    before, wanted, after = know.shape(node.inputs[0]), know.vector(node.inputs[1]), reshaped(know, node)
    if before is None or wanted is None or after is None:
        return False
    if any(size.number == 0 for size in after):
        return False
    places: list[int] = []
    for axis, size in enumerate(after):
        copied = axis < len(before) and before[axis] == size
        places.append(size.number if size.number is not None else 0 if copied else -1)
    if places.count(-1) > 1:
        return False
    if places.count(0) == 1 and -1 not in places:
        places[places.index(0)] = -1
    if numbers(wanted) == places:
        return False
    node.attributes.pop("allowzero", None)
    node.replace_input_with(1, new_constant(graph, f"{node.name}/sizes", np.array(places, np.int64)))
    return True


def _expand(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """An Expand to its input's own shape, or in front of an operator that broadcasts anyway."""
    source, result, sizes = node.inputs[0], node.outputs[0], expanded(know, node)
    if source is None or sizes is None:
        return False
    if sizes == know.shape(source):
        node.op_type = "Identity"
        node.resize_inputs(1)
        return True
    changed = False
    for use in list(result.uses()):
        if _broadcasts_to(know, use.node, use.idx, sizes):
            use.node.replace_input_with(use.idx, source)
            changed = True
    return changed


_BROADCASTING = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or", "Xor"),
        *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"),
    }
)


def _broadcasts_to(know: Knowledge, node: ir.Node, place: int, sizes: tuple[Size, ...]) -> bool:
    """Whether the other operand alone has all of ``sizes``: then this one need not be expanded."""
    if node.op_type not in _BROADCASTING or node.domain != "" or len(node.inputs) != 2:
        return False
    other = know.shape(node.inputs[1 - place])
    return node.inputs[0] is not node.inputs[1] and other is not None and other[-len(sizes) :] == sizes


def _slice(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """Bounds that are an axis's own size are open ends; one less than it is minus one."""
    sizes = know.shape(node.inputs[0])
    given = [*node.inputs, None, None][3:5]
    axes, steps = array_of(given[0]), array_of(given[1])
    computed = any(value is not None and array_of(value) is None for value in given)
    if sizes is None or computed or (steps is not None and (steps < 0).any()):
        return False
    changed = False
    for place in (1, 2):
        bounds = know.vector(node.inputs[place])
        if bounds is None or array_of(node.inputs[place]) is not None:
            continue
        named = range(len(bounds)) if axes is None else [int(axis) % len(sizes) for axis in axes.reshape(-1)]
        found = [_bound(bound, sizes[axis]) for bound, axis in zip(bounds, named, strict=True)]
        if all(bound is not None for bound in found):
            kind = np.iinfo(np.int32 if _is_int32(node.inputs[place]) else np.int64)
            bounds_now = np.clip(np.array(found, np.int64), kind.min, kind.max).astype(kind.dtype)
            node.replace_input_with(place, new_constant(graph, f"{node.name}/bounds_{place}", bounds_now))
            changed = True
    return changed


def _is_int32(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == ir.DataType.INT32


def _bound(bound: Size, size: Size) -> int | None:
    if bound.number is not None:
        return bound.number
    behind = (bound - size).number
    if behind is None:
        return None
    return _TO_THE_END if behind >= 0 else -1 if behind == -1 else None


def _resize(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """Sizes that are the input's own need not be said: the others' axes are.

    Where nothing changes, the axes of known size are said: some ways of rounding move pixels even then.
    """
    before = know.shape(node.inputs[0])
    wanted = _as_far_as_known(know, node.inputs[3]) if len(node.inputs) > 3 else None
    policy = node.attributes.get("keep_aspect_ratio_policy")
    if before is None or wanted is None or "axes" in node.attributes or len(wanted) != len(before):
        return False
    if array_of(node.inputs[3]) is not None or not _is_left_out(node.inputs[1]):
        return False
    changing = [axis for axis, size in enumerate(wanted) if size != before[axis]]
    changing = changing or [axis for axis, size in enumerate(wanted) if size is not None and size.number is not None]
    if not changing or (policy is not None and policy.value != "stretch"):
        return False
    told = [size for axis in changing if (size := wanted[axis]) is not None]
    known = numbers(told) if len(told) == len(changing) else None
    node.attributes["axes"] = ir.AttrInt64s("axes", changing)
    if known:
        node.replace_input_with(3, new_constant(graph, f"{node.name}/sizes", np.array(known, np.int64)))
        return True
    places = new_constant(graph, f"{node.name}/axes", np.array(changing, np.int64))
    chosen = ir.node("Gather", [node.inputs[3], places], {"axis": 0}, name=f"{node.name}/sizes")
    chosen.outputs[0].name = f"{node.name}/sizes"
    chosen.metadata_props.update(node.metadata_props)
    typed(chosen.outputs[0], ir.Shape([len(changing)]), ir.DataType.INT64)
    graph.insert_before(node, chosen)
    node.replace_input_with(3, chosen.outputs[0])
    return True


def _as_far_as_known(know: Knowledge, value: ir.Value | None) -> tuple[Size | None, ...] | None:
    """The elements of a vector that is joined of others, None where one does not derive from sizes."""
    found = know.vector(value)
    if found is not None or value is None or value.shape is None or len(value.shape) != 1:
        return found
    node, count = value.producer(), value.shape[0]
    if node is not None and node.op_type == "Concat" and not node.domain:
        parts = [_as_far_as_known(know, part) for part in node.inputs]
        return None if any(part is None for part in parts) else tuple(size for part in parts for size in part or ())
    return (None,) * count if isinstance(count, int) else None


def _is_left_out(value: ir.Value | None) -> bool:
    """Whether an optional input is not there, or is empty, as tf2onnx writes the region that it does not have."""
    return value is None or (value.shape is not None and 0 in value.shape.dims)


def _zero_states(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """Initial states that are zeros of the batch's size are the default."""
    changed = False
    for place in range(5, min(len(node.inputs), 7)):
        if node.inputs[place] is not None and _filling(node.inputs[place]) == 0:
            node.replace_input_with(place, None)
            changed = True
    return changed


_MOVES = frozenset(["Slice", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Expand", "Gather", "Split"])


def _filling(value: ir.Value | None) -> float | None:
    """The number that every element of ``value`` has, seen through operators that only move data."""
    array = array_of(value)
    if array is not None:
        return array.item() if array.size == 1 else None
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return None
    if node.op_type == "ConstantOfShape":
        given = node.attributes.get("value")
        return 0.0 if given is None else given.value.numpy().item()
    return _filling(node.inputs[0]) if node.op_type in _MOVES else None


def _gather(graph: ir.Graph, know: Knowledge, node: ir.Node) -> bool:
    """One row for every place: the row itself, expanded to where the places' sizes put it.

    before:  Gather(table, zeros[N,64])
    after:   Expand(table[0], [N,64,…])
    """
    data, places, axis = array_of(node.inputs[0]), node.inputs[1], node.attributes.get("axis")
    chosen = None if array_of(places) is not None else _filling(places)
    sizes = know.shape(places)
    producer = None if places is None else places.producer()
    if data is None or chosen is None or sizes is None or producer is None or (axis is not None and axis.value):
        return False
    if producer.op_type != "Expand" or not -len(data) <= chosen < len(data) or product(sizes).number is not None:
        return False
    row = data[int(chosen)]
    ends = new_constant(graph, f"{node.name}/ones", np.ones(row.ndim, np.int64))
    shape = ir.node("Concat", [producer.inputs[1], ends], {"axis": 0}, name=f"{node.name}/sizes")
    made = ir.node("Expand", [new_constant(graph, f"{node.name}/row", row), shape.outputs[0]], name=f"{node.name}/row")
    for new, name in ((shape, "sizes"), (made, "expanded")):
        new.outputs[0].name = f"{node.name}/{name}"
        new.metadata_props.update(node.metadata_props)
        graph.insert_before(node, new)
    typed(shape.outputs[0], ir.Shape([len(sizes) + row.ndim]), ir.DataType.INT64)
    typed(made.outputs[0], node.outputs[0].shape, node.outputs[0].dtype)
    bypass(node, made.outputs[0])
    return True


REWRITES: Mapping[str, Rewrite] = {
    "Expand": _expand,
    "GRU": _zero_states,
    "Gather": _gather,
    "LSTM": _zero_states,
    "RNN": _zero_states,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
}
"""By operator."""
