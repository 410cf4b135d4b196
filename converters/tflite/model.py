"""A ``.tflite`` file as plain frozen values, every index and size checked.

Source: ``tensorflow/compiler/mlir/lite/schema/schema.fbs``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import ml_dtypes
import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tflite import flatbuffer, schema, sparse
from convertkit.converters.tflite.flatbuffer import Table
from convertkit.errors import SourceError, Unsupported

IDENTIFIER = b"TFL3"
ABSENT = -1
_PACKED = {"int4": 4, "uint4": 4, "int2": 2}
_NO_DATA = frozenset({"string", "resource", "variant"})
_INTEGERS = {
    "int4": (-8, 7), "int8": (-128, 127), "uint8": (0, 255), "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1), "uint4": (0, 15), "int2": (-2, 1), "uint16": (0, (1 << 16) - 1),
}  # fmt: skip
_MAX_ELEMENTS = 1 << 40

Option = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Quantization:
    """``real = (integer - zero_point) * scale``; several scales run along ``axis``."""

    scale: Array
    zero_point: Array
    axis: int

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a subgraph: ``shape`` has -1 where the size is dynamic and is None where the rank is.

    ``data`` holds a constant.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    data: Array | None
    quantization: Quantization | None
    is_variable: bool


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator call; absent optional inputs are ``ABSENT``."""

    builtin: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Mapping[str, Option]
    options_name: str
    custom_options: bytes = b""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A graph whose operators stand in the order of execution."""

    name: str
    tensors: tuple[TensorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A named entry point: public names for the inputs and outputs of a subgraph."""

    key: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    subgraph: int


@dataclass(frozen=True, slots=True)
class TFLiteModel:
    """The whole file; it has one signature at least, whose key is empty where the file names none.

    ``metadata`` are buffers for tools, by name.
    """

    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...]
    metadata: Mapping[str, Array]


def read_model(path: Path) -> TFLiteModel:
    """The model at ``path``; ``SourceError`` where the file is missing, truncated or broken."""
    if not path.is_file():
        raise SourceError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    try:
        return parse(path.read_bytes())
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from None


def parse(data: bytes) -> TFLiteModel:
    """The model in ``data``; ``SourceError`` where it is broken."""
    if len(data) < 8 or data[4:8] != IDENTIFIER:
        raise SourceError("not a .tflite file: the identifier TFL3 is missing")
    table = flatbuffer.root(memoryview(data))
    version = table.scalar(0, "u32", 0)
    if version != 3:
        raise SourceError(f"TFLite schema version {version}, expected 3")
    subgraphs = graphs_of(table)
    if not subgraphs:
        raise SourceError("the file holds no graph")
    signatures = tuple(_signature(each, subgraphs) for each in table.tables(7))
    buffers = _buffers(table)
    metadata = dict(_metadata(each, buffers) for each in table.tables(6))
    return TFLiteModel(subgraphs, signatures or (_unnamed_signature(subgraphs[0]),), metadata)


def graphs_of(model: Table) -> tuple[Subgraph, ...]:
    """The graphs of the file whose root is ``model``."""
    buffers = _buffers(model)
    codes = tuple(_operator_code(code) for code in model.tables(1))
    return tuple(_subgraph(each, buffers, codes) for each in model.tables(2))


def _metadata(table: Table, buffers: tuple[Array, ...]) -> tuple[str, Array]:
    index = table.scalar(1, "u32", 0)
    if index >= len(buffers):
        raise SourceError(f"metadata {table.text(0)!r} is in buffer {index}, the file has {len(buffers)}")
    return table.text(0), buffers[index]


def _buffers(model: Table) -> tuple[Array, ...]:
    return tuple(_buffer(buffer, model.data) for buffer in model.tables(4))


def _buffer(table: Table, data: memoryview) -> Array:
    """Bytes of a buffer: in the FlatBuffer, or behind it for files above 2 GB."""
    offset, size = table.scalar(1, "u64", 0), table.scalar(2, "u64", 0)
    if offset > 1:
        if offset + size > len(data):
            raise SourceError("a buffer reaches beyond the end of the file")
        return np.frombuffer(data, np.uint8, size, offset)
    return table.array(0, "u1")


def _operator_code(table: Table) -> tuple[str, int]:
    """Name and version; old files hold the code in one byte, which saturates at ``EXTENDED``."""
    code = max(table.scalar(0, "i8", 0), table.scalar(3, "i32", 0))
    version = table.scalar(2, "i32", 1)
    if code == schema.CUSTOM:
        return f"CUSTOM:{table.text(1)}", version
    if not 0 <= code < len(schema.OPERATORS):
        raise SourceError(f"unknown builtin operator {code}")
    return schema.OPERATORS[code], version


