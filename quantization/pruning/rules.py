"""How each operator carries the channels of what it reads: the rules by which channel groups are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from convertkit.quantization.graph.units import is_constant
from convertkit.quantization.pruning import moves, parts
from convertkit.quantization.pruning.channels import Channels, Layout, layout_nothing, layout_of
from convertkit.quantization.pruning.group import Group
from convertkit.quantization.pruning.moves import fixed, meets, rank
from convertkit.quantization.pruning.states import recurrent

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


def _product(channels: Channels, node: ir.Node, weight: tuple[int, int], axes: tuple[int, int]) -> Layout | None:
    """A weight that sums over its axis ``weight[0]`` and makes ``weight[1]``; ``axes`` are the data's."""
    array = fixed(node, 1)
    if array is None or (len(node.inputs) > 2 and node.inputs[2] is not None and fixed(node, 2) is None):
        return None
    layout = channels.of(node.inputs[0])
    if layout is not None:
        if layout.axis != axes[0] or layout.size != array.shape[weight[0]]:
            return None
        channels.cut(node, 1, weight[0], layout, node.inputs[0])
    made = layout_of(Group(array.shape[weight[1]]), axes[1])
    channels.cut(node, 1, weight[1], made)
    bias = fixed(node, 2)
    if bias is not None and bias.shape[-1:] == (made.size,):
        channels.cut(node, 2, bias.ndim - 1, made)
    return made


