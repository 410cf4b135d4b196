"""Fourier transforms of real signals behind which a logarithm stands, with the level taken out first.

A constant signal has one number in its spectrum and zeros, which are exact where a transform only adds and subtracts
neighbours.  Transforms in another order, and products with sines and cosines, leave a rounding of the whole sum in each
of those bins: the logarithm of ``|X| + 1e-6`` tells the two apart by as much as it spans.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, initializer, inserted, is_float32, producer, sizes

_AMPLITUDE = frozenset({
    "Abs", "Add", "Clip", "Concat", "Div", "Gather", "MatMul", "Max", "Mul", "Pow", "ReduceL2", "ReduceMean",
    "ReduceSum", "ReduceSumSquare", "Reshape", "Slice", "Split", "Sqrt", "Squeeze", "Sum", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators between a spectrum and the logarithm of its amplitudes."""
_MOST = 60


def recognise_level(node: ir.Node) -> None:
    """A forward transform of a real signal of known length, of which a logarithm is taken.

    before:  DFT(x)
    after:   DFT(x - x[first]) + x[first] · N · unit, where ``unit`` is 1 in the real part of bin 0, else 0
    """
    x = node.inputs[0] if node.op_type == "DFT" and not node.domain else None
    shape, found = sizes(x), sizes(node.outputs[0]) if x is not None else None
    axis = None if x is None or shape is None else _axis(node, len(shape))
    if x is None or shape is None or found is None or axis is None or not is_float32(x):
        return
    size, bins = shape[axis], found[axis]
    inverse: int = node.attributes.get_int("inverse", 0)
    if shape[-1] != 1 or size is None or bins is None or size < 2 or inverse:
        return
    if node.outputs[0].is_graph_output() or not _keeps_length(node, size):
        return
    if _is_level_free(x) or not _meets_logarithm(node.outputs[0]):
        return
    first, second, along = (initializer(node, np.array([n], np.int64), f"{x.name}/{n}") for n in (0, 1, axis))
    level = inserted(node, "Slice", [x, first, second, along], x).outputs[0]
    level.shape = ir.Shape([1 if place == axis else n for place, n in enumerate(x.shape or ())])
    unit = np.zeros([bins if place == axis else 1 for place in range(len(shape) - 1)] + [2], np.float32)
    unit[(0,) * len(shape)] = size
    node.replace_input_with(0, inserted(node, "Sub", [x, level], x).outputs[0])
    _add_behind(node, level, initializer(node, unit, f"{x.name}/unit"))


def _add_behind(node: ir.Node, level: ir.Value, unit: ir.Value) -> None:
    """Add ``level · unit`` to what the node gives, wherever that is read."""
    result = node.outputs[0]
    uses = list(result.uses())
    own = ir.node("Mul", [level, unit])
    total = ir.node("Add", [result, own.outputs[0]])
    for each, name in ((own.outputs[0], "level"), (total.outputs[0], "with level")):
        each.type, each.shape, each.name = result.type, result.shape, f"{result.name}/{name}"
    assert node.graph is not None
    node.graph.insert_after(node, [own, total])
    for use in uses:
        use.node.replace_input_with(use.idx, total.outputs[0])


def _axis(node: ir.Node, rank: int) -> int | None:
    """The transformed axis: an attribute up to opset 19, an operand since."""
    given = array_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if given is not None:
        return int(given.reshape(-1)[0]) % rank
    axis = node.attributes.get_int("axis", None)
    return None if axis is None else axis % rank


def _keeps_length(node: ir.Node, size: int) -> bool:
    """Whether the signal is neither cut nor padded."""
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return True
    length = array_of(node.inputs[1])
    return length is not None and int(length.reshape(-1)[0]) == size


def _is_level_free(x: ir.Value) -> bool:
    """Whether the level has been taken out before."""
    taken = producer(x, "Sub")
    return taken is not None and producer(taken.inputs[1], "Slice") is not None


def _meets_logarithm(spectrum: ir.Value) -> bool:
    open_, seen = [spectrum], {spectrum}
    while open_ and len(seen) < _MOST:
        for node in open_.pop().consumers():
            if node.op_type == "Log" and not node.domain:
                return True
            if node.op_type in _AMPLITUDE and not node.domain:
                new = [each for each in node.outputs if each not in seen]
                open_.extend(new)
                seen.update(new)
    return False
