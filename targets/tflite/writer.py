"""Write a program as a TFLite FlatBuffer whose weights are streamed, aligned and stored once.

FlatBuffers are built back to front in memory, which would copy every weight several times.  Here
only the structure is built so: each Buffer table gets an empty slot for its data, and the data
follows behind the structure, written straight from the arrays (views of memory-mapped files
included).  Models beyond 2 GB put data outside the FlatBuffer, found by ``Buffer.offset``.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.targets.tflite import schema as tables
from convertkit.targets.tflite.graph import Program, Subgraph
from convertkit.targets.tflite.runtimes import min_runtime_version
from convertkit.targets.tflite.shared_vectors import SharingBuilder
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor
from convertkit.targets.tflite.versions import lowest_version

if TYPE_CHECKING:
    from convertkit.artifact import Array

ALIGNMENT = 16
INSIDE_LIMIT_BYTES = 2_000_000_000
"""Offsets inside a FlatBuffer end at 2 GiB; beyond this, data goes behind it."""

_CHUNK_ELEMENTS = 1 << 22
_VARIABLE_SLOT, _OFFSET_SLOT, _SIZE_SLOT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Signature:
    """What a SignatureDef says: the interface's names, in order, and the subgraph whose interface it is."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    key: str = "serving_default"
    subgraph: int = 0


def write_model(
    program: Program,
    signatures: Signature | tuple[Signature, ...],
    path: Path,
    *,
    metadata: Mapping[str, bytes],
    description: str,
) -> None:
    """Write the whole model file; the same program gives the same bytes."""
    several = (signatures,) if isinstance(signatures, Signature) else signatures
    _Writer(program, several, metadata, description).write(path)


def with_note(model: bytes, name: str, value: bytes) -> bytes:
    """The model, of less than 2 GB, with one more entry in its metadata, and nothing of what stands behind it."""
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model, 0))
    note = schema.MetadataT()
    note.name, note.buffer = name, len(root.buffers)
    root.metadata = [*(root.metadata or ()), note]
    data = [np.asarray([] if each.data is None else each.data, np.uint8) for each in root.buffers]
    stream = io.BytesIO()
    _put(stream, root, [*data, np.frombuffer(value, np.uint8)])
    return stream.getvalue()