def _conv(channels: Channels, node: ir.Node) -> Layout | None:
    array, layout = fixed(node, 1), channels.of(node.inputs[0])
    if array is None or array.ndim < 3:
        return None
    groups = node.attributes.get_int("group", 1)
    if groups == 1:
        return _product(channels, node, (1, 0), (1, 1))
    if len(node.inputs) > 2 and node.inputs[2] is not None and fixed(node, 2) is None:
        return None
    if array.shape[1] != 1:
        return _grouped(channels, node, groups)
    if layout is None or layout.axis != 1 or layout.size != groups:
        return None
    made = layout.picked(np.repeat(np.arange(groups), array.shape[0] // groups))
    channels.cut(node, 1, 0, made)
    channels.cut(node, 2, 0, made)
    channels.counted(node, "group", layout)
    return made


def _grouped(channels: Channels, node: ir.Node, groups: int) -> Layout | None:
    """Every group keeps as many: channels of the same place in their groups are tied."""
    array, layout = fixed(node, 1), channels.of(node.inputs[0])
    assert array is not None
    if layout is not None:
        if layout.axis != 1 or not layout.tied(np.arange(layout.size) % array.shape[1]):
            return None
        channels.cut(node, 1, 1, layout.picked(np.arange(array.shape[1])), node.inputs[0])
    group = Group(array.shape[0])
    group.tie(np.arange(group.size) % (group.size // groups))
    made = layout_of(group, 1)
    channels.cut(node, 1, 0, made)
    channels.cut(node, 2, 0, made)
    return made


def _conv_transpose(channels: Channels, node: ir.Node) -> Layout | None:
    return _product(channels, node, (0, 1), (1, 1)) if node.attributes.get_int("group", 1) == 1 else None


def _gemm(channels: Channels, node: ir.Node) -> Layout | None:
    if node.attributes.get_int("transA", 0):
        return None
    return _product(channels, node, (1, 0) if node.attributes.get_int("transB", 0) else (0, 1), (1, 1))


def _matmul(channels: Channels, node: ir.Node) -> Layout | None:
    axes, array = rank(node.inputs[0]), fixed(node, 1)
    if axes is None or axes < 2:
        return None
    if array is None:
        return _of_heads(channels, node)
    return _product(channels, node, (0, 1), (axes - 1, axes - 1)) if array.ndim == 2 else None


def _of_heads(channels: Channels, node: ir.Node) -> Layout | None:
    """A product of activations for each head: their axis is neither of the matrices'."""
    layouts = [channels.of(value) for value in node.inputs]
    ranks = [rank(value) for value in node.inputs]
    if not any(layouts):
        return layout_nothing()
    if ranks[0] != ranks[1] or ranks[0] is None:
        return None
    if any(each is not None and each.axis >= ranks[0] - 2 for each in layouts):
        return None
    return _elementwise(channels, node)


def _same(channels: Channels, node: ir.Node) -> Layout | None:
    return channels.of(node.inputs[0]) or layout_nothing()


def _along_axis(channels: Channels, node: ir.Node) -> Layout | None:
    """What looks at one axis alone, from there on to the last, or from the axis on, as normalisations do."""
    layout, axes = channels.of(node.inputs[0]), rank(node.inputs[0])
    if layout is None or axes is None:
        return layout_nothing() if layout is None else None
    axis = node.attributes.get_int("axis", -1) % axes
    clear = layout.axis < axis if node.op_type == "LayerNormalization" else layout.axis != axis
    return layout if clear and len(node.outputs) == 1 else None


def _spatial(channels: Channels, node: ir.Node) -> Layout | None:
    layout = channels.of(node.inputs[0])
    return layout if layout is not None and layout.axis == 1 and len(node.outputs) == 1 else None


def _per_channel(channels: Channels, node: ir.Node) -> Layout | None:
    layout = _spatial(channels, node)
    if layout is None or any(fixed(node, index) is None for index in range(1, len(node.inputs))):
        return None
    for index in range(1, len(node.inputs)):
        channels.cut(node, index, 0, layout)
    return layout


def _elementwise(channels: Channels, node: ir.Node) -> Layout | None:
    """Operands that broadcast: their channels meet where several have them."""
    ranks = [rank(value) for value in node.inputs]
    known = [each for each in ranks if each is not None]
    if len(known) != len(ranks):
        return None
    shifts = [max(known) - each for each in known]
    layouts = [channels.of(value) for value in node.inputs]
    found = [replace(each, axis=each.axis + shift) for each, shift in zip(layouts, shifts, strict=True) if each]
    if not found:
        return layout_nothing()
    layout = max(found, key=lambda each: each.size)
    for index, (other, shift) in enumerate(zip(layouts, shifts, strict=True)):
        if other is not None:
            if not meets(layout, replace(other, axis=other.axis + shift)):
                return None
        elif not _spans(channels, node, index, layout, shift):
            return None
    return layout


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


def _named(handler: _Handler, *operators: str) -> Iterator[tuple[str, _Handler]]:
    return ((operator, handler) for operator in operators)


_HANDLERS: Mapping[str, _Handler] = dict([
    *_named(_conv, "Conv"),
    *_named(_conv_transpose, "ConvTranspose"),
    *_named(_gemm, "Gemm"),
    *_named(_matmul, "MatMul"),
    *_named(recurrent, "LSTM", "GRU", "RNN"),
    *_named(_same, "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf",
            "Gelu", "Mish", "Softplus", "Softsign", "Exp", "Sqrt", "Abs", "Neg", "Identity", "Clip", "Reciprocal",
            "Cast", "Floor", "Ceil", "Round", "Sin", "Cos", "Log", "Sign", "ThresholdedRelu", "Swish"),
    *_named(_spatial, "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool"),
    *_named(_along_axis, "Softmax", "LogSoftmax", "LayerNormalization"),
    *_named(_per_channel, "BatchNormalization", "InstanceNormalization"),
    *_named(_elementwise, "Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Max", "Min", "Sum", "Mean", "Where"),
    *_named(moves.concat, "Concat"),
    *_named(moves.flatten, "Flatten"),
    *_named(moves.reshape, "Reshape"),
    *_named(moves.reduce, "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
            "ReduceSumSquare"),
    *_named(moves.transpose, "Transpose"),
    *_named(moves.squeeze, "Squeeze"),
    *_named(moves.unsqueeze, "Unsqueeze"),
    *_named(parts.split, "Split"),
    *_named(parts.sliced, "Slice"),
    *_named(moves.gather, "Gather"),
    *_named(moves.pad, "Pad"),
    *_named(moves.resize, "Resize"),
    *_named(moves.depth_to_space, "DepthToSpace"),
    *_named(moves.space_to_depth, "SpaceToDepth"),
])  # fmt: skip
