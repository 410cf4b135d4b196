"""Normalisations whose elements may all be equal: an epsilon does not hide the error of their mean.

A runtime's mean of equal elements is an error of the last place off.  Divided by the root of an epsilon of 1e-12 that
is as large as a result, and by that of a usual 1e-5 it is where the elements are around 1000; PyTorch, which updates
mean and squares with each element, gives 0 (B. P. Welford, 1962, as in :mod:`convertkit.onnx.recognise.deviation`).
Taken from one of the elements first, they are 0 in any arithmetic.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import initializer, inserted, is_float32, sizes
from convertkit.onnx.recognise.deviation import LEAST_USUAL, is_shifted
from convertkit.onnx.recognise.varied import varies


def recognise_norm_of_equals(node: ir.Node) -> None:
    """A normalisation of what need not vary along its axes.

    before:  InstanceNormalization(x), LayerNormalization(x)
    after:   the same of s = x - x[first]
    """
    axes, x = _axes(node), node.inputs[0] if node.inputs else None
    if not axes or x is None or not is_float32(x) or is_shifted(x):
        return
    if varies(x, axes, small_may_equal=node.attributes.get_float("epsilon", 1e-5) >= LEAST_USUAL):
        return
    along = initializer(node, np.array(axes, np.int64), f"{x.name}/axes")
    starts = initializer(node, np.zeros(len(axes), np.int64), f"{x.name}/first")
    ends = initializer(node, np.ones(len(axes), np.int64), f"{x.name}/second")
    small = ir.Shape([1 if axis in axes else size for axis, size in enumerate(x.shape or ())])
    origin = inserted(node, "Slice", [x, starts, ends, along], x, shape=small).outputs[0]
    node.replace_input_with(0, inserted(node, "Sub", [x, origin], x).outputs[0])


def shifts(node: ir.Node) -> bool:
    """Whether this is a normalisation that takes its input from one of its elements."""
    x = node.inputs[0] if node.inputs else None
    return bool(_axes(node)) and x is not None and is_shifted(x)


def _axes(node: ir.Node) -> tuple[int, ...]:
    """The axes that a node normalises, none of them negative; empty where it is another node, or tells its mean."""
    rank = len(sizes(node.inputs[0]) or ()) if node.inputs else 0
    if node.domain or not rank:
        return ()
    if node.op_type == "InstanceNormalization":
        return tuple(range(2, rank))
    alone = not any(each.uses() or each.is_graph_output() for each in node.outputs[1:])
    if node.op_type == "LayerNormalization" and alone:
        return tuple(range(node.attributes.get_int("axis", -1) % rank, rank))
    return ()
