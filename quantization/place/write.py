"""Writing a placement into the graph as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, bypass
from convertkit.profile import KEEP_FLOAT, QuantProfile
from convertkit.quantization.calibrate.ranges import Affine, affine
from convertkit.quantization.graph.units import Unit, constant
from convertkit.quantization.place.float_outputs import keep_real
from convertkit.quantization.place.place import Placement
from convertkit.quantization.place.ties import tie_free_term, tie_free_weights
from convertkit.quantization.weights.integers import (
    QuantizedWeight,
    least_weight_scales,
    quantize_bias,
    quantize_weight,
    weight_scales,
)
from convertkit.quantization.weights.neighbours import is_bounded, least_scales
from convertkit.quantization.weights.write import WeightWriter

Tuned = Mapping[str, QuantizedWeight]
"""Integers that a pass chose for a unit's weight, by the unit's name."""


def write(
    model: ir.Model, units: tuple[Unit, ...], placement: Placement, profile: QuantProfile, tuned: Tuned | None = None
) -> None:
    """Insert the pairs in place.  Inputs and outputs keep their names and stay float32."""
    writer = Writer(model.graph, profile)
    for unit in units:
        if unit in placement.integer:
            writer.integer_unit(unit, placement, (tuned or {}).get(unit.name))
        elif unit.rule is not None and _looks_integer(unit, placement):
            unit.node.metadata_props[KEEP_FLOAT] = "integers would be slower or less exact here"
    integer_nodes = {node for unit in placement.integer for node in unit.nodes}
    made_by_integer = {value for unit in placement.integer for value in unit.outputs}
    for value, parameters in placement.values.items():
        writer.activation(value, parameters, integer_nodes, everywhere=value in made_by_integer)
    integer = [unit for unit in units if unit in placement.integer]
    real = keep_real(model.graph, integer, profile)
    for unit in integer:
        if unit not in real:
            drop_clamp(unit, placement)


def drop_clamp(unit: Unit, placement: Placement) -> None:
    """Remove the unit's Relu or Clip where the output's integers saturate at its limits anyway."""
    if unit.clamp is None:
        return
    parameters = placement.values[unit.outputs[0]]
    kind, (low, high) = np.iinfo(parameters.dtype), unit.output_limits()
    below = np.rint(low / parameters.scale) + parameters.zero_point <= kind.min
    above = np.rint(high / parameters.scale) + parameters.zero_point >= kind.max
    source = unit.clamp.inputs[0]
    if below and above and source is not None:
        bypass(unit.clamp, source)


def _looks_integer(unit: Unit, placement: Placement) -> bool:
    values = (*unit.data.values(), *unit.outputs)
    return bool(unit.data) and all(value in placement.values for value in values)


class Writer(WeightWriter):
    """Inserts quantization nodes into one graph."""

    def integer_unit(self, unit: Unit, placement: Placement, tuned: QuantizedWeight | None) -> None:
        """Quantize the unit's constants and the inputs that it alone wants at other parameters."""
        for index in unit.data:
            if (unit, index) in placement.edges:
                value = _value(unit.node, index)
                pair = self.pair(value, placement.edges[unit, index], before=unit.node)
                unit.node.replace_input_with(index, pair)
        if unit.weight is not None and unit.rule is not None:
            self._weight_and_bias(unit, placement, tuned)
        for index, value in unit.constants.items():
            self._constant(unit, index, value, placement)

    def activation(
        self, value: ir.Value, parameters: Affine, integer_nodes: Collection[ir.Node], *, everywhere: bool
    ) -> None:
        """Quantize a value where it is made.

        ``everywhere``: all readers and the graph's output see the integers; else, where a float
        operator or an input made it, only the integer units do.
        """
        uses = [use for use in value.uses() if everywhere or use.node in integer_nodes]
        is_output = everywhere and value.is_graph_output()
        name = str(value.name)
        if is_output:
            value.name = f"{name}_float"
        pair = self.pair(value, parameters, before=None)
        for use in uses:
            use.node.replace_input_with(use.idx, pair)
        if is_output:
            for place, output in enumerate(self.graph.outputs):
                if output is value:
                    self.graph.outputs[place] = pair
            pair.name = name

    def pair(self, value: ir.Value, parameters: Affine, before: ir.Node | None) -> ir.Value:
        """``value → QuantizeLinear → DequantizeLinear``; behind its producer, or before a node."""
        name = str(value.name)
        scale = add_constant(self.graph, f"{name}_scale", np.array(parameters.scale, np.float32))
        zero = add_constant(self.graph, f"{name}_zero_point", np.array(parameters.zero_point, parameters.dtype))
        quantize = ir.Node(
            "", "QuantizeLinear", [value, scale, zero], num_outputs=1, name=self.unique(f"{name}_quantize")
        )
        quantized = quantize.outputs[0]
        quantized.name, quantized.shape = self.unique(f"{name}_quantized"), value.shape
        quantized.type = ir.TensorType(ir.DataType.from_numpy(np.dtype(parameters.dtype)))
        dequantize = ir.Node(
            "", "DequantizeLinear", [quantized, scale, zero], num_outputs=1, name=self.unique(f"{name}_dequantize")
        )
        real = dequantize.outputs[0]
        real.name, real.shape, real.type = (
            self.unique(f"{name}_dequantized"),
            value.shape,
            ir.TensorType(ir.DataType.FLOAT),
        )
        self._insert((quantize, dequantize), value.producer(), before)
        return real

    def _weight_and_bias(self, unit: Unit, placement: Placement, tuned: QuantizedWeight | None) -> None:
        assert unit.weight is not None
        assert unit.rule is not None
        index, source = unit.weight
        scale = input_scale(unit, placement)
        bias = None if unit.bias is None else constant(_value(*unit.bias))
        weight = tuned or default_weight(unit, self.profile, scale)
        if self.profile.tie_free:
            output = placement.values[unit.outputs[0]].scale
            weight = replace(weight, scales=tie_free_weights(weight.scales, scale, output))
        unit.node.replace_input_with(index, self.weight(source, weight, unit.node))
        if unit.bias is None or bias is None or self.profile.bias == "float32":
            return
        node, place = unit.bias
        # The scale of an int64 bias is float32 too; ONNX has no int64 DequantizeLinear, int32 holds any sane bias.
        integers, scales = quantize_bias(bias, scale, weight.scales, "int32")
        if bias.ndim > 1 and weight.scales.size == 1:
            scales = scales.flat[0]  # an axis has one row of scales
        axis = 0 if scales.size > 1 else None
        name = str(_value(node, place).name)
        node.replace_input_with(place, self.dequantized(name, integers, scales, axis, node, zero=False))

    def _constant(self, unit: Unit, index: int, value: ir.Value, placement: Placement) -> None:
        array = constant(value)
        if unit.rule is not None and unit.rule.same_scale:
            parameters = placement.values[unit.outputs[0]]
        else:
            span = float(array.min(initial=0.0)), float(array.max(initial=0.0))
            parameters = affine(span, self.profile.activation, self.profile.symmetric)
            if self.profile.tie_free:
                parameters = replace(parameters, scale=_operand_scale(unit, parameters.scale, placement))
        kind = np.iinfo(parameters.dtype)
        steps = np.clip(np.rint(array / parameters.scale) + parameters.zero_point, kind.min, kind.max)
        real = self.dequantized(
            str(value.name),
            steps.astype(parameters.dtype),
            np.array(parameters.scale, np.float32),
            None,
            unit.node,
            zero_point=parameters.zero_point,
        )
        unit.node.replace_input_with(index, real)

    def _insert(self, nodes: tuple[ir.Node, ...], producer: ir.Node | None, before: ir.Node | None) -> None:
        if before is not None:
            self.graph.insert_before(before, nodes)
        elif producer is not None:
            self.graph.insert_after(producer, nodes)
        else:
            self.graph.insert_before(next(iter(self.graph)), nodes)


