"""What of a ``.tflite`` file decides how TensorFlow Lite Micro runs it: tensors, operators, the order of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.targets.tflite.compile import METADATA
from convertkit.targets.tflite.origins import origins_of

_TYPES: Mapping[int, str] = {
    code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")
}
_CODES: Mapping[int, str] = {
    code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")
}
_BITS: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    "int4": 4,
    "int2": 2,
}

OFFLINE_PLAN = "OfflineMemoryAllocation"
"""The metadata of a plan that the runtime keeps."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor: ``constant`` where the file holds its data, ``channels`` the number of its scales (0 without any)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    constant: bool
    variable: bool
    channels: int
    scale: float
    zero_point: int
    is_dynamic: bool

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements, two 4-bit ones in a byte."""
        return math.ceil(math.prod(self.shape) * _BITS.get(self.dtype, 64) / 8)


@dataclass(frozen=True, slots=True)
class FileOperator:
    """An operator; tensors by their index in its graph, -1 where one is left out.

    ``subgraphs`` are those it calls.  ``turned`` says of a BATCH_MATMUL which matrices its kernel transposes.
    """

    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    subgraphs: tuple[int, ...] = ()
    turned: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class FileGraph:
    """A subgraph, its operators in the order in which they run.

    ``plan`` says where in the arena the file puts tensors, in bytes and -1 for what it leaves open; empty without one.
    """

    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    plan: tuple[int, ...] = ()

    def tensor(self, index: int) -> FileTensor | None:
        """The tensor at ``index``; None for one that is left out."""
        return self.tensors[index] if index >= 0 else None

    def offset(self, index: int) -> int | None:
        """Where the file puts the tensor at ``index``; None where the runtime does."""
        return self.plan[index] if index < len(self.plan) and self.plan[index] >= 0 else None


def read_origins(model: bytes) -> Mapping[str, str]:
    """Where in the source each tensor comes from, by its name, as the ``tflite`` target has noted it."""
    return origins_of(schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0)), METADATA)


def read_graphs(model: bytes) -> tuple[FileGraph, ...]:
    """All subgraphs, the main one first."""
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    codes = [_code(each) for each in root.operatorCodes]
    plan, graphs, first = _plan(root), list[FileGraph](), 0
    for each in root.subgraphs:
        behind = first + len(_listed(each.tensors))
        graphs.append(_graph(root, each, codes, plan[first:behind]))
        first = behind
    return tuple(graphs)


def custom_options(model: bytes) -> tuple[bytes, ...]:
    """Of each custom operator of the main graph, in their order."""
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    listed = (each.customOptions for each in _listed(root.subgraphs[0].operators))
    return tuple(bytes(each) for each in listed if each is not None)


def _plan(root: Any) -> tuple[int, ...]:
    """The places of tensors that the file lays down, of all subgraphs one after the other; see :mod:`offline`."""
    notes = (each for each in _listed(root.metadata) if bytes(each.name) == OFFLINE_PLAN.encode())
    note = next(notes, None)
    return () if note is None else _indices(np.asarray(root.buffers[note.buffer].data, np.uint8).view("<i4")[3:])


def _code(entry: Any) -> str:
    builtin = _CODES[max(entry.builtinCode, entry.deprecatedBuiltinCode)]
    return builtin if builtin != "CUSTOM" else f"CUSTOM {bytes(entry.customCode).decode('utf-8', 'replace')}"


def _graph(root: Any, graph: Any, codes: list[str], plan: tuple[int, ...]) -> FileGraph:
    operators = tuple(_operator(each, codes) for each in _listed(graph.operators))
    tensors = tuple(_tensor(root, each) for each in _listed(graph.tensors))
    return FileGraph(tensors, operators, _indices(graph.inputs), _indices(graph.outputs), plan)


def _operator(operator: Any, codes: list[str]) -> FileOperator:
    options = operator.builtinOptions
    called = tuple(_subgraphs(options))
    turned = (bool(options.adjX), not options.adjY) if isinstance(options, schema.BatchMatMulOptionsT) else ()
    code, inputs, outputs = codes[operator.opcodeIndex], _indices(operator.inputs), _indices(operator.outputs)
    return FileOperator(code, inputs, outputs, called, turned)


def _subgraphs(options: Any) -> Iterator[int]:
    """Of IF and WHILE, in the order in which they are planned."""
    for name in ("thenSubgraphIndex", "elseSubgraphIndex", "condSubgraphIndex", "bodySubgraphIndex"):
        if (index := getattr(options, name, None)) is not None:
            yield int(index)


def _tensor(root: Any, tensor: Any) -> FileTensor:
    quantization = tensor.quantization
    scales = [] if quantization is None else _listed(quantization.scale)
    zeros = [] if quantization is None else _listed(quantization.zeroPoint)
    data = root.buffers[tensor.buffer].data
    return FileTensor(
        bytes(tensor.name or b"").decode("utf-8", "replace"),
        _TYPES[tensor.type],
        _indices(tensor.shape),
        data is not None and len(data) > 0,
        bool(tensor.isVariable),
        len(scales),
        float(scales[0]) if scales else 0.0,
        int(zeros[0]) if zeros else 0,
        any(size < 0 for size in _listed(tensor.shapeSignature)),
    )


def _indices(found: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in _listed(found))


def _listed(found: Any) -> list[Any]:
    return [] if found is None else list(found)
