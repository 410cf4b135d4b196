"""Which scales meet in an operator: what ``ties`` must know of a placement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convertkit.quantization.graph.units import Unit, constant, is_constant
from convertkit.quantization.place.ties import Product, Sum

_SUMS = frozenset({"Add", "Sub"})
_AVERAGES = frozenset({"ReduceMean", "GlobalAveragePool", "AveragePool", "Resize"})
_RESCALES = frozenset({"Mul", "ReduceSum"})
_CLAMPS = frozenset({"Relu", "Clip"})


def rescalings(units: Iterable[Unit], index_of: Mapping[ir.Value, int]) -> tuple[tuple[Sum, ...], tuple[Product, ...]]:
    """Sums and products of the integer units; operators with weights are left out: the weights' scales adapt."""
    sums, products = [], []
    for unit in units:
        if unit.rule is None or unit.rule.same_scale or not unit.outputs:
            continue
        result = index_of[unit.outputs[0]]
        read = tuple(index_of[value] for value in unit.data.values())
        if unit.node.op_type in _SUMS:
            sums.append(Sum(read, result))
        elif unit.node.op_type in _RESCALES and not unit.constants:
            products.append(Product(read, result))
        elif unit.node.op_type in _CLAMPS and not unit.constants:
            products.append(Product(read, result, slope=0.0))
        elif unit.node.op_type == "LeakyRelu":
            products.append(Product(read, result, slope=unit.node.attributes.get_float("alpha", 0.01)))
        elif unit.node.op_type == "HardSigmoid" and unit.rule.fixed_output is not None:
            alpha = unit.node.attributes.get_float("alpha", 0.2)
            products += [Product(read, result, 1 / alpha)] if alpha > 0 else []
        elif unit.node.op_type in _AVERAGES and (count := averaged(unit.node)):
            products.append(Product(read, result, count))
    return tuple(sums), tuple(products)


def averaged(node: ir.Node) -> int:
    """The common denominator of what elements are weighted with; 0 where it is not known or none."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None or result.shape is None:
        return 0
    before, after = list(source.shape), list(result.shape)
    if node.op_type == "Resize":
        return _interpolated(node, before, after)
    if node.op_type == "AveragePool":
        padded = any(node.attributes.get_ints("pads", ())) or node.attributes.get_int("ceil_mode", 0) != 0
        plain = node.attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not padded
        return math.prod(node.attributes.get_ints("kernel_shape", (0,))) if plain else 0
    sizes = [before[axis] for axis in _axes(node, len(before))]
    return math.prod(size for size in sizes if isinstance(size, int)) if all(isinstance(s, int) for s in sizes) else 0


def _interpolated(node: ir.Node, before: Sequence[object], after: Sequence[object]) -> int:
    """Linear interpolation to whole multiples: the weights at half pixels are multiples of half the inverse factor."""
    steps = {"half_pixel": 2, "asymmetric": 1}.get(
        node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    )
    if steps is None or node.attributes.get_string("mode", "nearest") != "linear":
        return 0
    count = 1
    for small, large in zip(before, after, strict=True):
        if small == large:
            continue
        if not isinstance(small, int) or not isinstance(large, int) or large % small:
            return 0
        count *= steps * (large // small)
    return count


def _axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    if node.op_type == "GlobalAveragePool":
        return tuple(range(2, rank))
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None and is_constant(given):
        return tuple(int(axis) % rank for axis in np.asarray(constant(given)).reshape(-1))
    named = node.attributes.get_ints("axes", ())
    return tuple(axis % rank for axis in named) or tuple(range(rank))
