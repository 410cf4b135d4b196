"""Weights as integers behind DequantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.profile import QuantProfile
from convertkit.quantization.weights.blocks import BlockedWeight
from convertkit.quantization.weights.integers import QuantizedWeight

_MOST_INT4 = 8


class WeightWriter:
    """Inserts stored constants into one graph, under names that are not taken."""

    def __init__(self, graph: ir.Graph, profile: QuantProfile) -> None:
        self.graph = graph
        self.profile = profile
        self._names = {str(node.name) for node in graph} | {str(value.name) for node in graph for value in node.outputs}

    def weight(self, source: ir.Value, weight: QuantizedWeight | BlockedWeight, before: ir.Node) -> ir.Value:
        """``integer initializer → DequantizeLinear`` in front of a node."""
        name = str(source.name)
        integers = weight.integers
        # Where others are int4, some weights are int8: see ``weight_only.widened``.
        if self.profile.weight == "int4" and np.abs(integers).max(initial=0) <= _MOST_INT4:
            import ml_dtypes

            integers = integers.astype(ml_dtypes.int4)
        block = weight.block if isinstance(weight, BlockedWeight) else 0
        return self.dequantized(name, integers, weight.scales, weight.axis, before, block=block)

    def dequantized(
        self,
        name: str,
        integers: Array,
        scales: Array,
        axis: int | None,
        before: ir.Node,
        *,
        zero: bool = True,
        zero_point: int = 0,
        block: int = 0,
    ) -> ir.Value:
        """``integers`` behind a DequantizeLinear in front of a node; ``zero`` says whether it has a zero point."""
        scales = scales if axis is not None else scales.reshape(())
        inputs = [
            add_constant(self.graph, f"{name}_quantized", integers),
            add_constant(self.graph, f"{name}_scale", scales),
        ]
        if zero:
            zeros = np.full(scales.shape, zero_point).astype(integers.dtype)
            inputs.append(add_constant(self.graph, f"{name}_zero_point", zeros))
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
        attributes += [ir.AttrInt64("block_size", block)] if block else []
        node = ir.Node(
            "", "DequantizeLinear", inputs, attributes, num_outputs=1, name=self.unique(f"{name}_dequantize")
        )
        real = node.outputs[0]
        real.name, real.shape, real.type = (
            self.unique(f"{name}_dequantized"),
            ir.Shape(integers.shape),
            ir.TensorType(ir.DataType.FLOAT),
        )
        self.graph.insert_before(before, node)
        return real

    def unique(self, name: str) -> str:
        """``name``, with a number behind it where a node or a value has it already."""
        number, unique = 0, name
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique
