"""Weights that x86 may multiply without VNNI: no two neighbouring products exceed 16 bits (``byte_sums``)."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.onnx.byte_sums import MOST, greatest_sums, limited
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit, constant
from convertkit.quantization.weights.patches import weight_rows

_PRODUCTS = ("Gemm", "MatMul")
_ROUNDED = MOST - 1
"""Rounding to nearest adds at most one half to each of two."""


def is_bounded(unit: Unit, profile: QuantProfile, *, integer: bool) -> bool:
    """Whether the unit's weight may meet bytes in such a sum.

    ``integer``: its activations are integers in the graph; a matrix product may make them so when it runs.  Depthwise
    convolutions have a kernel of their own, which widens first.
    """
    if profile.byte_sums is None or unit.weight is None:
        return False
    if unit.node.op_type == "ConvTranspose":
        return profile.byte_sums == "in a tap"  # ONNX Runtime computes it in float
    if unit.node.op_type != "Conv":
        return unit.node.op_type in _PRODUCTS
    weight, groups = constant(unit.weight[1]), unit.node.attributes.get_int("group", 1)
    return integer and not (groups > 1 and weight.shape[0] == groups and weight.shape[1] == 1)


def least_scales(unit: Unit, profile: QuantProfile) -> Array:
    """Scales, one per output channel or a single one, at which no two rounded neighbours exceed the bound."""
    assert unit.rule is not None
    assert profile.byte_sums is not None
    sums = greatest_sums(_rows(unit), _taps(unit), profile.byte_sums)
    if unit.node.op_type == "ConvTranspose":
        sums = sums.max(axis=0)  # groups share the scales of their channels
    sums = sums.reshape(-1)
    return np.asarray((sums.max(keepdims=True) if unit.rule.per_tensor else sums) / _ROUNDED, np.float32)


def bounded_rows(unit: Unit, rows: Array, profile: QuantProfile) -> Array:
    """Integers (groups, rows, columns) within the bound; these are the same where they were."""
    assert profile.byte_sums is not None
    return limited(rows, _taps(unit), profile.byte_sums)


def _rows(unit: Unit) -> Array:
    """The weight as (groups, outputs of a group, channels of a group × taps)."""
    if unit.node.op_type != "ConvTranspose":
        return weight_rows(unit)
    weight, groups = constant(unit.weight_or_fail[1]), unit.node.attributes.get_int("group", 1)
    by_group = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return by_group.swapaxes(1, 2).reshape(groups, weight.shape[1], -1)


def _taps(unit: Unit) -> int:
    weight = constant(unit.weight_or_fail[1])
    return int(np.prod(weight.shape[2:])) if unit.node.op_type in ("Conv", "ConvTranspose") else 1
