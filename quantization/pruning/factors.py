"""A product of matrices as two narrower ones: what of it stays for the fewest numbers, and what that costs.

``W`` (outputs × inputs) becomes ``B A`` with ``r`` rows of ``A``.  Of all factors of that rank those are taken whose
outputs are nearest on calibration data: the singular vectors of ``D W S``, where ``S Sᵀ`` is the second moment of the
inputs and ``D`` what errors of each output count.
Source of the whitening: SVD-LLM, arXiv:2403.07378.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.sizes import sizes
from convertkit.quantization.graph.units import Unit, constant, find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.quantization.pruning.scores import Product

_STEP = 8
"""Ranks are multiples of it: kernels compute tiles."""
_LEAST_GAIN = 0.9
"""Two products take at most this share of the time of one."""
_LEAST_SIDE = 16


@dataclass(frozen=True, slots=True)
class Factors:
    """One product's factors of every rank: ``left`` (outputs, all), ``right`` (all, inputs), both float64.

    ``loss`` is what is lost with none, one, two … of the singular vectors, as :meth:`Product.weighed` counts it.
    """

    product: Product
    left: Array
    right: Array
    loss: Array


def factors(product: Product) -> Factors:
    """The singular vectors of what the product does to its inputs."""
    weighed, rows = product.weighed(), product.rows
    count = np.sqrt(np.maximum(np.square(weighed).sum(axis=1), 1e-30) / np.maximum(np.square(rows).sum(axis=1), 1e-30))
    root = np.linalg.cholesky(product.damped(product.second))
    left, values, right = np.linalg.svd((rows * count[:, None]) @ root, full_matrices=False)
    power = np.square(values)
    loss = np.concatenate([np.cumsum(power[::-1])[::-1], [0.0]])
    turned = np.linalg.solve(root.T, right.T).T
    return Factors(product, (left * values) / count[:, None], turned, loss)


def is_candidate(unit: Unit) -> bool:
    """Whether a product is one matrix: a dense layer, or a convolution with a window of one element and no groups."""
    shape = constant(unit.weight_or_fail[1]).shape
    window = shape[2:] if unit.node.op_type == "Conv" else ()
    one = unit.node.attributes.get_int("group", 1) == 1 and not any(unit.node.attributes.get_ints("pads", ()))
    return one and set(window) <= {1} and min(shape[:2]) >= _LEAST_SIDE


def ranks(unit: Unit, profile: QuantProfile, *, integers: bool) -> dict[int, float]:
    """The ranks that win time by the cost table, each with the nanoseconds that it saves; the largest first."""
    outputs, inputs = _sides(unit)
    model = _alone(unit)
    (whole,) = find_units(model.graph, profile)
    before = _time(whole, profile, integers=integers)
    found = {}
    for rank in range(min(outputs, inputs) // _STEP * _STEP, 0, -_STEP):
        pair = _alone(unit, rank)
        after = sum(_time(each, profile, integers=integers) for each in find_units(pair.graph, profile))
        if after <= _LEAST_GAIN * before:
            found[rank] = before - after
    return found


def factorise(graph: ir.Graph, node: ir.Node, found: Factors, rank: int) -> None:
    """Put two products of ``rank`` in place of one, in the graph that ``node`` is in; the bias goes to the second."""
    unit = found.product.unit
    right, left = found.right[:rank], found.left[:, :rank]
    index, value = unit.weight_or_fail
    first = add_constant(graph, f"{value.name}_right", _as_weight(unit, right))
    second = add_constant(graph, f"{value.name}_left", _as_weight(unit, left))
    data, bias = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    before = ir.node(node.op_type, [data, first], dict(_copied(node)), name=f"{node.name}/right")
    inner = before.outputs[0]
    inner.name, inner.type = f"{node.outputs[0].name}/right", node.outputs[0].type
    inner.shape = _inner_shape(node, rank)
    before.metadata_props.update(node.metadata_props)
    graph.insert_before(node, before)
    node.replace_input_with(0, inner)
    node.replace_input_with(index, second)
    for name in ("strides", "dilations"):
        if name in node.attributes:
            node.attributes[name] = ir.AttrInt64s(name, [1] * len(node.attributes[name].as_ints()))
    if unit.bias is not None:
        shift = (found.product.rows - left @ right) @ found.product.moments.mean[0]
        holder = node if bias is not None else next(use.node for use in node.outputs[0].uses())
        _shift(graph, holder, unit.bias[1], shift)


def _shift(graph: ir.Graph, node: ir.Node, index: int, shift: Array) -> None:
    value = node.inputs[index]
    assert value is not None
    made = (constant(value) + shift).astype(np.float32)
    node.replace_input_with(index, add_constant(graph, f"{value.name}_shifted", made))


def _as_weight(unit: Unit, rows: Array) -> Array:
    """Rows (outputs, inputs) in the form of the unit's weight."""
    array = rows.astype(np.float32)
    if unit.node.op_type == "MatMul":
        return np.ascontiguousarray(array.T)
    rank = constant(unit.weight_or_fail[1]).ndim
    return np.ascontiguousarray(array.reshape(*array.shape, *[1] * (rank - 2)))


