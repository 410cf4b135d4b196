"""Dynamic dimensions of inputs that can have one size only: that of the weights that meet them.

Converters of other frameworks call every dimension dynamic, channels and features too: ``x (N, C, H, W) → Conv`` with
weights for three channels is ``x (N, 3, H, W)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.canonical import name_free_dims
from convertkit.onnx.edit import sizes

Met = tuple[ir.Value, int, int]
"""A value, its axis, and the size that this axis has to have."""


def sizes_of_weights(model: ir.Model) -> dict[str, int]:
    """The sizes that weights demand of named dynamic dimensions of the inputs.

    A dimension of which two weights demand different sizes is left out: the model runs with none.
    """
    name_free_dims(model)
    inner = {name for value in model.graph.inputs for dim in tuple(value.shape or ())[1:] if (name := _name(dim))}
    if not inner:
        return {}
    common.ShapeInferencePass(check_type=False, strict_mode=False)(model)
    found: dict[str, set[int]] = {}
    for node in model.graph:
        for value, axis, size in _met(node):
            name = _name(value.shape[axis]) if value.shape is not None and axis < len(value.shape) else ""
            if name in inner:
                found.setdefault(name, set()).add(size)
    return {name: each.pop() for name, each in found.items() if len(each) == 1}


def _name(dim: object) -> str:
    """Of a dynamic dimension, empty for any other."""
    return str(dim.value) if isinstance(dim, ir.SymbolicDim) and dim.value else ""


def _met(node: ir.Node) -> Iterator[Met]:
    rule = None if node.domain else _RULES.get(node.op_type)
    x, weights = (*node.inputs, None, None)[:2]
    if rule is None or x is None or weights is None or x.shape is None:
        return
    known = sizes(weights)  # stored, computed of what is stored, or given with these sizes
    if known is not None and None not in known:
        for axis, size in rule(node, len(x.shape), tuple(size or 0 for size in known)):
            yield x, axis % len(x.shape), size


Rule = Callable[[ir.Node, int, tuple[int, ...]], Iterator[tuple[int, int]]]
"""Axes of the first operand and their sizes, by its rank and the shape of the weights."""


def _convolution(node: ir.Node, rank: int, weights: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    del rank
    yield 1, weights[1] * node.attributes.get_int("group", 1)


def _transposed(node: ir.Node, rank: int, weights: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    del node, rank
    yield 1, weights[0]


def _product(node: ir.Node, rank: int, weights: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    del node
    if rank and weights:
        yield -1, weights[max(len(weights) - 2, 0)]


def _gemm(node: ir.Node, rank: int, weights: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    if rank == 2 and len(weights) == 2:
        axis = 0 if node.attributes.get_int("transA", 0) else 1
        yield axis, weights[1 if node.attributes.get_int("transB", 0) else 0]


def _channels(node: ir.Node, rank: int, weights: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    del node
    if rank > 1 and len(weights) == 1:
        yield 1, weights[0]


def _features(node: ir.Node, rank: int, weights: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    del node
    if rank == 3 and len(weights) == 3:
        yield 2, weights[2]


_RULES: Mapping[str, Rule] = {
    "BatchNormalization": _channels,
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "GRU": _features,
    "Gemm": _gemm,
    "InstanceNormalization": _channels,
    "LSTM": _features,
    "MatMul": _product,
    "RNN": _features,
}
