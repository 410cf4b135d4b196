"""NaN for places outside of a table, as JAX and Keras give it, for ``--full-integer``: no integers express NaN.

before:  y = Where (inside (places), Gather (table, places), NaN)
after:   y = Gather (table, places)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, bypass, is_float32
from convertkit.quantization.graph.units import is_constant

NOTE = "places outside of a table give NaN in the source, and one of the table's rows here: no integers express NaN"


def without_outside(model: ir.Model) -> bool:
    """Drop every such choice whose condition no float decides, in place; whether there was any."""
    found = False
    for node in tuple(model.graph):
        if node.op_type != "Where" or node.domain or not is_float32(node.outputs[0]):
            continue
        condition, *branches = node.inputs
        kept = [value for value in branches if value is not None and not _is_nan(value)]
        if len(kept) == 1 and _has_sizes_of(kept[0], node.outputs[0]) and _is_of_integers(condition):
            bypass(node, kept[0])
            found = True
    return found


def _is_nan(value: ir.Value) -> bool:
    stored = array_of(value)
    return stored is not None and stored.dtype == np.float32 and bool(np.isnan(stored).all())


def _has_sizes_of(value: ir.Value, result: ir.Value) -> bool:
    """Whether ``value`` is not broadcast; sizes that are only known at run time may have two names."""
    if value.shape is None or result.shape is None or len(value.shape) != len(result.shape):
        return False
    pairs = zip(value.shape, result.shape, strict=True)
    return all(one == other or 1 not in (one, other) for one, other in pairs)


def _is_of_integers(value: ir.Value | None) -> bool:
    """Whether ``value`` is computed from integers and flags alone, whatever the inputs."""
    waiting, seen = [value], set[ir.Value]()
    while waiting:
        each = waiting.pop()
        if each is None or each in seen or is_constant(each):
            continue
        seen.add(each)
        if each.dtype is None or each.dtype.is_floating_point():
            return False
        maker = each.producer()
        waiting += [] if maker is None else maker.inputs
    return True
