"""Short-time Fourier transforms that are no power of two long, written as one convolution.

ONNX Runtime computes such lengths by Bluestein's method in float32: 7e-6 of the largest value where torch has 6e-8,
which the logarithm of a spectrum (log-mel features, 400 samples at 16 kHz) turns into 2e-3.  The convolution's kernels
are the windowed sines and cosines themselves, rounded once from float64: quiet bins keep their own precision.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

_MOST_CONSTANTS = 1 << 24
"""Elements that the sines and cosines may take; beyond, the transform stays what it is."""


def transforms_as_convolutions(model: ir.Model) -> bool:
    """Rewrite in place every STFT of real signals with constant window and step; whether there was one."""
    found = False
    for node in [node for node in model.graph.all_nodes() if node.op_type == "STFT" and not node.domain]:
        found |= _rewritten(node)
    return found


def _rewritten(node: ir.Node) -> bool:
    signal, step = node.inputs[0], _constant(node, 1)
    window, length = _constant(node, 2), _constant(node, 3)
    if signal is None or step is None or signal.shape is None or len(signal.shape) != 3 or signal.shape[2] != 1:
        return False
    size = int(length.item()) if length is not None else 0 if window is None else len(window)
    if size & (size - 1) == 0 or (len(node.inputs) > 2 and node.inputs[2] is not None and window is None):
        return False
    onesided = node.attributes.get_int("onesided", 1)
    bins = size // 2 + 1 if onesided else size
    if 2 * bins * size > _MOST_CONSTANTS or node.graph is None:
        return False
    kernels = _kernels(np.ones(size) if window is None else window.astype(np.float64), bins)
    # (batch, samples, 1) → (batch, 1, samples) → (batch, parts · bins, frames) → (batch, frames, bins, parts)
    first = ir.node("Transpose", [signal], {"perm": [0, 2, 1]})
    weight = ir.node("Constant", [], {"value": ir.tensor(kernels)})
    convolved = ir.node("Conv", [first.outputs[0], weight.outputs[0]], {"strides": [int(step.item())]})
    shape = ir.node("Constant", [], {"value_ints": [0, 2, bins, -1]})
    parted = ir.node("Reshape", [convolved.outputs[0], shape.outputs[0]])
    last = ir.node("Transpose", [parted.outputs[0]], {"perm": [0, 3, 2, 1]})
    for made in (first, weight, convolved, shape, parted, last):
        made.metadata_props.update(node.metadata_props)
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], [first, weight, convolved, shape, parted, last], node.outputs, last.outputs
    )
    return True


def _kernels(window: Array, bins: int) -> Array:
    """Real parts of all bins, then imaginary ones: (2 · bins, 1, size)."""
    size = len(window)
    turns = np.outer(np.arange(bins), np.arange(size)) % size
    waves = np.exp(-2j * np.pi * turns / size) * window
    return np.concatenate([waves.real, waves.imag])[:, None].astype(np.float32)


def _constant(node: ir.Node, place: int) -> Array | None:
    value = node.inputs[place] if place < len(node.inputs) else None
    found = None if value is None else ir.convenience.get_const_tensor(value)
    return None if found is None else np.asarray(found.numpy())