def _subgraph(table: Table, buffers: tuple[Array, ...], codes: tuple[tuple[str, int], ...]) -> Subgraph:
    tensors = tuple(_tensor(each, buffers) for each in table.tables(0))
    inputs, outputs = table.integers(1), table.integers(2)
    operators = tuple(_operator(each, codes) for each in table.tables(3))
    called = [index for op in operators for index in (*op.inputs, *op.outputs, *op.intermediates)]
    for index in (*inputs, *outputs):
        if not 0 <= index < len(tensors):
            raise SourceError(f"tensor {index} does not exist; the graph has {len(tensors)}")
    for index in called:
        if not ABSENT <= index < len(tensors):
            raise SourceError(f"tensor {index} does not exist; the graph has {len(tensors)}")
    computed = {*inputs, *(index for op in operators for index in op.outputs)}
    tensors = tuple(_without_empty_data(each) if at in computed else each for at, each in enumerate(tensors))
    graph = Subgraph(table.text(4), tensors, inputs, outputs, operators)
    _check_order(graph)
    return graph


def _without_empty_data(tensor: TensorInfo) -> TensorInfo:
    """A computed tensor of zero elements looks like an empty constant in the file."""
    return replace(tensor, data=None) if tensor.data is not None and not tensor.data.size else tensor


def _check_order(graph: Subgraph) -> None:
    """Refuse operators that read what nothing has written yet, and graphs that write one tensor twice."""
    held = {index for index, each in enumerate(graph.tensors) if each.data is not None or each.is_variable}
    known = held | set(graph.inputs)
    for op in graph.operators:
        for index in op.inputs:
            if index != ABSENT and index not in known:
                raise SourceError(f"{op.builtin} reads {graph.tensors[index].name!r} before anything wrote it")
        for index in op.outputs:
            if index in known and index != ABSENT:
                raise SourceError(f"{op.builtin} overwrites {graph.tensors[index].name!r}")
        known.update(op.outputs)
    for index in graph.outputs:
        if index not in known:
            raise SourceError(f"nothing computes the output {graph.tensors[index].name!r}")


def _operator(table: Table, codes: tuple[tuple[str, int], ...]) -> Operator:
    index = table.scalar(0, "u32", 0)
    if index >= len(codes):
        raise SourceError(f"operator code {index} does not exist; the file has {len(codes)}")
    builtin, version = codes[index]
    number = table.scalar(3, "u8", 0) or -table.scalar(11, "u8", 0)
    options = schema.BY_NUMBER.get(number)
    values = table.table(4 if number > 0 else 12) if options else None
    return Operator(
        builtin,
        version,
        table.integers(1),
        table.integers(2),
        table.integers(8),
        {} if options is None else {field.name: _option(values, field) for field in options.fields},
        "" if options is None else options.name,
        table.array(5, "u1").tobytes(),
    )


def _option(table: Table | None, field: schema.Field) -> Option:
    if table is None:
        return () if field.kind.startswith("[") else "" if field.kind == "str" else field.default
    match field.kind:
        case "str":
            return table.text(field.slot)
        case "[i32]":
            return table.integers(field.slot)
        case "[u8]":
            return table.integers(field.slot, "u1")
        case "[f32]":
            return tuple(table.array(field.slot, "<f4").tolist())
        case kind:
            return table.scalar(field.slot, kind, field.default)


def _tensor(table: Table, buffers: tuple[Array, ...]) -> TensorInfo:
    number, buffer = table.scalar(1, "i8", 0), table.scalar(2, "u32", 0)
    name, shape = table.text(3), table.integers(0)
    if not 0 <= number < len(schema.DTYPES):
        raise SourceError(f"tensor {name!r} has the unknown element type {number}")
    if buffer >= len(buffers):
        raise SourceError(f"tensor {name!r} points to buffer {buffer}; the file has {len(buffers)}")
    if any(size < 0 for size in shape) or math.prod(shape) > _MAX_ELEMENTS:
        raise SourceError(f"tensor {name!r} declares the shape {shape}")
    dtype, held = schema.DTYPES[number], buffers[buffer]
    sparsity = table.table(6)
    if sparsity is not None and held.size and dtype not in _NO_DATA:
        values = _constant(name, dtype, (sparse.stored_count(sparsity, shape),), held)
        data = None if values is None else sparse.dense(sparsity, shape, values)
    else:
        data = _constant(name, dtype, shape, held) if held.size or (math.prod(shape) == 0 and buffer) else None
    signature = table.integers(7)
    if data is None and len(signature) == len(shape):
        shape = tuple(ABSENT if free < 0 else size for free, size in zip(signature, shape))
    quantization = _quantization(name, shape, table.table(4))
    if quantization is not None and dtype in _INTEGERS:
        _check_zero_points(name, dtype, quantization)
    ranked = shape or data is not None or table.scalar(8, "bool", False)
    return TensorInfo(name, shape if ranked else None, dtype, data, quantization, table.scalar(5, "bool", False))