class _Writer:
    def __init__(
        self, program: Program, signatures: Sequence[Signature], metadata: Mapping[str, bytes], description: str
    ) -> None:
        self._program = program
        self._signatures = signatures
        self._metadata = metadata
        self._description = description
        self._data: list[Array] = [np.empty(0, np.uint8)]
        self._by_digest: dict[bytes, int] = {}
        self._by_identity: dict[int, int] = {}
        self._codes: dict[tuple[str, int], int] = {}
        self._stored = tables.Stored()

    def write(self, path: Path) -> None:
        subgraphs = [self._subgraph(subgraph) for subgraph in self._program.subgraphs]
        notes = dict(self._metadata)
        everything = [operation for subgraph in self._program.subgraphs for operation in subgraph.operations]
        notes["min_runtime_version"] = min_runtime_version(everything).encode().ljust(16, b"\0")
        model = schema.ModelT()
        model.version = 3
        model.description = self._description
        model.operatorCodes = [tables.operator_code(code, version) for code, version in self._codes]
        model.subgraphs = [subgraph for subgraph, _ in subgraphs]
        model.metadata = [self._note(name, value) for name, value in notes.items()]
        model.signatureDefs = [_signature_def(each, subgraphs[each.subgraph][1]) for each in self._signatures]
        with path.open("wb") as stream:
            _put(stream, model, self._data)

    def _subgraph(self, subgraph: Subgraph) -> tuple[object, dict[Tensor, int]]:
        index: dict[Tensor, int] = {}
        operators = []
        for tensor in subgraph.inputs:
            index.setdefault(tensor, len(index))
        for operation in subgraph.operations:
            key = (operation.code, lowest_version(operation))
            opcode = self._codes.setdefault(key, len(self._codes))
            inputs = [-1 if tensor is None else index.setdefault(tensor, len(index)) for tensor in operation.inputs]
            outputs = [index.setdefault(tensor, len(index)) for tensor in operation.outputs]
            inner = [index.setdefault(tensor, len(index)) for tensor in operation.intermediates]
            operators.append(tables.operator(operation, opcode, inputs, outputs, inner))
        result = schema.SubGraphT()
        result.name = subgraph.name
        result.outputs = [index.setdefault(tensor, len(index)) for tensor in subgraph.outputs]
        result.inputs = [index[tensor] for tensor in subgraph.inputs]
        taken: dict[str, int] = {self._program.name_of(tensor): 0 for tensor in index if tensor in self._program.names}
        result.tensors = [self._tensor(tensor, taken) for tensor in index]
        result.operators = operators
        return result, index

    def _tensor(self, tensor: Tensor, taken: dict[str, int]) -> object:
        result = schema.TensorT()
        result.name = self._unique(tensor, taken)
        result.shape = [1 if size == DYNAMIC else size for size in tensor.shape]
        if DYNAMIC in tensor.shape:
            result.shapeSignature = list(tensor.shape)
        result.hasRank = True
        result.isVariable = tensor.variable
        result.type = tables.TYPES[tensor.dtype]
        result.buffer = 0 if tensor.constant is None else self._buffer(tensor.constant)
        if tensor.quantization is not None:
            axis = tensor.quantization.axis
            size = 1 if axis is None else tensor.shape[axis]
            result.quantization = tables.quantization(tensor.quantization, size, self._stored)
        return result

    def _unique(self, tensor: Tensor, taken: dict[str, int]) -> str:
        if tensor in self._program.names:
            return self._program.names[tensor]
        name = tensor.name
        if name in taken:
            taken[tensor.name] += 1
            name = f"{tensor.name}.{taken[tensor.name]}"
            while name in taken:
                taken[tensor.name] += 1
                name = f"{tensor.name}.{taken[tensor.name]}"
        taken[name] = 0
        return name

    def _buffer(self, data: Array) -> int:
        known = self._by_identity.get(id(data))
        if known is not None:
            return known
        data = packed(data)
        digest = _digest(data)
        if digest not in self._by_digest:
            self._by_digest[digest] = len(self._data)
            self._data.append(data)
        return self._by_digest[digest]

    def _note(self, name: str, value: bytes) -> object:
        result = schema.MetadataT()
        result.name = name
        result.buffer = self._buffer(np.frombuffer(value, np.uint8))
        return result


class _Slot(schema.BufferT):  # type: ignore[misc]
    """A Buffer table that leaves room for where its data will be."""

    def __init__(self, data: Array, outside: bool) -> None:
        super().__init__()
        self._empty = _size_bytes(data) == 0
        self._outside = outside
        self._table = 0

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - the schema's own name
        builder.StartObject(3)
        if not self._empty and self._outside:
            builder.PrependUint64Slot(_OFFSET_SLOT, 1 << 62, 0)
            builder.PrependUint64Slot(_SIZE_SLOT, 1 << 62, 0)
        elif not self._empty:
            builder.PrependUint32Slot(_VARIABLE_SLOT, 1 << 30, 0)
        self._table = builder.EndObject()
        return self._table

    def locate(self, head: bytearray) -> tuple[int, ...]:
        """Positions in ``head`` of the fields to fill in, none for an empty buffer."""
        if self._empty:
            return ()
        table = len(head) - self._table
        vtable = table - struct.unpack_from("<i", head, table)[0]
        wanted = (_OFFSET_SLOT, _SIZE_SLOT) if self._outside else (_VARIABLE_SLOT,)
        return tuple(table + struct.unpack_from("<H", head, vtable + 4 + 2 * slot)[0] for slot in wanted)


