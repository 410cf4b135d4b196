"""Sizes of values, and the same elements in others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted

Sizes = tuple[int, ...]


def known_sizes(value: ir.Value | None) -> Sizes:
    """All sizes, none where one is not known."""
    if value is not None and value.const_value is not None:
        return tuple(value.const_value.numpy().shape)
    shape = () if value is None or value.shape is None else tuple(value.shape)
    known = tuple(size for size in shape if isinstance(size, int))
    return known if len(known) == len(shape) else ()


def reshaped(graph: ir.Graph, node: ir.Node, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """The elements of ``value`` in these sizes, by a node in front of ``node``."""
    return inserted(node, "Reshape", [value, stated(graph, value, sizes)], value, shape=ir.Shape(sizes)).outputs[0]


def stated(graph: ir.Graph, value: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """Sizes for a Reshape of ``value``, stored."""
    return add_constant(graph, f"{value.name}/sizes", np.array(sizes, np.int64))
