"""Fourier transforms written as products with exact constants, where their length is short or not a power of two.

ONNX Runtime computes lengths that are not a power of two by Bluestein's method in float32: 2e-6 of the largest value at
15 samples and 4e-5 at 400, where torch has 1e-7; the logarithm of a spectrum (log-mel features, 400 samples at 16 kHz)
turns that into 2e-3.  At powers of two it leaves 5e-8 in the imaginary part of the middle bin, which is 0: the angle of
a negative number there is π in torch, and π or -π by that rest.  The constants are the sines and cosines themselves,
rounded once from float64, so quiet bins keep their own precision: a convolution with the windowed ones for a short-time
transform, a matrix for a transform of one axis.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.fourier import BY_BLOCKS, block_of, by_blocks, transform, waves

_MOST_CONSTANTS = 1 << 24
"""Elements that the sines and cosines of a short-time transform may take; beyond, it stays what it is."""
_LARGEST_MATRIX = 1 << 20
"""The same for a transform of one axis, which is long where it is not a frame: 1023 real samples, 512 complex ones."""
_LARGEST_OF_A_POWER = 1 << 19
"""The same where the length is a power of two: up to 512 real samples the product is quicker than the transform."""


def exact_transforms(model: ir.Model) -> bool:
    """Rewrite in place every STFT of real signals with constant window and step, and every DFT of short, known length.

    Returns whether there was one.
    """
    rewrites = {"STFT": _rewritten, "DFT": _as_product}
    found = False
    for node in [node for node in model.graph.all_nodes() if node.op_type in rewrites and not node.domain]:
        found |= rewrites[node.op_type](node)
    return found


def _as_product(node: ir.Node) -> bool:
    """One axis of a DFT and its real and imaginary parts meet one matrix."""
    x, length = node.inputs[0], _constant(node, 1)
    if x is None or x.shape is None or node.graph is None or (length is None and _is_given(node, 1)):
        return False
    axis = _axis(node)
    size, parts = (None, None) if axis is None else (x.shape[axis], x.shape[-1])
    if axis is None or not isinstance(size, int) or not isinstance(parts, int):
        return False
    inverse, onesided = (bool(node.attributes.get_int(name, 0)) for name in ("inverse", "onesided"))
    points = int(length.item()) if length is not None else 2 * (size - 1) if inverse and onesided else size
    if size * parts * points * (1 if onesided else 2) > _most(points, _LARGEST_MATRIX):
        return False
    used = min(size, points // 2 + 1 if inverse and onesided else points)
    part = transform(used, points, parts, inverse, onesided)
    weights = np.zeros((*part.shape[:2], size, parts), np.float32)
    weights[:, :, :used] = part
    _replace(node, _product(x, axis, weights))
    return True


def _most(points: int, otherwise: int) -> int:
    """Elements that the constants of a transform of ``points`` may take."""
    return otherwise if points & (points - 1) else _LARGEST_OF_A_POWER


def _product(x: ir.Value, axis: int, weights: Array) -> list[ir.Node]:
    """(…, size, …, parts) → (…, …, size · parts) → (…, …, bins · parts) → (…, bins, …, parts)."""
    assert x.shape is not None
    rank, (bins, out, size, parts) = len(x.shape), weights.shape
    order = [*(place for place in range(rank - 1) if place != axis), axis, rank - 1]
    moved = ir.node("Transpose", [x], {"perm": order})
    rows = ir.node("Constant", [], {"value_ints": [0] * (rank - 2) + [size * parts]})
    joined = ir.node("Reshape", [moved.outputs[0], rows.outputs[0]])
    matrix = ir.node("Constant", [], {"value": ir.tensor(weights.reshape(bins * out, size * parts).T.copy())})
    product = ir.node("MatMul", [joined.outputs[0], matrix.outputs[0]])
    shape = ir.node("Constant", [], {"value_ints": [0] * (rank - 2) + [bins, out]})
    parted = ir.node("Reshape", [product.outputs[0], shape.outputs[0]])
    back = ir.node("Transpose", [parted.outputs[0]], {"perm": [order.index(place) for place in range(rank)]})
    return [moved, rows, joined, matrix, product, shape, parted, back]


def _axis(node: ir.Node) -> int | None:
    """The transformed axis: an attribute up to opset 19, an input since; None where the node does not tell it."""
    x, given = node.inputs[0], _constant(node, 2)
    assert x is not None
    assert x.shape is not None
    axis = int(given.item()) if given is not None else node.attributes.get_int("axis", None)
    return None if axis is None else axis % len(x.shape)


def _is_given(node: ir.Node, place: int) -> bool:
    return place < len(node.inputs) and node.inputs[place] is not None


def _rewritten(node: ir.Node) -> bool:
    signal, step = node.inputs[0], _constant(node, 1)
    window, length = _constant(node, 2), _constant(node, 3)
    if signal is None or step is None or signal.shape is None or len(signal.shape) != 3 or signal.shape[2] != 1:
        return False
    size = int(length.item()) if length is not None else 0 if window is None else len(window)
    if not size or (len(node.inputs) > 2 and node.inputs[2] is not None and window is None):
        return False
    onesided = node.attributes.get_int("onesided", 1)
    bins = size // 2 + 1 if onesided else size
    if 2 * bins * size > _most(size, _MOST_CONSTANTS) or node.graph is None:
        return False
    step_size, frame = int(step.item()), np.ones(size) if window is None else window.astype(np.float64)
    kernels = _kernels(frame, bins)
    samples = signal.shape[1]
    block = block_of(samples, size, step_size) if isinstance(samples, int) else 0
    # (batch, samples, 1) → (batch, channels, blocks) → (batch, parts · bins, frames) → (batch, frames, bins, parts)
    first = _blocks(signal, block) if block else [ir.node("Transpose", [signal], {"perm": [0, 2, 1]})]
    weight = ir.node("Constant", [], {"value": ir.tensor(by_blocks(kernels, block).astype(np.float32))})
    strides = [step_size // (block or 1)]
    convolved = ir.node("Conv", [first[-1].outputs[0], weight.outputs[0]], {"strides": strides})
    if block:
        convolved.metadata_props[BY_BLOCKS] = str(block)
    shape = ir.node("Constant", [], {"value_ints": [0, 2, bins, -1]})
    parted = ir.node("Reshape", [convolved.outputs[0], shape.outputs[0]])
    last = ir.node("Transpose", [parted.outputs[0]], {"perm": [0, 3, 2, 1]})
    _replace(node, [*first, weight, convolved, shape, parted, last])
    return True


def _blocks(signal: ir.Value, block: int) -> list[ir.Node]:
    """(batch, samples, 1) → (batch, block + 2, blocks), as :func:`.fourier.by_blocks` has it."""
    assert signal.shape is not None
    samples = signal.shape[1]
    assert isinstance(samples, int)
    count = samples // block
    zero, one, last, whole_size = (_integers(at) for at in (0, 1, count - 1, count * block))
    whole = ir.node("Slice", [signal, *_of(zero, whole_size, one)])  # the rest is in no frame
    shape, axis = _integers(0, count, block), _integers(2)
    rows = ir.node("Reshape", _of(whole, shape))
    mean = ir.node("ReduceMean", _of(rows, axis))
    rest = ir.node("Sub", _of(rows, mean))
    first, others = (ir.node("Slice", _of(mean, zero, end, one)) for end in (one, last))
    before = ir.node("Concat", _of(first, others), {"axis": 1})
    change = ir.node("Sub", _of(mean, before))
    joined = ir.node("Concat", _of(rest, change, mean), {"axis": 2})
    moved = ir.node("Transpose", _of(joined), {"perm": [0, 2, 1]})
    return [zero, one, last, whole_size, whole, shape, axis, rows, mean, rest, first, others, before, change, joined,
            moved]  # fmt: skip


def _integers(*numbers: int) -> ir.Node:
    return ir.node("Constant", [], {"value_ints": list(numbers)})


def _of(*nodes: ir.Node) -> list[ir.Value]:
    return [node.outputs[0] for node in nodes]


def _replace(node: ir.Node, nodes: Sequence[ir.Node]) -> None:
    """The last of ``nodes`` gives what ``node`` gave."""
    assert node.graph is not None
    for made in nodes:
        made.metadata_props.update(node.metadata_props)
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], nodes, node.outputs, nodes[-1].outputs)


def _kernels(window: Array, bins: int) -> Array:
    """Real parts of all bins, then imaginary ones: (2 · bins, 1, size)."""
    size = len(window)
    found = waves(size, size, 1, inverse=False, onesided=False)[:bins, :, :, 0] * window
    return found.transpose(1, 0, 2).reshape(-1, 1, size)


def _constant(node: ir.Node, place: int) -> Array | None:
    value = node.inputs[place] if place < len(node.inputs) else None
    found = None if value is None else ir.convenience.get_const_tensor(value)
    return None if found is None else np.asarray(found.numpy())
