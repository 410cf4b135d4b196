"""What an LSTM, GRU or RNN costs where its activations are float: most of the time of many models that have one.

Its steps are products of a few rows and operators on the state, one after the other; a target with kernels for int8
weights quantizes the rows on the fly where that is faster.  If they cost nothing, a small dense layer behind them would
look like most of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.kernel_costs import SMALL_MATRIX, DenseShape, KernelCosts
from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.graph.sizes import sizes

_FREE = OpCost(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Step:
    """One step, in multiples of the state: what its products write, and what each operator beside them touches."""

    products: tuple[int, ...]
    operators: Mapping[str, tuple[int, ...]]


_STEPS: Mapping[str, _Step] = {
    "LSTM": _Step(
        (4,), {"Add": (4, 1), "Slice": (4, 3, 1, 1, 1, 1), "Sigmoid": (3,), "Tanh": (1, 1), "Mul": (1, 1, 1)}
    ),
    "GRU": _Step(
        (2, 1), {"Add": (2, 1, 1), "Sub": (1,), "Slice": (2, 1, 1, 1), "Sigmoid": (2,), "Tanh": (1,), "Mul": (1, 1)}
    ),
    "RNN": _Step((1,), {"Add": (1,), "Slice": (1,), "Tanh": (1,)}),
}


def recurrent_cost(node: ir.Node, profile: QuantProfile) -> float | None:
    """Nanoseconds of all steps; None of other operators, and where the target does not tell what its kernels cost."""
    kernels, step = profile.kernel_costs, None if node.domain else _STEPS.get(node.op_type)
    if kernels is None or step is None or node.inputs[0] is None or node.inputs[2] is None:
        return None
    read, recurrence = sizes(node.inputs[0]), sizes(node.inputs[2])
    if len(read) != 3 or len(recurrence) != 3:
        return None
    swapped = bool(node.attributes.get_int("layout", 0))
    steps, batch, features = (read[1], read[0], read[2]) if swapped else read
    directions, gates, hidden = recurrence
    products = (3,) if node.attributes.get_int("linear_before_reset", 0) else step.products
    inner = sum(_product(DenseShape(batch, hidden, part * hidden), profile, kernels) for part in products)
    beside = sum(
        (profile.cost((kind,)) or _FREE).times(part * hidden * batch, 0.0)[1]
        for kind, parts in step.operators.items()
        for part in parts
    )
    return directions * (
        _product(DenseShape(steps * batch, features, gates), profile, kernels) + steps * (inner + beside)
    )


def _product(shape: DenseShape, profile: QuantProfile, kernels: KernelCosts) -> float:
    """Of rows with a constant matrix; its weights are int8 where the profile stores them so and that is faster."""
    stored = profile.recurrent and bool(profile.dynamic)
    read = shape.pixels * shape.channels
    if shape.weights <= SMALL_MATRIX:
        return kernels.times(shape)[1] - (kernels.gain_between_floats(shape, read) if stored else 0.0)
    gemm, rounding = profile.cost(("Gemm",)) or _FREE, profile.cost(("DynamicQuantizeLinear",)) or _FREE
    integer, real = gemm.times(float(shape.pixels * shape.weights), float(read + shape.pixels * shape.filters))
    loading = kernels.loading_ns(shape.weights)
    if not stored:
        return real + loading[1]
    return integer + loading[0] + shape.pixels * rounding.times(shape.channels, shape.filters)[1]
