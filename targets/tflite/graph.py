"""The TFLite model in memory: subgraphs of operations, before it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from convertkit.kernel_costs import KernelCosts
from convertkit.targets.tflite.costs.loops import Loops, loops
from convertkit.targets.tflite.tensor import Tensor

Option = bool | int | float | tuple[int, ...]

_ROUGH = {
    "int8": frozenset({"AVERAGE_POOL_2D", "BATCH_MATMUL", "LEAKY_RELU"}),
    "int16": frozenset({
        "AVERAGE_POOL_2D", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MEAN", "SOFTMAX", "SUM",
        "TRANSPOSE_CONV",
    }),
}  # fmt: skip
"""Operators by the type of their integers: see :attr:`Program.rounds_its_own_way`."""


@dataclass(slots=True, eq=False)
class Operation:
    """One TFLite operator; ``options`` are the fields of its schema table in snake case.

    ``origin`` is the ONNX node that it comes from, with the line of the user's model where known.
    ``intermediates`` only say how a fused kernel rounds inside.
    """

    code: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    options: Mapping[str, Option]
    origin: str = ""
    intermediates: tuple[Tensor, ...] = ()


@dataclass(slots=True)
class Subgraph:
    """A function: the main one, or the body of an IF or WHILE."""

    name: str
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def drop_unused(self) -> None:
        """Remove operations whose results nothing uses, such as a DEQUANTIZE whose constant was transposed."""
        used: set[Tensor] = set(self.outputs)
        kept: list[Operation] = []
        for operation in reversed(self.operations):
            if used.intersection(operation.outputs):
                kept.append(operation)
                used.update(tensor for tensor in operation.inputs if tensor is not None)
        self.operations = kept[::-1]


@dataclass(slots=True)
class Program:
    """All subgraphs (the main one first) and the final names of tensors where they were changed.

    ``portable``: made for other runtimes, too, so that no form is chosen that only pays in LiteRT's fast kernels.
    ``kernel_costs``: what convolutions cost on the devices that it is made for; without them none changes its form.
    """

    subgraphs: list[Subgraph] = field(default_factory=list)
    names: dict[Tensor, str] = field(default_factory=dict)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By name, tensors whose axes are in another order than the source's."""
    portable: bool = False
    kernel_costs: KernelCosts | None = None
    loops: Loops = field(default_factory=lambda: loops(()))
    """What the steps of recurrent layers cost there."""
    sized_late: bool = False
    """Whether a branch or a loop decides about the size of a value."""
    recurrences: int = 1
    """How many recurrent layers the model has, each direction counting."""

    def name_of(self, tensor: Tensor) -> str:
        """The name that goes into the file."""
        return self.names.get(tensor, tensor.name)

    @property
    def arithmetic(self) -> Literal["float", "integer", "dynamic"]:
        """What the numbers are computed in: integers as quantized anywhere, or on the fly by the runtime."""
        kinds = {_arithmetic(operation) for subgraph in self.subgraphs for operation in subgraph.operations}
        return "dynamic" if "dynamic" in kinds else "integer" if "integer" in kinds else "float"

    @property
    def rounds_its_own_way(self) -> bool:
        """Whether an integer kernel gives neighbours of the integers that the graph says, more often than at ties.

        AVERAGE_POOL_2D rounds ties away from zero, where ONNX rounds them to even; LEAKY_RELU of bytes holds both of
        its factors in 256ths; BATCH_MATMUL rounds a sum twice, and so do PRELU of a dynamic size and TRANSPOSE_CONV
        where the size of its result is computed, which XNNPACK does not take; kernels of int16 have factors of 16 bits.
        Source: LiteRT, reference_integer_ops::AveragePool, gemmlowp's RoundingDivideByPOT and
        MultiplyByQuantizedMultiplier of int64; XNNPACK, qs8-vlrelu.
        """
        operations = (operation for subgraph in self.subgraphs for operation in subgraph.operations)
        return any(_is_rough(each) for each in operations)

    def new_subgraph(self, name: str) -> int:
        """Append an empty subgraph and return its index."""
        self.subgraphs.append(Subgraph(name))
        return len(self.subgraphs) - 1


def _is_rough(operation: Operation) -> bool:
    result, sizes = operation.outputs[0], operation.inputs[0] if operation.inputs else None
    is_computed = operation.code == "TRANSPOSE_CONV" and sizes is not None and sizes.constant is None
    is_known = operation.code in _ROUGH.get(result.dtype, ())
    is_left = is_computed or (operation.code == "PRELU" and not result.is_static)
    return (is_known or is_left) and _arithmetic(operation) == "integer"


def _arithmetic(operation: Operation) -> Literal["float", "integer", "dynamic"]:
    tensors = [tensor for tensor in operation.inputs if tensor is not None]
    if operation.code == "DEQUANTIZE" or not any(tensor.is_quantized for tensor in tensors):
        return "integer" if operation.code == "QUANTIZE" else "float"
    return "dynamic" if any(tensor.dtype == "float32" for tensor in tensors) else "integer"
