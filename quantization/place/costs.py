"""What units cost in integers and in float, and conversions between them, by the target's cost table."""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.kernel_costs import ConvShape, TransposedShape
from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.graph.sizes import elements, sizes
from convertkit.quantization.graph.units import Unit, constant, is_constant
from convertkit.quantization.place.dense import dense_cost, dense_shape
from convertkit.quantization.place.recurrent import recurrent_cost

_UNKNOWN = OpCost(1.0, 1.0)
_ON_THE_FLY = "DynamicQuantizeLinear"
_DENSE = frozenset({"Gemm", "MatMul"})
_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def unit_cost(unit: Unit, profile: QuantProfile) -> tuple[float, float]:
    """Nanoseconds in integers and in float."""
    recurrent = recurrent_cost(unit.node, profile)
    if recurrent is not None:
        return recurrent, recurrent
    if profile.kernel_costs is not None:
        shape = conv_shape(unit.node)
        if shape is not None:
            return profile.kernel_costs.times(shape)
        dense = dense_shape(unit.node)
        if dense is not None:
            return dense_cost(unit, dense, profile.kernel_costs, on_the_fly=unit.kinds[-1] in profile.dynamic)
    touched = {*unit.data.values(), *unit.outputs}
    integer, real = (profile.cost(unit.kinds) or _UNKNOWN).times(unit_work(unit), sum(map(elements, touched)))
    whole_ns, real_ns = _loading(unit, profile)
    integer, real = integer + whole_ns, real + real_ns
    on_the_fly = profile.costs.get(_ON_THE_FLY)
    if on_the_fly is None or unit.kinds[-1] not in profile.dynamic or not unit.data:
        return integer, real
    return integer, integer + _rounding(unit, on_the_fly)


def _loading(unit: Unit, profile: QuantProfile) -> tuple[float, float]:
    """What a product takes to load its constant matrix, in integers and in float."""
    if profile.kernel_costs is None or unit.weight is None or unit.kinds[-1] not in _DENSE:
        return 0.0, 0.0
    return profile.kernel_costs.loading_ns(elements(unit.weight[1]))


def real_product(unit: Unit, profile: QuantProfile) -> float:
    """Nanoseconds of a dense product in float with real weights: nothing is quantized on the fly."""
    touched = {*unit.data.values(), *unit.outputs}
    _, real = (profile.cost(unit.kinds) or _UNKNOWN).times(unit_work(unit), sum(map(elements, touched)))
    return real + _loading(unit, profile)[1]


def _rounding(unit: Unit, cost: OpCost) -> float:
    """What it takes to quantize the rows that a product reads, and to write float."""
    (read,) = unit.data.values()
    rows = elements(read) / sizes(read)[-1]
    return rows * cost.times(sizes(read)[-1], elements(unit.outputs[0]) / rows)[1]


def unit_work(unit: Unit) -> float:
    """Multiply-adds of a matrix operator, else elements of the larger of input and output."""
    node = unit.node
    out = max((elements(value) for value in node.outputs), default=1)
    if node.op_type not in _MATRIX:
        return max([out, *(elements(value) for value in unit.data.values())])
    left, right = node.inputs[0], node.inputs[1]
    assert left is not None
    assert right is not None
    if node.op_type in ("MatMul", "Gemm"):
        shape = sizes(left)
        return out * (shape[-1] if shape else 1)
    if not is_constant(right):
        return out
    weight = constant(right).shape
    if node.op_type == "ConvTranspose":
        return elements(left) * math.prod(weight[1:])
    return out * math.prod(weight[1:])


def conv_shape(node: ir.Node) -> ConvShape | TransposedShape | None:
    """A convolution over images or signals without groups, whose weights are known; else None.

    The row of a dilated one counts as one pixel: it cannot be cut into wider ones.
    """
    kind = "" if node.domain else node.op_type
    weight = node.inputs[1] if kind in ("Conv", "ConvTranspose") else None
    if weight is None or not is_constant(weight) or node.attributes.get_int("group", 1) != 1:
        return None
    filters, channels, *window = constant(weight).shape
    rank, made = len(window), sizes(node.outputs[0])
    if rank not in (1, 2) or len(made) != rank + 2:
        return None
    strides = node.attributes.get_ints("strides", (1,) * rank)
    if kind == "ConvTranspose":
        return TransposedShape(math.prod(made[2:]), math.prod(window) / math.prod(strides), filters, channels)
    height = 1 if rank == 1 else int(window[0])
    width = made[-1] if set(node.attributes.get_ints("dilations", (1,))) == {1} else 1
    return ConvShape(math.prod(made[2:]), width, (height, int(window[-1])), int(strides[-1]), channels, filters)


def conversion(value: ir.Value, profile: QuantProfile) -> float:
    """Nanoseconds from float to integers or back."""
    return (profile.cost(("QuantizeLinear",)) or _UNKNOWN).times(elements(value), 0.0)[0]
