"""How each operator carries the channels of what it reads: the rules by which channel groups are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.graph.units import constant, is_constant
from convertkit.quantization.pruning.channels import Channels, Group, Layout

_NOTHING = Layout(0, (), ())
"""What becomes of an operator without channels that could be followed."""

_Handler = Callable[[Channels, ir.Node], Layout | None]
"""The layout of the first output; None where the inputs' channels must all stay."""


def follow(graph: ir.Graph) -> Channels:
    """Follow channels through the whole graph."""
    channels = Channels(graph)
    for node in graph:
        handle = _HANDLERS.get(node.op_type) if not node.domain else None
        layout = handle(channels, node) if handle is not None else None
        if layout is None:
            channels.freeze(node.inputs)
        elif layout.groups:
            channels.layouts[node.outputs[0]] = layout
    for value, layout in channels.layouts.items():
        if value.is_graph_output() or any(use.node.graph is not graph for use in value.uses()):
            layout.freeze()
    return channels


def _new(axis: int, size: int) -> Layout:
    return Layout(axis, (Group(size),), (1,))


def _fixed(node: ir.Node, index: int) -> Array | None:
    """The operand where it is an initializer."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return constant(value) if value is not None and is_constant(value) else None


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _product(channels: Channels, node: ir.Node, weight: tuple[int, int], axes: tuple[int, int]) -> Layout | None:
    """A weight that sums over its axis ``weight[0]`` and makes ``weight[1]``; ``axes`` are the data's."""
    array = _fixed(node, 1)
    if array is None or (len(node.inputs) > 2 and node.inputs[2] is not None and _fixed(node, 2) is None):
        return None
    layout = channels.of(node.inputs[0])
    if layout is not None:
        if layout.axis != axes[0] or layout.size != array.shape[weight[0]]:
            return None
        channels.cut(node, 1, weight[0], layout, summed=True)
    made = _new(axes[1], array.shape[weight[1]])
    channels.cut(node, 1, weight[1], made)
    bias = _fixed(node, 2)
    if bias is not None and bias.shape[-1:] == (made.size,):
        channels.cut(node, 2, bias.ndim - 1, made)
    return made


def _conv(channels: Channels, node: ir.Node) -> Layout | None:
    array, layout = _fixed(node, 1), channels.of(node.inputs[0])
    if array is None or array.ndim < 3:
        return None
    groups = node.attributes.get_int("group", 1)
    if groups == 1:
        return _product(channels, node, (1, 0), (1, 1))
    if array.shape[:2] != (groups, 1) or layout is None or layout.axis != 1:
        return None
    channels.cut(node, 1, 0, layout)
    channels.cut(node, 2, 0, layout)
    channels.depthwise(node, layout)
    return layout


def _conv_transpose(channels: Channels, node: ir.Node) -> Layout | None:
    return _product(channels, node, (0, 1), (1, 1)) if node.attributes.get_int("group", 1) == 1 else None


def _gemm(channels: Channels, node: ir.Node) -> Layout | None:
    if node.attributes.get_int("transA", 0):
        return None
    return _product(channels, node, (1, 0) if node.attributes.get_int("transB", 0) else (0, 1), (1, 1))


def _matmul(channels: Channels, node: ir.Node) -> Layout | None:
    rank, array = _rank(node.inputs[0]), _fixed(node, 1)
    if rank is None or rank < 2 or array is None or array.ndim != 2:
        return None
    return _product(channels, node, (0, 1), (rank - 1, rank - 1))


def _same(channels: Channels, node: ir.Node) -> Layout | None:
    return channels.of(node.inputs[0]) or _NOTHING


def _spatial(channels: Channels, node: ir.Node) -> Layout | None:
    layout = channels.of(node.inputs[0])
    return layout if layout is not None and layout.axis == 1 and len(node.outputs) == 1 else None


def _per_channel(channels: Channels, node: ir.Node) -> Layout | None:
    layout = _spatial(channels, node)
    if layout is None or any(_fixed(node, index) is None for index in range(1, len(node.inputs))):
        return None
    for index in range(1, len(node.inputs)):
        channels.cut(node, index, 0, layout)
    return layout


def _elementwise(channels: Channels, node: ir.Node) -> Layout | None:
    """Two operands that broadcast: their channels meet where both have them."""
    ranks = [_rank(value) for value in node.inputs]
    if None in ranks or len(ranks) != 2:
        return None
    most = max(rank for rank in ranks if rank is not None)
    layouts = [channels.of(value) for value in node.inputs]
    shifts = [most - (rank or 0) for rank in ranks]
    found = [replace(each, axis=each.axis + shift) for each, shift in zip(layouts, shifts, strict=True) if each]
    if not found:
        return _NOTHING
    layout = max(found, key=lambda each: each.size)
    for index, (other, shift) in enumerate(zip(layouts, shifts, strict=True)):
        if other is not None:
            if not _meets(layout, replace(other, axis=other.axis + shift)):
                return None
        elif not _spans(channels, node, index, layout, shift):
            return None
    return layout


def _meets(layout: Layout, other: Layout) -> bool:
    """Join two layouts of the same form; one channel broadcasts, and stays."""
    if other.axis != layout.axis:
        return False
    if other.size == 1 != layout.size:
        other.freeze()
        return True
    sizes = [[group.size for group in each.groups] for each in (layout, other)]
    if sizes[0] != sizes[1] or layout.repeats != other.repeats:
        return False
    for one, two in zip(layout.groups, other.groups, strict=True):
        one.join(two)
    return True


