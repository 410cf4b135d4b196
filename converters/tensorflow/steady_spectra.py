"""Spectra of frames, each of which is taken less its mean.

before:  frames · window → Pad → MatMul(cosines of 512 points)
after:   (frames - mean) → MatMul(window · cosines of 400 points) → + mean · their sums

Products that are added one by one leave 1e-5 in bins that are empty, which a logarithm shows.  What does not change
meets the sums of the waves alone, which are zero for most windows.  The window costs nothing, and zeros behind a frame
are not multiplied.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, initializer, inserted, is_float32, producer, replaced
from convertkit.onnx.fourier import LESS_MEAN

_SHORTEST = 64
"""Samples of a frame whose products leave something that shows."""
_SAME = 1e-6
"""By how much stored waves may differ from those that are meant."""


def take_means_away(model: ir.Model) -> None:
    """Rewrite every product of real frames with the waves of all their bins, in place."""
    means: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
    for node in [node for node in model.graph if node.op_type == "MatMul" and not node.domain]:
        matrix = array_of(node.inputs[1])
        waves = None if matrix is None or not is_float32(node.outputs[0]) else _waves(matrix)
        if waves is None:
            continue
        frames, window = _unwindowed(_unpadded(node.inputs[0]))
        size = None if frames is None or frames.shape is None else frames.shape[-1]
        if frames is None or not isinstance(size, int) or not _SHORTEST <= size <= len(waves):
            continue
        kernels = waves[:size] * (1.0 if window is None else window[:, None])
        if frames not in means:
            means[frames] = _less_mean(node, frames)
        _write(node, *means[frames], kernels)
    if means:
        common.RemoveUnusedNodesPass()(model)


def _waves(matrix: Array) -> Array | None:
    """In float64 the cosines or sines of N points, row by row, for bins up to half of N; None of another matrix."""
    points = len(matrix)
    if matrix.ndim != 2 or matrix.shape[1] != points // 2 + 1 or points < _SHORTEST:
        return None
    turns = np.outer(np.arange(points), np.arange(matrix.shape[1])) % points * (2 * np.pi / points)
    sines = np.where(matrix == 0, 0.0, np.sin(turns))
    return next((each for each in (np.cos(turns), sines, 0.0 - sines) if np.abs(matrix - each).max() < _SAME), None)


def _unpadded(value: ir.Value | None) -> ir.Value | None:
    """What a Pad puts zeros behind, along the last axis alone."""
    node = producer(value, "Pad")
    amounts, told = (None, None) if node is None else (array_of(node.inputs[1]), (*node.inputs, None)[2])
    if node is None or amounts is None or node.attributes.get_string("mode", "constant") != "constant":
        return value
    filled = None if told is None else array_of(told)
    zeros = told is None or (filled is not None and not filled.any())
    behind = not amounts[:-1].any() and amounts[-1] >= 0 and len(node.inputs) < 4
    return node.inputs[0] if zeros and behind else value


def _unwindowed(value: ir.Value | None) -> tuple[ir.Value | None, Array | None]:
    """Frames, and the window that they were multiplied with."""
    node = producer(value, "Mul")
    for x, factor in () if node is None else (node.inputs, node.inputs[::-1]):
        window = array_of(factor)
        if window is None or x is None or x.shape is None or window.ndim > len(x.shape):
            continue
        if window.shape[-1:] == (window.size,) and window.size == x.shape[-1]:
            return x, window.reshape(-1).astype(np.float64)
    return value, None


def _less_mean(node: ir.Node, frames: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Frames less their means, and these: as a product, since ONNX Runtime's mean of no frames has 400 columns."""
    assert frames.shape is not None
    size = frames.shape[-1]
    assert isinstance(size, int)
    shares = initializer(node, np.full((size, 1), 1 / size, np.float32), f"{frames.name}/shares")
    small = ir.Shape([*frames.shape[:-1], 1])
    mean = inserted(node, "MatMul", [frames, shares], frames, shape=small).outputs[0]
    return inserted(node, "Sub", [frames, mean], frames).outputs[0], mean


def _write(node: ir.Node, rest: ir.Value, mean: ir.Value, kernels: Array) -> None:
    weights = initializer(node, kernels.astype(np.float32), f"{node.name}/waves")
    sums = initializer(node, kernels.sum(0, keepdims=True).astype(np.float32), f"{node.name}/sums")
    changing = inserted(node, "MatMul", [rest, weights], node.outputs[0])
    steady = inserted(node, "Mul", [mean, sums], node.outputs[0])
    made = replaced(node, "Add", [changing.outputs[0], steady.outputs[0]])
    made.metadata_props[LESS_MEAN] = "frames"