def default_weight(unit: Unit, profile: QuantProfile, input_scale: float) -> QuantizedWeight:
    """The unit's weight rounded to nearest, with scales that leave room for its bias, and for sums in 16 bits."""
    assert unit.weight is not None
    assert unit.rule is not None
    index, source = unit.weight
    array = constant(source)
    axis = None if unit.rule.per_tensor else unit.rule.weight_axis[index] % array.ndim
    least = None
    if unit.bias is not None and profile.bias == "int32" and not profile.weight_only:
        bias = constant(_value(*unit.bias))
        wanted = least_weight_scales(bias, input_scale)
        count = 1 if axis is None else array.shape[axis]
        least = wanted.reshape(-1, count).max(axis=0) if wanted.size % count == 0 else wanted.max().reshape(1)
    if is_bounded(unit, profile, integer=True):
        bound = least_scales(unit, profile)
        least = bound if least is None else np.maximum(least, bound)
    scales = weight_scales(array, axis, profile.weight_range[1], least)
    return quantize_weight(array, axis, profile.weight_range, scales)


def input_scale(unit: Unit, placement: Placement) -> float:
    """The scale at which the unit reads its first activation."""
    index = min(unit.data)
    parameters = placement.edges.get((unit, index)) or placement.values[unit.data[index]]
    return parameters.scale


def _operand_scale(unit: Unit, scale: float, placement: Placement) -> float:
    """The scale of a constant operand, moved to where kernels agree; see ``ties``."""
    other, result = input_scale(unit, placement), placement.values[unit.outputs[0]].scale
    if unit.node.op_type == "Mul":
        return float(tie_free_weights(np.array([scale]), other, result)[0])
    if unit.node.op_type in ("Add", "Sub"):
        return float(np.float32(tie_free_term(scale, other, result)))
    return scale


def _value(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value
