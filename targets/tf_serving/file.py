"""A ``.tflite`` file of ours as plain values: graphs of operators with their options, constants as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.artifact import Array
from convertkit.errors import Unsupported

_TYPES = {code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")}
_CODES = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
_PLAIN = (
    "float32",
    "float64",
    "float16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)


_BORDERS = frozenset({"QUANTIZE", "DEQUANTIZE", "CAST"})
"""Operators that read and write quantized tensors in TensorFlow, too: CAST takes the integers as they are."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What the integers of a tensor stand for: ``(integer - point) * scale``, one for all or one along ``axis``."""

    scales: tuple[float, ...]
    points: tuple[int, ...]
    axis: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """``shape`` has -1 for sizes that are known at run time only; ``value`` is None for what is computed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    value: Array | None
    steps: Steps | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """Tensors by their index in the graph, -1 for one that is left out; options by the schema's names."""

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Graph:
    """A subgraph, its operators in the order in which they run."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(model: bytes) -> tuple[Graph, ...]:
    """All graphs, the main one first; ``Unsupported`` where an operator computes with quantized tensors.

    TensorFlow's kernels do not: such tensors stay between inputs, outputs, QUANTIZE and DEQUANTIZE.
    """
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    codes = [_CODES[max(each.builtinCode, each.deprecatedBuiltinCode)] for each in root.operatorCodes]
    graphs = tuple(
        Graph(
            tuple(_tensor(root, each) for each in graph.tensors),
            tuple(_operator(each, codes) for each in _listed(graph.operators)),
            _indices(graph.inputs),
            _indices(graph.outputs),
        )
        for graph in root.subgraphs
    )
    for graph in graphs:
        check_steps(graph)
    return graphs


def check_steps(graph: Graph) -> None:
    """Raise ``Unsupported`` for an operator that would compute with integers that stand for reals."""
    for operator in graph.operators:
        used = [graph.tensors[index] for index in (*operator.inputs, *operator.outputs) if index >= 0]
        quantized = [tensor for tensor in used if tensor.steps is not None]
        if quantized and operator.code not in _BORDERS:
            raise _computed(quantized[0])
        if (
            operator.code == "QUANTIZE"
            and not used[0].dtype.startswith("float")
            and _scales(used[0]) != _scales(used[1])
        ):
            raise _computed(used[1])


def _scales(tensor: Tensor) -> tuple[float, ...]:
    return (1.0,) if tensor.steps is None else tensor.steps.scales


def _computed(tensor: Tensor) -> Unsupported:
    return Unsupported("it is quantized, and a SavedModel computes in float", subject=f"tensor {tensor.name}")


def _tensor(root: Any, tensor: Any) -> Tensor:
    name, dtype = bytes(tensor.name).decode(), _TYPES[tensor.type]
    steps = _steps(tensor.quantization)
    if tensor.sparsity is not None or dtype not in _PLAIN:
        raise Unsupported(f"a SavedModel has no such {dtype} tensors", subject=f"tensor {name}")
    static = _indices(tensor.shape)
    shape = _indices(tensor.shapeSignature) if tensor.shapeSignature is not None else static
    data = root.buffers[tensor.buffer].data
    if data is None or not len(data) or tensor.isVariable:
        empty = 0 in static and tensor.buffer != 0
        return Tensor(name, dtype, shape, np.zeros(static, dtype) if empty else None, steps)
    return Tensor(name, dtype, static, np.asarray(data, np.uint8).view(np.dtype(dtype)).reshape(static), steps)


def _steps(quantization: Any) -> Steps | None:
    """None where integers are the numbers that they stand for, as pixels are that DEQUANTIZE makes floats of."""
    if quantization is None or not len(_listed(quantization.scale)):
        return None
    scales = tuple(float(scale) for scale in quantization.scale)
    points = _indices(quantization.zeroPoint) or (0,) * len(scales)
    plain = (points, scales) == ((0,), (1.0,))
    return None if plain else Steps(scales, points, int(quantization.quantizedDimension))


def _operator(operator: Any, codes: list[str]) -> Operator:
    told = operator.builtinOptions if operator.builtinOptions is not None else operator.builtinOptions2
    options = {} if told is None else dict(vars(told))
    return Operator(codes[operator.opcodeIndex], _indices(operator.inputs), _indices(operator.outputs), options)


def _indices(values: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in _listed(values))


def _listed(values: Any) -> Any:
    return () if values is None else values
