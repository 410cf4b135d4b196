"""Bytes that an app gives become integers with no float between: pixels with ``--full-integer``.

before:                         x: uint8 → Cast → … → Sub(mean) → Mul(1/std) → y
after, one whole mean:          x: uint8 → DequantizeLinear(1/std, mean) → … → y
after, others, or by channel:   x: uint8 → DequantizeLinear(1, 0) → … → Conv(group=C, 1×1, 1/std, -mean/std) → y

The first says the numbers of the normalisation, which computes ``(x - zero point) * scale``.  The second rounds once,
to the integers of ``y``: a depthwise convolution has a scale for each channel and an exact int32 bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import Attribute, add_constant, bypass, inserted, only_user, replaced
from convertkit.quantization.graph.units import constant, is_constant, is_float

_MOVES = frozenset({"Transpose", "Slice", "Gather", "Reshape", "Squeeze", "Unsqueeze", "Identity"})
_AFFINE = frozenset({"Add", "Sub", "Mul", "Div"})
_LEVELS = 255
_EXACT = _LEVELS * 2.0**-22
"""Of a byte: how far float32 may move a whole mean that is divided by the deviation, in two roundings."""


@dataclass(frozen=True, slots=True)
class _Affine:
    """``x * factor + offset``: a number for each channel, or one for all, each in one dimension."""

    factor: Array
    offset: Array

    def then(self, node: ir.Node) -> _Affine | None:
        """With ``node`` behind it; None where it divides, or takes from, a constant."""
        number, first = constant(_constant_of(node)).reshape(-1).astype(np.float64), _reads(node) is node.inputs[0]
        if node.op_type == "Add":
            return _Affine(self.factor, self.offset + number)
        if node.op_type == "Mul":
            return _Affine(self.factor * number, self.offset * number)
        if node.op_type == "Sub" and first:
            return _Affine(self.factor, self.offset - number)
        return _Affine(self.factor / number, self.offset / number) if first and number.all() else None

    def as_bytes(self) -> tuple[float, int] | None:
        """Scale and the byte that stands for 0, where all channels share them; None where there is no such byte."""
        factor, offset = np.unique(self.factor), np.unique(self.offset)
        if len(factor) > 1 or len(offset) > 1 or not factor[0] > 0:
            return None
        point = -offset[0] / factor[0]
        whole = int(np.rint(point))
        return (float(factor[0]), whole) if abs(point - whole) <= _EXACT and 0 <= whole <= _LEVELS else None


_NOTHING = _Affine(np.ones(1), np.zeros(1))


def pixels_as_integers(model: ir.Model) -> None:
    """Rewrite every Cast to float of an input's bytes, and the normalisation behind it, in place."""
    for value in model.graph.inputs:
        for node in [use.node for use in value.uses()]:
            if value.dtype == ir.DataType.UINT8 and node.op_type == "Cast" and is_float(node.outputs[0]):
                _rewrite(model.graph, value, node)


def _rewrite(graph: ir.Graph, pixels: ir.Value, cast: ir.Node) -> None:
    chain = _chain(cast)
    absorbed, scale, point = _absorbed(chain)
    factor = add_constant(graph, f"{pixels.name}/scale", np.array(scale, np.float32))
    replaced(
        cast,
        "DequantizeLinear",
        [pixels, factor, add_constant(graph, f"{pixels.name}/point", np.array(point, np.uint8))],
    )
    for node in chain[:absorbed]:
        bypass(node, _reads(node))
    if absorbed < len(chain):
        _by_channel(chain[absorbed:])


def _chain(cast: ir.Node) -> list[ir.Node]:
    """The factors and offsets behind ``cast``; what lies between them moves elements or interpolates."""
    found: list[ir.Node] = []
    value = cast.outputs[0]
    while (node := only_user(value)) is not None and not node.domain and node.graph is cast.graph:
        if node.op_type in _AFFINE and _is_plain(node, value):
            found.append(node)
        elif node.inputs[0] is not value or not (node.op_type in _MOVES or _interpolates(node)):
            break
        value = node.outputs[0]
    return found


