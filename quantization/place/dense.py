"""What small dense layers cost: a call and whole tiles, not products.

Of a layer of 16 × 16 nearly all is the call, which takes four times as long in integers where the processor sets up
matrix tiles for it.  A layer of many weights is priced by its products, as ``costs`` say.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.kernel_costs import SMALL_MATRIX, DenseShape, KernelCosts
from convertkit.quantization.graph.sizes import elements
from convertkit.quantization.graph.units import Unit, constant, is_constant
from convertkit.quantization.weights.weight_only import LEAST_ALONE


def dense_shape(node: ir.Node) -> DenseShape | None:
    """A product of rows with a small constant matrix, else None."""
    weight = node.inputs[1] if node.op_type in ("Gemm", "MatMul") and not node.domain else None
    if weight is None or not is_constant(weight) or node.attributes.get_int("transA", False):
        return None
    sizes = constant(weight).shape
    if len(sizes) != 2 or sizes[0] * sizes[1] > SMALL_MATRIX or 0 in sizes:
        return None
    deep, wide = reversed(sizes) if node.attributes.get_int("transB", False) else sizes
    return DenseShape(max(elements(node.outputs[0]) // int(wide), 1), int(deep), int(wide))


def dense_cost(unit: Unit, shape: DenseShape, kernel_costs: KernelCosts, *, on_the_fly: bool) -> tuple[float, float]:
    """Nanoseconds in integers and between floats, where ``on_the_fly`` activations may be quantized in the kernel."""
    integer, real = kernel_costs.times(shape)
    read = shape.pixels * shape.channels
    if on_the_fly and unit.data and shape.weights >= LEAST_ALONE:
        return integer, real - kernel_costs.gain_between_floats(shape, read)
    return integer, real
