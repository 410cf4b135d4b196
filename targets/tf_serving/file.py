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


@dataclass(frozen=True, slots=True)
class Tensor:
    """``shape`` has -1 for sizes that are known at run time only; ``value`` is None for what is computed."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    value: Array | None


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
    """All graphs, the main one first; ``Unsupported`` for quantized tensors, which TensorFlow's kernels do not take."""
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    codes = [_CODES[max(each.builtinCode, each.deprecatedBuiltinCode)] for each in root.operatorCodes]
    return tuple(
        Graph(
            tuple(_tensor(root, each) for each in graph.tensors),
            tuple(_operator(each, codes) for each in _listed(graph.operators)),
            _indices(graph.inputs),
            _indices(graph.outputs),
        )
        for graph in root.subgraphs
    )


def _tensor(root: Any, tensor: Any) -> Tensor:
    name, dtype = bytes(tensor.name).decode(), _TYPES[tensor.type]
    quantization = tensor.quantization
    if quantization is not None and not _is_plain(_indices(quantization.zeroPoint), _listed(quantization.scale)):
        raise Unsupported("it is quantized, and a SavedModel computes in float", subject=f"tensor {name}")
    if tensor.sparsity is not None or dtype not in _PLAIN:
        raise Unsupported(f"a SavedModel has no such {dtype} tensors", subject=f"tensor {name}")
    static = _indices(tensor.shape)
    shape = _indices(tensor.shapeSignature) if tensor.shapeSignature is not None else static
    data = root.buffers[tensor.buffer].data
    if data is None or not len(data) or tensor.isVariable:
        empty = 0 in static and tensor.buffer != 0
        return Tensor(name, dtype, shape, np.zeros(static, dtype) if empty else None)
    return Tensor(name, dtype, static, np.asarray(data, np.uint8).view(np.dtype(dtype)).reshape(static))


def _is_plain(points: tuple[int, ...], scales: Any) -> bool:
    """Whether integers are the numbers that they stand for: pixels that DEQUANTIZE makes floats of."""
    return len(scales) == 0 or (points == (0,) and [float(scale) for scale in scales] == [1.0])


def _operator(operator: Any, codes: list[str]) -> Operator:
    told = operator.builtinOptions if operator.builtinOptions is not None else operator.builtinOptions2
    options = {} if told is None else dict(vars(told))
    return Operator(codes[operator.opcodeIndex], _indices(operator.inputs), _indices(operator.outputs), options)


def _indices(values: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in _listed(values))


def _listed(values: Any) -> Any:
    return () if values is None else values