def _is_plain(node: ir.Node, value: ir.Value) -> bool:
    """Whether the other operand is constant and ``value`` keeps its shape."""
    others = [each for each in node.inputs if each is not value]
    fixed = len(others) == 1 and others[0] is not None and is_constant(others[0])
    return fixed and node.outputs[0].shape == value.shape


def _interpolates(node: ir.Node) -> bool:
    """A Resize whose shares of pixels add up to 1, so that one factor may stand before or behind it."""
    outside = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    return node.op_type == "Resize" and outside != "tf_crop_and_resize"


def _constant_of(node: ir.Node) -> ir.Value:
    return next(value for value in node.inputs if value is not None and is_constant(value))


def _reads(node: ir.Node) -> ir.Value:
    return next(value for value in node.inputs if value is not None and not is_constant(value))


def _absorbed(chain: Sequence[ir.Node]) -> tuple[int, float, int]:
    """How many nodes of the chain's head scale and zero point of bytes can say, and these two."""
    best: tuple[int, float, int] = 0, 1.0, 0
    total = _NOTHING
    for count, node in enumerate(chain, 1):
        more = None if np.unique(constant(_constant_of(node))).size > 1 else total.then(node)
        if more is None:
            break
        total = more
        if (found := total.as_bytes()) is not None:
            best = count, *found
    return best


def _by_channel(chain: Sequence[ir.Node]) -> None:
    """The neighbours at the head of ``chain`` as one convolution, where they are about channels of pictures."""
    source = _reads(chain[0])
    if source.shape is None or len(source.shape) != 4:
        return
    total, value, axes, nodes = _NOTHING, source, set[int](), list[ir.Node]()
    for node in chain:
        along = _channel_axis(constant(_constant_of(node)))
        more = total.then(node) if _reads(node) is value and along is not None else None
        if more is None or along is None or len(axes | {along} - {0}) > 1:
            break
        total, value, nodes = more, node.outputs[0], [*nodes, node]
        axes |= {along} - {0}
    axis = next(iter(axes), 1)
    channels = source.shape[axis]
    if nodes and isinstance(channels, int):
        _write(nodes, source, np.broadcast_to(total.factor, channels), np.broadcast_to(total.offset, channels), axis)


def _channel_axis(operand: Array) -> int | None:
    """Of four axes the one, 1 or 3, along which the numbers differ; 0 where there is one number; None for another."""
    sizes = (*(1,) * (4 - operand.ndim), *operand.shape)
    return 0 if operand.size == 1 else next((axis for axis in (1, 3) if sizes[axis] == operand.size), None)


def _write(nodes: Sequence[ir.Node], source: ir.Value, factor: Array, offset: Array, axis: int) -> None:
    """A convolution in the place of ``nodes``, between transposes where channels are last (``axis`` 3)."""
    last, shape = nodes[-1], source.shape
    graph = last.graph
    assert isinstance(graph, ir.Graph)
    assert shape is not None
    for node in nodes[:-1]:
        bypass(node, _reads(node))
    weight = factor.astype(np.float32).reshape(-1, 1, 1, 1)
    constants = [
        add_constant(graph, f"{last.outputs[0].name}/weight", weight),
        add_constant(graph, f"{last.outputs[0].name}/bias", offset.astype(np.float32)),
    ]
    attributes: dict[str, Attribute] = {"group": len(factor), "kernel_shape": [1, 1]}
    if axis == 1:
        replaced(last, "Conv", [source, *constants], attributes)
        return
    moved = ir.Shape([shape[place] for place in (0, 3, 1, 2)])
    first = inserted(last, "Transpose", [source], source, {"perm": [0, 3, 1, 2]}, moved)
    conv = inserted(last, "Conv", [first.outputs[0], *constants], last.outputs[0], attributes, moved)
    replaced(last, "Transpose", [conv.outputs[0]], {"perm": [0, 2, 3, 1]})