def _put(stream: IO[bytes], model: schema.ModelT, data: list[Array]) -> None:
    outside = sum(_size_bytes(each) + ALIGNMENT for each in data) > INSIDE_LIMIT_BYTES
    slots = [_Slot(each, outside) for each in data]
    model.buffers = slots
    builder = SharingBuilder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    head = bytearray(builder.Output())
    _write(stream, head, data, [slot.locate(head) for slot in slots], outside)


def _write(
    stream: IO[bytes], head: bytearray, data: list[Array], positions: list[tuple[int, ...]], outside: bool
) -> None:
    end = len(head)
    starts = []
    for values, fields in zip(data, positions, strict=True):
        if not fields:
            starts.append(end)
            continue
        start = _aligned(end + (0 if outside else 4))
        if outside:
            struct.pack_into("<Q", head, fields[0], start)
            struct.pack_into("<Q", head, fields[1], _size_bytes(values))
        else:
            struct.pack_into("<I", head, fields[0], start - 4 - fields[0])
        starts.append(start)
        end = start + _size_bytes(values)
    stream.write(head)
    for values, fields, start in zip(data, positions, starts, strict=True):
        if not fields:
            continue
        prefix = b"" if outside else struct.pack("<I", _size_bytes(values))
        stream.write(b"\0" * (start - len(prefix) - stream.tell()) + prefix)
        for chunk in _chunks(values):
            stream.write(chunk)


def packed(data: Array) -> Array:
    """What is stored of an array: int4 two to a byte, strings in TFLite's own table, bool as bytes."""
    if data.dtype.name == "int4":
        nibbles = data.astype(np.int8).reshape(-1).astype(np.uint8) & 15
        nibbles = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8))
        return nibbles[0::2] | (nibbles[1::2] << 4)
    if data.dtype.kind in "OUS":
        return _string_table(data)
    return data


def _string_table(data: Array) -> Array:
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in data.reshape(-1)]
    offsets = [4 * (len(texts) + 2)]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    header = struct.pack(f"<{len(offsets) + 1}i", len(texts), *offsets)
    return np.frombuffer(header + b"".join(texts), np.uint8)


def _chunks(values: Array) -> Iterator[bytes | memoryview]:
    """The array's bytes in order, copied piece by piece where it is not contiguous."""
    if values.flags.c_contiguous:
        yield values.reshape(-1).view(np.uint8).data
    elif values.size <= _CHUNK_ELEMENTS:
        yield values.tobytes()
    else:
        rows = max(1, _CHUNK_ELEMENTS * len(values) // values.size)
        for start in range(0, len(values), rows):
            yield np.ascontiguousarray(values[start : start + rows]).reshape(-1).view(np.uint8).data


def _digest(data: Array) -> bytes:
    """A key of the contents; a transposed view is read as it lies in memory, which is faster."""
    order = tuple(int(axis) for axis in np.argsort([-stride for stride in data.strides], kind="stable"))
    digest = hashlib.blake2b(repr((order, data.shape)).encode() if order != tuple(range(data.ndim)) else b"")
    for chunk in _chunks(data.transpose(order)):
        digest.update(chunk)
    return digest.digest() + struct.pack("<Q", _size_bytes(data))


def _size_bytes(data: Array) -> int:
    return int(data.size) * data.dtype.itemsize


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _signature_def(signature: Signature, index: dict[Tensor, int]) -> object:
    result = schema.SignatureDefT()
    result.signatureKey = signature.key
    result.subgraphIndex = signature.subgraph
    result.inputs = [_binding(name, index[tensor]) for name, tensor in signature.inputs.items()]
    result.outputs = [_binding(name, index[tensor]) for name, tensor in signature.outputs.items()]
    return result


def _binding(name: str, index: int) -> object:
    result = schema.TensorMapT()
    result.name = name
    result.tensorIndex = index
    return result