def _copied(node: ir.Node) -> dict[str, ir.Attr]:
    """The attributes of the first of two: windows, strides and transposition; no factors of Gemm."""
    return {name: value for name, value in node.attributes.items() if name not in ("alpha", "beta")}


def _sides(unit: Unit) -> tuple[int, int]:
    shape = constant(unit.weight_or_fail[1]).shape
    return (shape[0], shape[1]) if unit.node.op_type != "MatMul" else (shape[1], shape[0])


def _inner_shape(node: ir.Node, rank: int) -> ir.Shape | None:
    made = node.outputs[0].shape
    if made is None:
        return None
    axis = 1 if node.op_type == "Conv" else len(made) - 1
    return ir.Shape([rank if place == axis else size for place, size in enumerate(made)])


def _alone(unit: Unit, rank: int | None = None) -> ir.Model:
    """A model of this product alone, as it is or as two; weights have no content."""
    outputs, inputs = _sides(unit)
    node, data, made = unit.node, unit.data[0], unit.node.outputs[0]
    axis = 1 if node.op_type == "Conv" else len(sizes(made)) - 1
    entry = ir.Value(name="x", shape=ir.Shape(sizes(data)), type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph([entry], [], nodes=[], opset_imports={"": 21}, name="alone")
    value, deep = entry, inputs
    parts = [outputs] if rank is None else [rank, outputs]
    for place, wide in enumerate(parts):
        shape = _weight_shape(unit, wide, deep)
        weight = add_constant(graph, f"w{place}", np.zeros(0, np.float32))
        weight.shape = ir.Shape(shape)
        weight.const_value = ir.Tensor(np.broadcast_to(np.float32(0), shape), name=weight.name)
        attributes = dict(node.attributes) if place == 0 else _straight(node)
        step = ir.node(node.op_type, [value, weight], attributes, name=f"n{place}")
        value, deep = step.outputs[0], wide
        value.name, value.type = f"y{place}", entry.type
        value.shape = ir.Shape([wide if at == axis else size for at, size in enumerate(sizes(made))])
        graph.append(step)
    graph.outputs.append(value)
    return ir.Model(graph, ir_version=10)


def _straight(node: ir.Node) -> dict[str, ir.Attr]:
    return {name: value for name, value in node.attributes.items() if name not in ("strides", "dilations")}


def _weight_shape(unit: Unit, wide: int, deep: int) -> tuple[int, ...]:
    shape = constant(unit.weight_or_fail[1]).shape
    if unit.node.op_type == "MatMul":
        return (deep, wide)
    return (wide, deep, *shape[2:])


def _time(unit: Unit, profile: QuantProfile, *, integers: bool) -> float:
    integer, real = unit_cost(unit, profile)
    return integer if integers and unit.rule is not None else real


def kept_rank(found: Factors, wanted: Sequence[int], energy: float) -> int | None:
    """The least of these ranks that keeps a share of the outputs' power."""
    whole = max(float(found.loss[0]), 1e-30)
    enough = [rank for rank in wanted if found.loss[rank] <= (1 - energy) * whole]
    return min(enough, default=None)
