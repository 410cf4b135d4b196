"""What every builder method shares: emitting operations, constants, names and quantization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast, get_args

import ml_dtypes
import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.targets.tflite.graph import Operation, Option, Program, Subgraph
from convertkit.targets.tflite.tensor import DYNAMIC, DType, QuantParams, Tensor

if TYPE_CHECKING:
    from convertkit.artifact import Array

NONE, RELU, RELU_N1_TO_1, RELU6 = 0, 1, 2, 3
"""Values of the schema's ``ActivationFunctionType``."""

_ACTIVATION_CODES = {RELU: "RELU", RELU_N1_TO_1: "RELU_N1_TO_1", RELU6: "RELU6"}
_FUSED = "fused_activation_function"


class BuilderCore:
    """Appends operations to one subgraph; the operator methods are in the classes derived from this.

    ``results`` says how the current node's outputs must be quantized (None: they are not); it is
    set by the driver, and methods of operators whose kernels requantize take it from there.
    """

    def __init__(self, program: Program, subgraph: Subgraph) -> None:
        self.program = program
        self.subgraph = subgraph
        self.origin = ""
        self.prefix = subgraph.name
        self.results: tuple[QuantParams | None, ...] = ()
        self._producers: dict[Tensor, Operation] = {}
        self._once: dict[tuple[object, ...], Tensor] = {}

    # --- constants -------------------------------------------------------------------------------

    def constant(self, value: Array, quantization: QuantParams | None = None, dtype: DType | None = None) -> Tensor:
        """A constant tensor; views are kept as views.  ``dtype`` only for int4, which NumPy lacks."""
        kind: DType = dtype or dtype_of(value)
        return Tensor(f"{self.prefix}/const", tuple(value.shape), kind, value, quantization)

    def ints(self, values: Sequence[int]) -> Tensor:
        """A vector of int32, as most kernels want their axes, sizes and paddings."""
        return self.constant(np.array(values, np.int32))

    def scalar(self, value: float, like: Tensor) -> Tensor:
        """A constant of rank 0 with the element type of ``like``, which is not quantized."""
        return self.constant(np.array(value, numpy_dtype(like.dtype)))

    # --- emitting --------------------------------------------------------------------------------

    def emit(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        shape: tuple[int, ...],
        dtype: DType,
        options: Mapping[str, Option] | None = None,
        quantization: QuantParams | None = None,
    ) -> Tensor:
        """Append an operation with one output."""
        return self.emit_many(code, inputs, [(shape, dtype)], options, quantization)[0]

    def emit_many(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[tuple[tuple[int, ...], DType]],
        options: Mapping[str, Option] | None = None,
        quantization: QuantParams | None = None,
    ) -> tuple[Tensor, ...]:
        """Append an operation; all its outputs get the same ``quantization``."""
        name = f"{self.prefix}/{code.lower()}"
        results = tuple(Tensor(name, shape, dtype, None, quantization) for shape, dtype in outputs)
        operation = Operation(code, tuple(inputs), results, dict(options or {}), self.origin)
        self.subgraph.operations.append(operation)
        for result in results:
            self._producers[result] = operation
        return results

    def once(self, key: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        """What ``make`` emits, which says the same for the same ``key``: emitted for the first node that asks."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def result_of(self, *inputs: Tensor, place: int = 0) -> QuantParams | None:
        """How an arithmetic kernel's output is quantized: as the node's output, where its inputs are integers."""
        if not any(tensor.is_quantized for tensor in inputs):
            return None
        wanted = self.results[place] if place < len(self.results) else None
        if wanted is None:
            raise Unsupported("its inputs are quantized and its output is not")
        return wanted

    def activated(self, x: Tensor, activation: int) -> Tensor:
        """``x`` behind a fused activation where the operation that made it has one free, else behind its own."""
        if activation == NONE:
            return x
        operation = self._producers.get(x)
        while operation is not None and operation.code == "RESHAPE" and self._used_once(operation.inputs[0]):
            operation = self._producers.get(operation.inputs[0]) if operation.inputs[0] is not None else None
        if operation is not None and operation.options.get(_FUSED) == NONE:
            operation.options = {**operation.options, _FUSED: activation}
            return x
        return self.emit(_ACTIVATION_CODES[activation], (x,), x.shape, x.dtype, quantization=x.quantization)

    def _used_once(self, x: Tensor | None) -> bool:
        uses = [operation for operation in self.subgraph.operations if x in operation.inputs]
        return len(uses) == 1 and x not in self.program.names

    def dequantize(self, x: Tensor) -> Tensor:
        """Quantized integers, or float16, to float32."""
        return self.emit("DEQUANTIZE", (x,), x.shape, "float32")

    def stored_weight(self, x: Tensor) -> Tensor | None:
        """The constant behind a DEQUANTIZE: integers or float16 that runtimes widen when they load the model."""
        operation = self._producers.get(x)
        if operation is None or operation.code != "DEQUANTIZE" or operation.inputs[0] is None:
            return None
        return operation.inputs[0] if operation.inputs[0].constant is not None else None

    def producer(self, x: Tensor) -> Operation | None:
        """The operation that computes ``x`` in this subgraph."""
        return self._producers.get(x)


_NUMPY_TYPES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "int4": np.dtype(ml_dtypes.int4), "string": np.dtype(object)}


def numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    """NumPy's type (ml_dtypes for the two that it lacks)."""
    return _NUMPY_TYPES.get(dtype) or np.dtype(dtype)


def dtype_of(value: Array) -> DType:
    """The element type of an array; ``Unsupported`` for one that TFLite has no tensors of."""
    name = value.dtype.name
    if value.dtype.kind in "OUS":
        return "string"
    for known in get_args(DType):
        if known == name:
            return cast(DType, known)
    raise Unsupported(f"TFLite has no tensors of {name}")


def static(shape: Sequence[int], what: str) -> tuple[int, ...]:
    """``shape``, or a refusal where a size is known at run time only."""
    if DYNAMIC in shape:
        raise UnknownSize(f"{what} needs sizes that are only known at run time")
    return tuple(shape)