def _constant(name: str, dtype: str, shape: tuple[int, ...], held: Array) -> Array | None:
    if dtype in _NO_DATA:
        return None
    if dtype in _PACKED:
        return _unpacked(name, dtype, shape, held)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if held.size != math.prod(shape) * kind.itemsize:
        raise SourceError(
            f"tensor {name!r} of shape {shape} needs {math.prod(shape) * kind.itemsize} bytes, has {held.size}"
        )
    return held.view(kind).reshape(shape)


def _unpacked(name: str, dtype: str, shape: tuple[int, ...], held: Array) -> Array:
    """Several values per byte, lowest bits first."""
    bits = _PACKED[dtype]
    count, per_byte = math.prod(shape), 8 // bits
    if held.size != -(-count // per_byte):
        raise SourceError(f"tensor {name!r} of shape {shape} needs {-(-count // per_byte)} bytes, has {held.size}")
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    values = ((held[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count].astype(np.int8)
    if not dtype.startswith("u"):
        values = np.where(values >= 1 << (bits - 1), values - (1 << bits), values).astype(np.int8)
    packed: Array = values.astype(getattr(ml_dtypes, dtype)).reshape(shape)
    return packed


def _quantization(name: str, shape: tuple[int, ...], table: Table | None) -> Quantization | None:
    if table is None:
        return None
    scale, zero_point = table.array(2, "<f4"), table.array(3, "<i8")
    axis = table.scalar(6, "i32", 0)
    if not scale.size:
        if table.scalar(4, "u8", 0):
            raise Unsupported(f"tensor {name!r} is quantized by a scheme of its own")
        return None
    if zero_point.size not in (scale.size, 1, 0):
        raise SourceError(f"tensor {name!r} has {scale.size} scales and {zero_point.size} zero points")
    if scale.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scale.size):
        raise SourceError(f"tensor {name!r} of shape {shape} has {scale.size} scales along axis {axis}")
    if not np.all(np.isfinite(scale)) or np.any(scale < 0):
        raise SourceError(f"tensor {name!r} has the scale {float(scale.min())}")
    zero_point = np.broadcast_to(zero_point if zero_point.size else np.int64(0), scale.shape)
    return Quantization(scale, zero_point, axis)


def _check_zero_points(name: str, dtype: str, quantization: Quantization) -> None:
    low, high = _INTEGERS[dtype]
    if quantization.zero_point.min() < low or quantization.zero_point.max() > high:
        raise SourceError(f"tensor {name!r} of {dtype} has the zero point {int(quantization.zero_point[0])}")


def _signature(table: Table, subgraphs: tuple[Subgraph, ...]) -> Signature:
    key, index = table.text(2), table.scalar(4, "u32", 0)
    if index >= len(subgraphs):
        raise SourceError(f"signature {key!r} points to subgraph {index}; the file has {len(subgraphs)}")
    graph = subgraphs[index]
    inputs = tuple((each.text(0), each.scalar(1, "u32", 0)) for each in table.tables(0))
    outputs = tuple((each.text(0), each.scalar(1, "u32", 0)) for each in table.tables(1))
    if {place for _, place in inputs} != set(graph.inputs) or {place for _, place in outputs} - set(graph.outputs):
        raise SourceError(f"signature {key!r} names tensors that are not the inputs and outputs of its graph")
    return _distinct(Signature(key, inputs, outputs, index))


def _unnamed_signature(graph: Subgraph) -> Signature:
    """The entry point of files without signatures: the main graph, by its tensors' own names."""
    inputs = tuple((graph.tensors[index].name, index) for index in graph.inputs)
    outputs = tuple((graph.tensors[index].name, index) for index in graph.outputs)
    return _distinct(Signature("", inputs, outputs, 0))


def _distinct(signature: Signature) -> Signature:
    for role, pairs in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        names = [name for name, _ in pairs]
        if not names:
            raise SourceError(f"the graph has no {role}: a model computes outputs from inputs")
        if len(set(names)) < len(names) or "" in names:
            raise SourceError(f"the {role} have no names of their own: {', '.join(names)}")
    return signature
