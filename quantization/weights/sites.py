"""Places where scales can be moved between what makes channels and what reads them.

Behind a convolution, product or normalization, through operators that commute with positive factors, up to products
with constant weights.  A Clip with an upper limit does not commute, and ends the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.onnx.edit import axes_of
from convertkit.quantization.graph.sizes import sizes
from convertkit.quantization.graph.units import constant, is_constant

NORMS = frozenset({"LayerNormalization", "RMSNormalization"})
_POINTWISE = frozenset({"Relu", "LeakyRelu", "Identity"})
_POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """One place where scales can move: constants that are divided where the channels are made, and readers.

    ``makers`` are (node, input index, axis) of constants with one slice per channel; ``readers`` are nodes
    with a constant weight, all of which read the channels as input 0.
    """

    producer: ir.Node
    makers: tuple[tuple[ir.Node, int, int], ...]
    readers: tuple[ir.Node, ...]


def find_sites(graph: ir.Graph) -> tuple[Site, ...]:
    """Every place of the main graph where scales can move, in graph order."""
    found = (_site(node) for node in graph if not node.domain)
    return tuple(site for site in found if site is not None)


def _site(node: ir.Node) -> Site | None:
    makers = _makers(node)
    if not makers or len(node.outputs) != 1:
        return None
    readers: list[ir.Node] = []
    if not _follow(node.outputs[0], node, channel_axis(node), makers, readers) or not readers:
        return None
    return Site(node, tuple(makers), tuple(readers))


def _makers(node: ir.Node) -> list[tuple[ir.Node, int, int]]:
    """The constants that scale the node's output channels; none where it cannot be scaled."""
    if node.op_type in NORMS:
        # Scale, and shift, over the last axis alone.
        wanted = [(1, -1), (2, -1)]
        if node.attributes.get_int("axis", -1) != -1 and not _is_last(node):
            return []
    elif node.op_type == "Conv" or (node.op_type == "Gemm" and node.attributes.get_int("transB", 0) == 1):
        wanted = [(1, 0), (2, 0)]
    elif node.op_type == "MatMul":
        wanted = [(1, -1)]
    else:
        return []
    present = [(index, axis) for index, axis in wanted if index < len(node.inputs) and node.inputs[index] is not None]
    values = [input_of(node, index) for index, _ in present]
    if len(present) == 0 or not all(is_constant(value) and constant(value).ndim > 0 for value in values):
        return []
    if node.op_type in NORMS and any(constant(value).ndim != 1 for value in values):
        return []
    if node.op_type == "MatMul" and constant(values[0]).ndim != 2:
        return []
    return [(node, index, axis) for index, axis in present]


def _is_last(node: ir.Node) -> bool:
    shape = input_of(node, 0).shape
    return shape is not None and node.attributes.get_int("axis", -1) == len(shape) - 1


def channel_axis(producer: ir.Node) -> int:
    """Where the channels are: 1 behind a convolution, else the last axis."""
    return 1 if producer.op_type == "Conv" else -1


def _follow(
    value: ir.Value, producer: ir.Node, axis: int, makers: list[tuple[ir.Node, int, int]], readers: list[ir.Node]
) -> bool:
    """Collect the readers of ``value`` and of what it becomes; False where one of them wants the true numbers."""
    uses = tuple(value.uses())
    if value.is_graph_output() or not uses:
        return False
    for use in uses:
        node = use.node
        if node.domain or node.graph is not producer.graph or (use.idx != 0 and node.op_type != "Add"):
            return False
        if _absorbs(node, axis):
            readers.append(node)
            continue
        commutes = node.op_type in _POINTWISE or (node.op_type in _POOLS and axis == 1)
        behind = _flat(node) if axis == 1 else None
        shift = _shift(node, value, makers, axis)
        if shift is not None:
            makers.append((node, shift, -1))
        elif not commutes and behind is None:
            return False
        after = axis if behind is None else behind
        if len(node.outputs) != 1 or not _follow(node.outputs[0], producer, after, makers, readers):
            return False
    return True


def _flat(node: ir.Node) -> int | None:
    """Where channels that were at axis 1 are behind a mean over all positions, or behind what makes one row of it."""
    if node.op_type not in ("ReduceMean", "Reshape", "Flatten", "Squeeze"):
        return None
    before, after = sizes(input_of(node, 0)), sizes(node.outputs[0])
    places = tuple(range(2, len(before)))
    alone = axes_of(node, len(before)) == places if node.op_type == "ReduceMean" else math.prod(before[2:]) == 1
    if not places or not alone or math.prod(after) != before[0] * before[1] or after[:2] != before[:2]:
        return None
    return 1 if len(after) > 2 else -1


def _shift(node: ir.Node, value: ir.Value, makers: Sequence[tuple[ir.Node, int, int]], axis: int) -> int | None:
    """The input index of a constant that is added per channel, where the node is such an Add."""
    if node.op_type != "Add" or axis != -1:
        return None
    index = 1 if node.inputs[0] is value else 0
    other = input_of(node, index)
    first, place, first_axis = makers[0]
    channels = constant(input_of(first, place)).shape[first_axis]
    if not is_constant(other) or constant(other).size != channels or constant(other).shape[-1:] != (channels,):
        return None
    return index


def _absorbs(node: ir.Node, axis: int) -> bool:
    """Whether the node multiplies input 0 with a constant weight along ``axis``."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or not is_constant(input_of(node, 1)):
        return False
    if node.op_type == "Conv":
        return axis == 1
    if node.op_type == "Gemm" and (
        node.attributes.get_int("transA", 0) == 1 or node.attributes.get_int("transB", 0) != 1
    ):
        return False
    return axis == -1 and constant(input_of(node, 1)).ndim == 2


def input_of(node: ir.Node, index: int) -> ir.Value:
    """An input that the operator cannot be without."""
    value = node.inputs[index]
    assert value is not None
    return value
