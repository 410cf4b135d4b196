"""Transposes of more than five dimensions, which Core ML's tensors do not have, between reshapes.

    before:  (1, 16, 16, 8) → Reshape (1, 4, 4, 4, 4, 8) → Transpose (0, 1, 3, 2, 4, 5) → Reshape (16, 16, 8)
    after:   (1, 16, 16, 8) → Reshape (4, 4, 4, 32) → Transpose (0, 2, 1, 3) → Reshape (16, 16, 8)

Windows of an image, patches and pixels that become channels are written so.  Axes of one element go, and axes that
stay neighbours are one axis; where more than five are left, one after the other moves to its place.

In a quantized graph, and where a Relu or a Cast stands there, the reshapes move next to the transpose first:

    before:  Reshape (1, 4, 4, 4, 4, 8) → QuantizeLinear → DequantizeLinear → Transpose → …
    after:   QuantizeLinear → DequantizeLinear → Reshape (1, 4, 4, 4, 4, 8) → Transpose → …
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import Attribute, drop_unused, initializer, inserted, only_user, replaced, sizes
from convertkit.targets.coreml.builder import MOST_DIMENSIONS

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_EACH_ALONE = frozenset({"QuantizeLinear", "DequantizeLinear", "Relu", "Cast"})
"""Operators that do the same to every element, with one scale for all."""


class Move(NamedTuple):
    """A transpose by ``perm`` of elements that are seen as ``shape``."""

    shape: tuple[int, ...]
    perm: tuple[int, ...]


def lower_ranks(model: ir.Model) -> None:
    """Write every such transpose with fewer dimensions, in place; others stay, and are refused where they are met."""
    for node in [each for each in model.graph if each.op_type in _EACH_ALONE and not each.domain]:
        _reshape_later(node)
    for node in [each for each in reversed(model.graph) if each.op_type in _RESHAPES and not each.domain]:
        _reshape_earlier(node)
    found = [node for node in model.graph if node.op_type == "Transpose" and not node.domain and _is_between(node)]
    for node in found:
        _rewrite(node)
    if found:
        drop_unused(model.graph)


def moves(shape: Sequence[int], perm: Sequence[int]) -> Iterator[Move]:
    """Transposes of at most ``MOST_DIMENSIONS`` axes that do together what ``perm`` does to ``shape``."""
    shape, perm = _merged(shape, perm)
    while len(shape) > MOST_DIMENSIONS:
        first = next(place for place, axis in enumerate(perm) if place != axis)
        axis = perm[first]
        halves = math.prod(shape[:first]), math.prod(shape[first:axis]), shape[axis], math.prod(shape[axis + 1 :])
        yield Move(halves, (0, 2, 1, 3))
        order = [*range(first), axis, *range(first, axis), *range(axis + 1, len(shape))]
        shape, perm = _merged([shape[each] for each in order], [order.index(each) for each in perm])
    if shape:
        yield Move(tuple(shape), tuple(perm))


def _merged(shape: Sequence[int], perm: Sequence[int]) -> tuple[list[int], list[int]]:
    """Without axes of one element, and axes that stay neighbours as one."""
    kept = [axis for axis in perm if shape[axis] != 1]
    runs = list[list[int]]()
    places = {axis: place for place, axis in enumerate(sorted(kept))}
    for axis in kept:
        if runs and places[axis] == places[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    ordered = sorted(runs)
    return [math.prod(shape[axis] for axis in run) for run in ordered], [ordered.index(run) for run in runs]


def _reshape_later(node: ir.Node) -> None:
    """The reshape to too many dimensions in front of ``node`` behind it."""
    before, after = node.inputs[0], node.outputs[0]
    maker, shape = None if before is None else before.producer(), _static(after)
    if maker is None or shape is None or not _is_large(before) or not _is_reshape(before) or not _swaps(node):
        return
    source = maker.inputs[0]
    assert source is not None
    same = inserted(node, node.op_type, [source, *_rest(node)], after, _attributes(node), source.shape).outputs[0]
    replaced(node, "Reshape", [same, initializer(node, np.array(shape, np.int64), "sizes")])
    _taken_out(maker)


def _reshape_earlier(node: ir.Node) -> None:
    """The reshape ``node`` from too many dimensions in front of what does the same to every element before it."""
    value, shape = node.inputs[0], _static(node.outputs[0])
    maker = None if value is None else value.producer()
    if value is None or maker is None or shape is None or maker.op_type not in _EACH_ALONE or not _swaps(maker):
        return
    if only_user(value) is not node or not _is_large(value):
        return
    source = maker.inputs[0]
    assert source is not None
    wanted = [source, initializer(node, np.array(shape, np.int64), "sizes")]
    earlier = inserted(node, "Reshape", wanted, source, shape=ir.Shape(shape))
    replaced(node, maker.op_type, [earlier.outputs[0], *_rest(maker)], _attributes(maker))
    _taken_out(maker)
    _reshape_earlier(earlier)


def _swaps(node: ir.Node) -> bool:
    """Whether a node does the same wherever an element stands."""
    return not node.domain and (not _rest(node) or sizes(node.inputs[1]) == ())


def _attributes(node: ir.Node) -> dict[str, Attribute]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


def _rest(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs[1:] if value is not None]


def _is_large(value: ir.Value | None) -> bool:
    shape = _static(value)
    return shape is not None and len(shape) > MOST_DIMENSIONS


def _is_between(node: ir.Node) -> bool:
    """Whether a transpose of too many dimensions has static sizes and stands between reshapes."""
    shape, result = _static(node.inputs[0]), node.outputs[0]
    if shape is None or len(shape) <= MOST_DIMENSIONS or result.is_graph_output() or not _is_reshape(node.inputs[0]):
        return False
    readers = [use.node for use in result.uses()]
    return all(_is_reshape(each.outputs[0]) and _static(each.outputs[0]) is not None for each in readers)


def _is_reshape(value: ir.Value | None) -> bool:
    maker = None if value is None else value.producer()
    return maker is not None and maker.op_type in _RESHAPES and not maker.domain


def _static(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape, where it is known and there are elements."""
    known = sizes(value)
    if known is None or None in known or 0 in known:
        return None
    return tuple(size for size in known if size is not None)


def _rewrite(node: ir.Node) -> None:
    before = node.inputs[0]
    maker = None if before is None else before.producer()
    shape = _static(before)
    assert maker is not None
    assert shape is not None
    value = maker.inputs[0]
    assert value is not None
    for move in moves(shape, node.attributes.get_ints("perm", tuple(reversed(range(len(shape)))))):
        value = _reshaped(node, value, move.shape)
        turned = ir.Shape([move.shape[axis] for axis in move.perm])
        value = inserted(node, "Transpose", [value], value, {"perm": move.perm}, turned).outputs[0]
    for use in list(node.outputs[0].uses()):
        after = _static(use.node.outputs[0])
        assert after is not None
        replaced(use.node, "Reshape", [value, initializer(node, np.array(after, np.int64), "sizes")])
    _taken_out(node)
    _taken_out(maker)


def _reshaped(node: ir.Node, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    inputs = [value, initializer(node, np.array(shape, np.int64), "sizes")]
    return inserted(node, "Reshape", inputs, value, shape=ir.Shape(shape)).outputs[0]


def _taken_out(node: ir.Node) -> None:
    if node.graph is not None and not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
        node.graph.remove(node, safe=True)
