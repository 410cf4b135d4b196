"""The operators of a TFLite file, read from the FlatBuffer that is delivered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.artifact import Array
from convertkit.operators import ON_THE_FLY, Operator
from convertkit.targets.tflite.loops import turns

TYPES: dict[int, str] = {
    code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")
}
CODES: dict[int, str] = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
_BITS = {"int4": 4, "int2": 2, "float64": 64, "int64": 64, "uint64": 64, "complex64": 64, "complex128": 128}
_HALVES = {"int16": 16, "uint16": 16, "float16": 16, "bfloat16": 16}
_BYTES = {"int8": 8, "uint8": 8, "bool": 8}
_WEIGHTS = ("int8", "int4", "uint8")
_CONVERSIONS = frozenset({"QUANTIZE", "DEQUANTIZE"})

Shape = tuple[int, ...]


_GATE = "LOGISTIC"


@dataclass(frozen=True, slots=True)
class Placed:
    """An operator with the sizes of what it reads, writes and multiplies by.

    ``reads`` are the shapes of its data, constants left out, ``weight`` is that of its second input, ``perm`` what a
    TRANSPOSE is told, and ``options`` the table of its options in the FlatBuffer, None without one.  ``reader`` is the
    kind of the one operator that reads its first result, empty where several do or none.  ``turns`` is how often it
    runs in a call, None where the file does not say how often its loop does; ``body_turns`` is that of a WHILE's body.
    ``graph`` is the place of its subgraph.  ``gated``: a MUL of a tensor and its own LOGISTIC.
    """

    told: Operator
    reads: tuple[Shape, ...]
    written: tuple[Shape, ...]
    weight: Shape
    perm: Shape
    options: Any
    reader: str = ""
    turns: float | None = 1.0
    body_turns: float | None = 0.0
    graph: int = 0
    gated: bool = False

    @property
    def read_elements(self) -> int:
        """Of all data."""
        return sum(map(math.prod, self.reads))

    @property
    def written_elements(self) -> int:
        """Of all results."""
        return sum(map(math.prod, self.written))


class Tensors:
    """Shapes, types and stored sizes of one subgraph's tensors."""

    def __init__(self, model: object, graph: object) -> None:
        self._model, self._graph = model, graph
        self.made_real: dict[int, str] = {}
        """Tensors that a DEQUANTIZE makes of a constant, once, when the model is loaded; and of which type that is."""

    def shape(self, index: int) -> Shape:
        found: Array = self._graph.Tensors(index).ShapeAsNumpy()  # type: ignore[attr-defined]
        return tuple(int(size) if size >= 0 else 1 for size in found) if hasattr(found, "__len__") else ()

    def dtype(self, index: int) -> str:
        return TYPES[int(self._graph.Tensors(index).Type())]  # type: ignore[attr-defined]

    def name(self, index: int) -> str:
        return bytes(self._graph.Tensors(index).Name() or b"").decode("utf-8", "replace")  # type: ignore[attr-defined]

    def is_quantized(self, index: int) -> bool:
        quantization = self._graph.Tensors(index).Quantization()  # type: ignore[attr-defined]
        return quantization is not None and quantization.ScaleLength() > 0

    def numbers(self, index: int) -> Shape:
        """The elements of a constant int32 tensor."""
        data = self._model.Buffers(self._graph.Tensors(index).Buffer()).DataAsNumpy()  # type: ignore[attr-defined]
        return tuple(np.frombuffer(data.tobytes(), "<i4").tolist()) if hasattr(data, "tobytes") else ()

    def stored_bytes(self, index: int) -> int:
        """Size of a constant, 0 for what is computed."""
        buffer = self._model.Buffers(self._graph.Tensors(index).Buffer())  # type: ignore[attr-defined]
        if buffer.DataLength() == 0 and buffer.Size() <= 1:
            return 0
        return self.size_bytes(index)

    def size_bytes(self, index: int) -> int:
        """Of the tensor, stored or computed."""
        bits = {**_BITS, **_HALVES, **_BYTES}.get(self.dtype(index), 32)
        return (math.prod(self.shape(index)) * bits + 7) // 8


def operators(path: Path) -> tuple[Operator, ...]:
    """Every operator of every subgraph, in the file's order."""
    return operators_of(path.read_bytes())


def operators_of(model: bytes) -> tuple[Operator, ...]:
    """The same of a file's bytes."""
    return tuple(placed.told for placed in _placed(model))


def placed_operators(path: Path) -> tuple[Placed, ...]:
    """The same with sizes; dynamic dimensions count as 1."""
    return _placed(path.read_bytes())


def _placed(data: bytes) -> tuple[Placed, ...]:
    model = schema.Model.GetRootAs(data, 0)
    graphs = [model.Subgraphs(place) for place in range(model.SubgraphsLength())]
    of_graphs = [Tensors(model, graph) for graph in graphs]
    found = []
    every = turns(model, of_graphs)
    for place, (graph, tensors, often) in enumerate(zip(graphs, of_graphs, every, strict=True)):
        placed = [_operator(model, graph.Operators(index), tensors) for index in range(graph.OperatorsLength())]
        found += [
            replace(each, turns=often, body_turns=_of_body(each, every), graph=place)
            for each in _with_readers(placed, graph)
        ]
    return tuple(found)


