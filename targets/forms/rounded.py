"""Quantized values as the floats that they stand for, for runtimes without QuantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, producer
from convertkit.stage import Tolerance
from convertkit.targets.forms.writing import Place, dims

ROUNDED = Tolerance(
    "the same integers, layer by layer; behind single float roundings, depth makes more of them",
    lsb=3.0,
    snr_db=20.0,
    warn_snr_db=25.0,
)
_TYPES = frozenset({ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16})


def write_rounding(model: ir.Model) -> int:
    """Pairs of QuantizeLinear and DequantizeLinear as float arithmetic on the same numbers, in place; how many.

    before:  d = DequantizeLinear (QuantizeLinear (x, s, z), s, z)
    after:   d = Mul (Clip (Round (Div (x, s)), least - z, most - z), s)

    Leaves pairs of blocks, of types without bounds, and of different parameters.
    """
    done = 0
    for node in tuple(model.graph.all_nodes()):
        before = producer(node.inputs[0], "QuantizeLinear") if node.op_type == "DequantizeLinear" else None
        if before is None or node.domain:
            continue
        parameters = _shared(before, node)
        if parameters is not None:
            _write(Place(node), before, *parameters)
            done += 1
    if done:
        RemoveUnusedNodesPass()(model)
    return done


def _shared(before: ir.Node, after: ir.Node) -> tuple[Array, Array] | None:
    """Scale and zero point of both, as they broadcast to the value; None where they are not the same."""
    kind, sizes = before.outputs[0].dtype, dims(before.inputs[0])
    block: int = before.attributes.get_int("block_size", 0)
    if kind not in _TYPES or sizes is None or block:
        return None
    scale, zero = (_both(before, after, place) for place in (1, 2))
    if scale is None or (zero is None and any(len(each.inputs) > 2 for each in (before, after))):
        return None
    zero = np.zeros_like(scale) if zero is None else zero
    if scale.size == 1:
        return scale.reshape(()).astype(np.float32), zero.reshape(()).astype(np.float32)
    axis = before.attributes.get_int("axis", 1) % len(sizes)
    if axis != after.attributes.get_int("axis", 1) % len(sizes):
        return None
    view = [-1 if place == axis else 1 for place in range(len(sizes))]
    return scale.reshape(view).astype(np.float32), zero.reshape(view).astype(np.float32)


def _both(before: ir.Node, after: ir.Node, place: int) -> Array | None:
    """The stored operand at ``place`` that both have; None for others, and where they have none."""
    one, other = (array_of(each.inputs[place]) if len(each.inputs) > place else None for each in (before, after))
    return one if one is not None and other is not None and np.array_equal(one, other) else None


def _write(place: Place, before: ir.Node, scale: Array, zero: Array) -> None:
    x, kind = before.inputs[0], before.outputs[0].dtype
    assert x is not None
    assert kind is not None
    limits, step = np.iinfo(kind.numpy()), place.constant(scale)
    whole = place.op("Round", place.op("Div", x, step))
    least, most = (np.asarray(end - zero, np.float32) for end in (limits.min, limits.max))
    if zero.ndim == 0:
        kept = place.op("Clip", whole, place.constant(least), place.constant(most))
    else:
        kept = place.op("Min", place.op("Max", whole, place.constant(least)), place.constant(most))
    place.becomes(place.op("Mul", kept, step))
