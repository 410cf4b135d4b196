"""Root-mean-square normalisation, as one operator or written out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, axes_of, is_float32, producer, sizes
from convertkit.onnx.recognise.variance import squared


@dataclass(frozen=True, slots=True)
class MeanSquare:
    """``x · rsqrt (mean (x²) + epsilon) · scale``, the mean over the last axes, of which ``scale`` has the shape."""

    x: ir.Value
    epsilon: float
    scale: Array


def normalised_by_mean_square(node: ir.Node) -> MeanSquare | None:
    """What ``node`` makes by such a norm over fixed sizes with a constant scale; None where it does something else."""
    if node.domain or len(node.outputs) != 1 or not is_float32(node.outputs[0]):
        return None
    found = _operator(node) if node.op_type == "RMSNormalization" else _product(node)
    return found if found is not None and sizes(found.x) == sizes(node.outputs[0]) else None


def _operator(node: ir.Node) -> MeanSquare | None:
    x, scale = node.inputs[0], array_of(node.inputs[1])
    shape = sizes(x)
    if x is None or scale is None or shape is None:
        return None
    inner = _fixed(shape[node.attributes.get_int("axis", -1) :])
    fits = inner is not None and np.broadcast_shapes(scale.shape, inner) == inner
    if inner is None or not fits or scale.dtype != np.float32:
        return None
    return MeanSquare(x, node.attributes.get_float("epsilon", 1e-5), np.array(np.broadcast_to(scale, inner)))


def _product(node: ir.Node) -> MeanSquare | None:
    """Products with a scale around ``x · rsqrt (…)`` or ``x / sqrt (…)``."""
    operands = list(node.inputs)
    if node.op_type == "Div":
        return _divided(operands[0], producer(operands[1], "Sqrt"))
    for one, other in (operands, operands[::-1]) if node.op_type == "Mul" else ():
        reciprocal, scale = producer(other, "Reciprocal"), array_of(other)
        if reciprocal is not None:
            return _divided(one, producer(reciprocal.inputs[0], "Sqrt"))
        inner = None if one is None else one.producer()
        if scale is not None and inner is not None:
            return _scaled(normalised_by_mean_square(inner), scale)
    return None


def _divided(x: ir.Value | None, root: ir.Node | None) -> MeanSquare | None:
    total = None if root is None else producer(root.inputs[0], "Add")
    shape = sizes(x)
    if x is None or total is None or shape is None:
        return None
    for one, other in (total.inputs, total.inputs[::-1]):
        epsilon, mean = array_of(other), producer(one, "ReduceMean")
        if epsilon is None or epsilon.size != 1 or mean is None or squared(mean.inputs[0]) is not x:
            continue
        axes = axes_of(mean, len(shape)) or ()
        inner = _fixed(shape[len(shape) - len(axes) :])
        last = axes == tuple(range(len(shape) - len(axes), len(shape)))
        if axes and last and inner is not None and mean.attributes.get_int("keepdims", 1) != 0:
            return MeanSquare(x, float(epsilon.reshape(-1)[0]), np.ones(inner, np.float32))
    return None


def _scaled(norm: MeanSquare | None, scale: Array) -> MeanSquare | None:
    if (
        norm is None
        or scale.dtype != np.float32
        or np.broadcast_shapes(scale.shape, norm.scale.shape) != norm.scale.shape
    ):
        return None
    return MeanSquare(norm.x, norm.epsilon, norm.scale * scale)


def _fixed(shape: tuple[int | None, ...]) -> tuple[int, ...] | None:
    known = tuple(size for size in shape if size is not None)
    return known if len(known) == len(shape) else None