def _of_body(placed: Placed, every: Sequence[float | None]) -> float | None:
    """How often the body of a WHILE runs in a call; 0 of other operators."""
    if placed.told.kind != "WHILE":
        return 0.0
    options = schema.WhileOptions()
    options.Init(placed.options.Bytes, placed.options.Pos)
    return every[int(options.BodySubgraphIndex())]


def _with_readers(placed: list[Placed], graph: Any) -> list[Placed]:
    readers: dict[int, list[str]] = {int(index): [""] for index in indices(graph.OutputsAsNumpy())}
    for place, each in enumerate(placed):
        for index in indices(graph.Operators(place).InputsAsNumpy()):
            readers.setdefault(index, []).append(each.told.kind)
    first = [indices(graph.Operators(place).OutputsAsNumpy())[:1] for place in range(len(placed))]
    kinds = [readers.get(index[0], []) if index else [] for index in first]
    reads = [set(indices(graph.Operators(place).InputsAsNumpy())) for place in range(len(placed))]
    sigmoids = {made[0]: read for each, made, read in zip(placed, first, reads, strict=True) if each.told.kind == _GATE}
    return [
        replace(
            each,
            reader=own[0] if len(own) == 1 else "",
            gated=each.told.kind == "MUL" and any(sigmoids.get(index, {-1}) <= read for index in read),
        )
        for each, own, read in zip(placed, kinds, reads, strict=True)
    ]


def _operator(model: object, operator: object, tensors: Tensors) -> Placed:
    entry = model.OperatorCodes(operator.OpcodeIndex())  # type: ignore[attr-defined]
    kind = CODES[max(entry.BuiltinCode(), entry.DeprecatedBuiltinCode())]
    inputs = [int(index) for index in indices(operator.InputsAsNumpy()) if index >= 0]  # type: ignore[attr-defined]
    outputs = [int(index) for index in indices(operator.OutputsAsNumpy())]  # type: ignore[attr-defined]
    weights = [index for index in inputs if tensors.stored_bytes(index)]
    data = [index for index in inputs if index not in weights]
    if kind == "DEQUANTIZE" and not data:
        tensors.made_real |= dict.fromkeys(outputs, tensors.dtype(weights[0]))
    told = Operator(
        name=tensors.name(outputs[0]) if outputs else kind,
        kind=kind,
        precision=_precision(kind, data, weights, outputs, tensors),
        weight_bytes=sum(tensors.stored_bytes(index) for index in weights),
        macs=_macs(kind, inputs, outputs, tensors),
    )
    return Placed(
        told,
        tuple(tensors.shape(index) for index in data if index not in tensors.made_real),
        tuple(tensors.shape(index) for index in outputs),
        tensors.shape(inputs[1]) if len(inputs) > 1 else (),
        tensors.numbers(inputs[1]) if kind == "TRANSPOSE" and len(inputs) > 1 else (),
        operator.BuiltinOptions(),  # type: ignore[attr-defined]
    )


def indices(found: object) -> list[int]:
    """Of what a FlatBuffer gives as an array, or as 0 where it is empty."""
    return [int(index) for index in found] if hasattr(found, "__iter__") else []


def _precision(kind: str, data: list[int], weights: list[int], outputs: list[int], tensors: Tensors) -> str:
    """By what goes in and comes out: integers count where they stand for real numbers."""
    kept = {tensors.made_real[index] for index in (*data, *outputs) if index in tensors.made_real}
    if kept:
        return f"{min(kept)} weights"
    flowing = [*data, *outputs]
    real = {tensors.dtype(index) for index in flowing if "float" in tensors.dtype(index)}
    if kind in _CONVERSIONS:
        real = {"float32"}
    stored = {tensors.dtype(index) for index in weights if tensors.is_quantized(index)} & set(_WEIGHTS)
    if real:
        if stored and kind not in _TABLES:
            return ON_THE_FLY
        return f"{min(stored)} weights" if stored else max(real)
    integers = {tensors.dtype(index) for index in flowing if tensors.is_quantized(index)}
    if "int16" in integers:
        return "int16x8"
    return "int8" if integers & {"int8", "uint8"} else ""


_TABLES = frozenset({"GATHER", "EMBEDDING_LOOKUP"})


def _macs(kind: str, inputs: list[int], outputs: list[int], tensors: Tensors) -> int:
    count = _PRODUCTS.get(kind)
    if count is None:
        return 0
    return count([tensors.shape(index) for index in inputs], tensors.shape(outputs[0]))


def _convolution(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][1:])


def _depthwise(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][1:3])


def _volume(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][:4])


def _transposed(inputs: list[Shape], output: Shape) -> int:
    return math.prod(inputs[2]) * math.prod(inputs[1][:3])


def _dense(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * inputs[1][-1]


def _batched(inputs: list[Shape], output: Shape) -> int:
    """Elements of one side times the columns of the result, whichever way round the sides are stored."""
    return math.prod(inputs[0]) * output[-1]


def _recurrent(inputs: list[Shape], output: Shape) -> int:
    """Every matrix once a step; the sequence is (batch, steps, features) or time first, which is the same product."""
    matrices = sum(math.prod(shape) for shape in inputs[1:] if len(shape) == 2)
    return math.prod(inputs[0][:2]) * matrices


_PRODUCTS: Mapping[str, Callable[[list[Shape], Shape], int]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _depthwise,
    "CONV_3D": _volume,
    "TRANSPOSE_CONV": _transposed,
    "FULLY_CONNECTED": _dense,
    "BATCH_MATMUL": _batched,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _recurrent,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _recurrent,
}
