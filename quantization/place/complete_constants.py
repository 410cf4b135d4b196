"""Constants that a model which came quantized holds as float beside integers: weights, biases, terms of a sum.

before:  x:i8 → DequantizeLinear → MatMul (float weight) → QuantizeLinear → y:i8
after:   x:i8 → DequantizeLinear → MatMul (int8 weight → DequantizeLinear) → QuantizeLinear → y:i8

Vendors' kernels take a float bias, and leave an operator whose weight is float to another unit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from convertkit.profile import OpRule, QuantProfile
from convertkit.quantization.calibrate.ranges import Affine
from convertkit.quantization.graph.units import Unit, constant, find_units, is_constant
from convertkit.quantization.place.place import Placement
from convertkit.quantization.place.write import Writer
from convertkit.quantization.weights.integers import quantize_bias

_BIAS_STEPS = 2.0**30
"""A bias that is larger in steps of its products stays float: it would be cut off in int32."""


def complete_constants(graph: ir.Graph, profile: QuantProfile, writer: Writer) -> tuple[str, ...]:
    """Write them as integers, in place, where integers are read and written beside them; the names of these."""
    return (*_operands(graph, profile, writer), *_biases(graph, profile, writer))


def stated(node: ir.Node) -> Affine | None:
    """The parameters of one end of a pair, where it has one scale for the whole tensor, and states a zero point."""
    scale, zero_point = (*node.inputs[1:], None)[:2]
    if scale is None or zero_point is None or not (is_constant(scale) and is_constant(zero_point)):
        return None
    if constant(scale).size != 1:
        return None
    return Affine(constant(scale).item(), constant(zero_point).item(), str(constant(zero_point).dtype))


def _operands(graph: ir.Graph, profile: QuantProfile, writer: Writer) -> Iterator[str]:
    """Weights with the biases beside them, and other operands."""
    for unit in find_units(graph, profile):
        held = [*unit.constants.values(), *([] if unit.weight is None else [unit.weight[1]])]
        values = _between(unit) if held else None
        if values is not None:
            if unit.weight is not None and unit.bias is not None and profile.bias == "int32":
                held += [value for value in (unit.bias[0].inputs[unit.bias[1]],) if value is not None]
            yield from [str(value.name) for value in held]
            writer.integer_unit(unit, Placement(frozenset({unit}), values, {}, ()), None)


def _between(unit: Unit) -> dict[ir.Value, Affine] | None:
    """The parameters of what a unit reads and writes; None where something of it has none."""
    found = {}
    for value in unit.data.values():
        maker = value.producer()
        found[value] = None if maker is None or maker.op_type != "DequantizeLinear" else stated(maker)
    for value in unit.outputs:
        users = [use.node for use in value.uses()]
        quantizes = bool(users) and all(user.op_type == "QuantizeLinear" for user in users)
        found[value] = stated(users[0]) if quantizes else None
    known = {value: each for value, each in found.items() if each is not None}
    return known if len(known) == len(found) else None


def _biases(graph: ir.Graph, profile: QuantProfile, writer: Writer) -> Iterator[str]:
    """Those beside weights that came as integers."""
    for node in tuple(graph) if profile.bias == "int32" else ():
        rule = None if node.domain else profile.rule((node.op_type,))
        if rule is None or rule.bias is None or len(node.inputs) <= rule.bias:
            continue
        bias, scales = node.inputs[rule.bias], _product_scales(node, rule)
        if bias is None or scales is None or not is_constant(bias):
            continue
        array, name = constant(bias), str(bias.name)
        if (np.abs(array) > _BIAS_STEPS * scales[0] * scales[1]).any():
            continue
        integers, steps = quantize_bias(array, *scales, "int32")
        axis = 0 if steps.size > 1 else None
        node.replace_input_with(rule.bias, writer.dequantized(name, integers, steps, axis, node, zero=False))
        yield name


def _product_scales(node: ir.Node, rule: OpRule) -> tuple[float, np.ndarray] | None:
    """The scale of the activation that a weighted operator reads, and those of its weight."""
    makers = [None if value is None else value.producer() for value in node.inputs]
    weight = next((makers[index] for index in rule.weight_axis if index < len(makers)), None)
    data = makers[0]
    if any(each is None or each.op_type != "DequantizeLinear" for each in (weight, data)):
        return None
    assert weight is not None
    assert data is not None
    given, scale = stated(data), weight.inputs[1]
    if given is None or scale is None or not is_constant(scale) or "block_size" in weight.attributes:
        return None
    return given.scale, constant(scale).reshape(-1)
