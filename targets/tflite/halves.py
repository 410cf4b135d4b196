"""Weights that arrive as float16 leave as float16, whatever the passes made of them in between.

Passes and handlers see float32 constants: kernels need some of them as constants, and a weight that
was transposed, split or joined is still made of halves.  What every runtime takes is a DEQUANTIZE of
a float16 constant, which it computes once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from convertkit.targets.tflite.graph import Operation, Program, Subgraph
from convertkit.targets.tflite.tensor import Tensor

_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"})
_LEAST_ELEMENTS = 64
"""Below this a DEQUANTIZE costs more than it saves."""


def has_halves(model: ir.Model) -> bool:
    """Whether any stored tensor of the model is float16."""
    return any(
        value.dtype == ir.DataType.FLOAT16
        for graph in (model.graph, *model.graph.subgraphs())
        for value in graph.initializers.values()
    )


def store_halves(program: Program) -> None:
    """Store float32 constants that are exactly halves as such, in place."""
    for subgraph in program.subgraphs:
        _store(subgraph)


def _store(subgraph: Subgraph) -> None:
    widened: list[Operation] = []
    wide: dict[Tensor, Tensor] = {}
    bound = {tensor for operation in subgraph.operations for tensor in _bound(operation)}
    for operation in subgraph.operations:
        for tensor in operation.inputs:
            if tensor is None or tensor in wide or tensor in subgraph.outputs or tensor in bound:
                continue
            if (half := _as_half(tensor)) is not None:
                wide[tensor] = replace(tensor, constant=None)
                widened.append(Operation("DEQUANTIZE", (half,), (wide[tensor],), {}))
    for operation in subgraph.operations:
        operation.inputs = tuple(None if tensor is None else wide.get(tensor, tensor) for tensor in operation.inputs)
    subgraph.operations = widened + subgraph.operations


def _bound(operation: Operation) -> Iterator[Tensor]:
    """Biases that have to stay as they are: beside integer weights, XNNPACK of LiteRT 2.3 takes no other ones."""
    weight = next((each for each in operation.inputs[1:2] if each is not None), None)
    if operation.code in _WEIGHTED and weight is not None and _as_half(weight) is None:
        yield from (each for each in operation.inputs[2:] if each is not None and each.constant is not None)


def _as_half(tensor: Tensor) -> Tensor | None:
    value = tensor.constant
    if value is None or tensor.dtype != "float32" or value.size < _LEAST_ELEMENTS:
        return None
    with np.errstate(over="ignore"):
        half = value.astype(np.float16)
    if not np.array_equal(half.astype(np.float32), value):
        return None
    return Tensor(f"{tensor.name}_half", tensor.shape, "float16", half)
