"""Borders of zeros in front of a MaxPool, kept as what they are.

ONNX Runtime makes the pool's own padding of a Pad with zeros.  That is right for a Conv; a MaxPool pads with the lowest
value, so that zeros beside negative values are lost.  It does so, too, where a Transpose stands between the two, which
it moves away first.  A Pad that names its axes is left alone, and so is what is behind a Sum of one.
Source of the rule: onnxruntime/core/optimizer/pad_fusion.cc.  Measured: ONNX Runtime 1.31, by
``tests/targets/onnxruntime/test_borders.py``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer, inserted, producer

_AXES_SINCE = 18
"""The opset from which a Pad can name its axes."""
_NEVER_NEGATIVE = frozenset({"Abs", "Relu", "Sigmoid", "Softmax", "Softplus"})


def keep_zero_borders(model: ir.Model) -> None:
    """Write borders of zeros that a MaxPool reads so that ONNX Runtime computes them, in place; the numbers stay."""
    named = (model.graph.opset_imports.get("") or 0) >= _AXES_SINCE
    for pool in [node for node in model.graph.all_nodes() if node.op_type == "MaxPool" and not node.domain]:
        data = pool.inputs[0]
        before, axes = _behind_moves(data)
        pad = producer(before, "Pad")
        if pad is None or not _has_zeros(pad) or _loses_nothing(pad, pool, axes):
            continue
        if named:
            _name_axes(pad)
        else:
            assert data is not None
            pool.replace_input_with(0, inserted(pool, "Sum", [data], data).outputs[0])


def _behind_moves(value: ir.Value | None) -> tuple[ir.Value | None, list[int] | None]:
    """A value before Casts and Transposes, and the axes of that which the value has; None where they did not move."""
    axes: list[int] | None = None
    while (node := producer(value, "Cast") or producer(value, "Transpose")) is not None:
        if node.op_type == "Transpose":
            moved = list(node.attributes.get_ints("perm") or reversed(range(len(node.outputs[0].shape or ()))))
            axes = moved if axes is None else [moved[axis] for axis in axes]
        value = node.inputs[0]
    return value, axes


def _has_zeros(pad: ir.Node) -> bool:
    """Whether a Pad is one that ONNX Runtime takes out: constant zeros, constant sizes, on all axes."""
    if pad.attributes.get_string("mode", "constant") != "constant" or (len(pad.inputs) > 3 and pad.inputs[3]):
        return False
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    known = array_of(value)
    zeros = value is None or (known is not None and not known.any())
    return zeros and array_of(pad.inputs[1]) is not None


def _loses_nothing(pad: ir.Node, pool: ir.Node, axes: list[int] | None) -> bool:
    """Whether the lowest value does as well as zeros: nothing is negative, and each window has one element at least.

    ``axes`` are the Pad's axes in the order in which the pool has them.
    """
    data, pads = _behind_moves(pad.inputs[0])[0], array_of(pad.inputs[1])
    made = None if data is None else data.producer()
    if made is None or made.domain or made.op_type not in _NEVER_NEGATIVE or pads is None:
        return False
    kernel = np.array(pool.attributes.get_ints("kernel_shape") or [])
    dilations = np.array(pool.attributes.get_ints("dilations") or [1] * len(kernel))
    reach = np.concatenate([[0, 0], (kernel - 1) * dilations])
    sides = pads.reshape(2, -1) if axes is None else pads.reshape(2, -1)[:, axes]
    return sides.shape[1:] == reach.shape and bool((sides <= reach).all())


def _name_axes(pad: ir.Node) -> None:
    """Give a Pad all of its axes as an input."""
    pads = array_of(pad.inputs[1])
    assert pads is not None
    pad.resize_inputs(4)
    pad.replace_input_with(3, initializer(pad, np.arange(len(pads) // 2), f"{pad.outputs[0].name}/axes"))
