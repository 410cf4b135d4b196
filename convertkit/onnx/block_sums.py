"""Sums over axes that lie apart are taken over the last ones first: ONNX Runtime adds the others one by one.

before:  ReduceMean(x, [1, 2, 4])
after:   ReduceMean(ReduceMean(x, [4]), [1, 2, 4])

Thousands of elements that are added in turn lose five of twenty-four bits; a block at the end is added in parts
(N. J. Higham, *The Accuracy of Floating Point Summation*, 1993).  Group norms with their channels last compute so.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import axes_of, initializer, inserted, is_float32

_SUMS = frozenset({"ReduceMean", "ReduceSum"})
_FEWEST = 256
"""Elements of a sum below which its error does not show."""


def sum_in_blocks(model: ir.Model) -> None:
    """Put a sum over the last axes in front of every such one, in place."""
    for node in list(model.graph):
        x = node.inputs[0] if node.inputs else None
        if node.op_type not in _SUMS or node.domain or x is None or x.shape is None or not is_float32(x):
            continue
        last = _last_block(axes_of(node, len(x.shape)) or (), x.shape)
        if last:
            small = ir.Shape([1 if axis in last else size for axis, size in enumerate(x.shape)])
            axes = initializer(node, np.array(last, np.int64), f"{node.outputs[0].name}/last axes")
            part = inserted(node, node.op_type, [x, axes], node.outputs[0], {"keepdims": 1}, small)
            node.replace_input_with(0, part.outputs[0])


def _last_block(axes: tuple[int, ...], shape: ir.Shape) -> tuple[int, ...]:
    """Those of ``axes`` that are the last of all without a gap; empty where they are all of them, or sum up few."""
    block = tuple(axis for axis in axes if all(each in axes for each in range(axis, len(shape))))
    counts = [size for axis, size in enumerate(shape) if axis in axes and isinstance(size, int)]
    is_few = len(counts) == len(axes) and math.prod(counts) < _FEWEST
    return () if len(block) == len(axes) or is_few or all(shape[axis] == 1 for axis in block) else block