def _spans(channels: Channels, node: ir.Node, index: int, layout: Layout, shift: int) -> bool:
    """Whether an operand without channels of its own has one entry for all, or, as a constant, one for each."""
    value, axis = node.inputs[index], layout.axis - shift
    assert value is not None
    assert value.shape is not None
    if axis < 0 or value.shape[axis] == 1:
        return True
    if not is_constant(value) or value.shape[axis] != layout.size:
        return False
    channels.cut(node, index, axis, layout)
    return True


def _concat(channels: Channels, node: ir.Node) -> Layout | None:
    rank = _rank(node.outputs[0]) or _rank(node.inputs[0])
    if rank is None:
        return None
    axis = node.attributes.get_int("axis", 0) % rank
    layouts = [channels.of(value) or _whole(value, axis) for value in node.inputs]
    known = [each for each in layouts if each is not None]
    if len(known) != len(layouts) or len({each.axis for each in known}) > 1:
        return None
    if known[0].axis != axis:
        return known[0] if all(_meets(known[0], other) for other in known[1:]) else None
    groups = tuple(group for each in known for group in each.groups)
    return Layout(axis, groups, tuple(repeat for each in known for repeat in each.repeats))


def _whole(value: ir.Value | None, axis: int) -> Layout | None:
    """A value without channels of its own as one that keeps them all."""
    size = None if value is None or value.shape is None else value.shape[axis]
    return Layout(axis, (Group(size, frozen=True),), (1,)) if isinstance(size, int) else None


def _flatten(channels: Channels, node: ir.Node) -> Layout | None:
    """``(N, C, H, W)`` as ``(N, C·H·W)``: a channel becomes H·W neighbours."""
    value, layout = node.inputs[0], channels.of(node.inputs[0])
    if layout is None or layout.axis != 1 or value is None or value.shape is None:
        return None
    rest = list(value.shape)[2:]
    made = node.outputs[0].shape
    if not all(isinstance(size, int) for size in rest) or made is None or len(made) != 2:
        return None
    taps = math.prod(int(size) for size in rest if isinstance(size, int))
    if node.op_type == "Flatten" and node.attributes.get_int("axis", 1) != 1:
        return None
    if node.op_type == "Reshape":
        if made[1] != layout.size * taps or made[0] != value.shape[0] or node.attributes.get_int("allowzero", 0) == 1:
            return None
        channels.flattened(node, layout)
    return Layout(1, layout.groups, tuple(repeat * taps for repeat in layout.repeats))


def _reduce(channels: Channels, node: ir.Node) -> Layout | None:
    layout, rank = channels.of(node.inputs[0]), _rank(node.inputs[0])
    if layout is None or rank is None:
        return None
    listed = node.attributes.get_ints("axes") or _fixed(node, 1)
    axes = {int(axis) % rank for axis in listed} if listed is not None else set()
    if not axes or layout.axis in axes:
        return None
    gone = 0 if node.attributes.get_int("keepdims", 1) else sum(axis < layout.axis for axis in axes)
    return replace(layout, axis=layout.axis - gone)


def _transpose(channels: Channels, node: ir.Node) -> Layout | None:
    layout, rank = channels.of(node.inputs[0]), _rank(node.inputs[0])
    if layout is None or rank is None:
        return None
    return replace(layout, axis=list(node.attributes.get_ints("perm", tuple(range(rank))[::-1])).index(layout.axis))


def _squeeze(channels: Channels, node: ir.Node) -> Layout | None:
    layout, rank, axes = channels.of(node.inputs[0]), _rank(node.inputs[0]), _fixed(node, 1)
    if layout is None or rank is None or axes is None:
        return None
    gone = {int(axis) % rank for axis in axes}
    return None if layout.axis in gone else replace(layout, axis=layout.axis - sum(axis < layout.axis for axis in gone))


def _pad(channels: Channels, node: ir.Node) -> Layout | None:
    layout, pads = channels.of(node.inputs[0]), _fixed(node, 1)
    if layout is None or pads is None or len([value for value in node.inputs if value is not None]) > 3:
        return None
    edges = pads.reshape(2, -1)
    return layout if edges.shape[1] > layout.axis and not edges[:, layout.axis].any() else None


def _resize(channels: Channels, node: ir.Node) -> Layout | None:
    layout, scales = channels.of(node.inputs[0]), _fixed(node, 2)
    if layout is None or scales is None or scales.size <= layout.axis or scales[layout.axis] != 1:
        return None
    return layout


def _named(handler: _Handler, *operators: str) -> Iterator[tuple[str, _Handler]]:
    return ((operator, handler) for operator in operators)


_HANDLERS: Mapping[str, _Handler] = dict([
    *_named(_conv, "Conv"),
    *_named(_conv_transpose, "ConvTranspose"),
    *_named(_gemm, "Gemm"),
    *_named(_matmul, "MatMul"),
    *_named(_same, "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf",
            "Gelu", "Mish", "Softplus", "Softsign", "Exp", "Sqrt", "Abs", "Neg", "Identity", "Clip", "Reciprocal"),
    *_named(_spatial, "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"),
    *_named(_per_channel, "BatchNormalization", "InstanceNormalization"),
    *_named(_elementwise, "Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min"),
    *_named(_concat, "Concat"),
    *_named(_flatten, "Flatten", "Reshape"),
    *_named(_reduce, "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"),
    *_named(_transpose, "Transpose"),
    *_named(_squeeze, "Squeeze"),
    *_named(_pad, "Pad"),
    *_named(_resize, "Resize"),
])  # fmt: skip
