"""ONNX files whose large weights stay in them: memory-mapped, each where it lies.

Protobuf's parser copies every byte, twice at its peak.  Here the few fields that lead to a large initializer are walked
as protobuf writes them, and all but its raw data is given to the parser.
Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from convertkit.artifact import Array

_LEAST_FILE_BYTES = 1 << 23
"""A smaller file is parsed as fast as it is walked."""
_LEAST_BYTES = 1 << 16
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Field numbers of ``ModelProto.graph``, ``GraphProto.initializer`` and ``TensorProto.raw_data``."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


def read_proto(path: Path, least_bytes: int = _LEAST_BYTES) -> onnx.ModelProto:
    """The protobuf at ``path``, initializers above ``least_bytes`` as external data of the file itself.

    Other external data stays where it is.  Raises what ``onnx.load_model`` does.
    """
    is_own_name = not path.is_symlink()  # external data is looked for beside the file, by its name there
    if is_own_name and path.stat().st_size >= _LEAST_FILE_BYTES:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = _mapped(data, path.name, least_bytes)
        if found is not None:
            return found
    return onnx.load_model(path, load_external_data=False)


def with_mapped(model: ir.Model, path: Path) -> None:
    """Make arrays over the file of what :func:`read_proto` has left in it, in place.

    Arrays, not external tensors: a model that is written or handed on has to hold its weights.
    """
    data: Array | None = None
    for name, value in model.graph.initializers.items():
        found = value.const_value
        if not isinstance(found, ir.ExternalTensor) or found.location != path.name or found.offset is None:
            continue
        data = np.memmap(path, np.uint8, "r") if data is None else data
        raw = data[found.offset : found.offset + found.nbytes]
        array = np.asarray(raw).view(found.dtype.numpy()).reshape(found.shape.numpy())
        value.const_value = ir.Tensor(array, dtype=found.dtype, name=name, doc_string=found.doc_string)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: its number and type, and where it, and its content, begin; and where both end."""

    number: int
    wire: int
    start: int
    content: int
    end: int


def _mapped(data: mmap.mmap, name: str, least_bytes: int) -> onnx.ModelProto | None:
    """None for what is not written as expected: the parser tells what is wrong with it, if anything."""
    try:
        model = list(_fields(data, 0, len(data)))
        graphs = [field for field in model if field.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].wire != _BYTES:
            return None
        pieces = list(_light_graph(data, graphs[0], name, least_bytes))
        head = b"".join(data[field.start : field.end] for field in model if field is not graphs[0])
        proto = onnx.ModelProto.FromString(head)
        proto.graph.MergeFromString(b"".join(pieces))
    except (IndexError, ValueError, DecodeError):
        return None
    return proto


def _light_graph(data: mmap.mmap, graph: _Field, name: str, least_bytes: int) -> Iterator[bytes]:
    """The graph's fields in order, large initializers without their raw data."""
    for field in _fields(data, graph.content, graph.end):
        light = None
        if field.number == _INITIALIZER and field.wire == _BYTES and field.end - field.content > least_bytes:
            light = _light_tensor(data, field, name, least_bytes)
        if light is None:
            yield data[field.start : field.end]
        else:
            yield onnx.GraphProto(initializer=[light]).SerializeToString()


def _light_tensor(data: mmap.mmap, tensor: _Field, name: str, least_bytes: int) -> onnx.TensorProto | None:
    """The initializer with a note of where its raw data lies; None where most of it is elsewhere."""
    fields = list(_fields(data, tensor.content, tensor.end))
    raws = [field for field in fields if field.number == _RAW_DATA]
    if len(raws) != 1 or raws[0].wire != _BYTES or raws[0].end - raws[0].content <= least_bytes:
        return None
    raw = raws[0]
    light = onnx.TensorProto.FromString(b"".join(data[each.start : each.end] for each in fields if each is not raw))
    if light.data_location == onnx.TensorProto.EXTERNAL or not _is_plain(light.data_type):
        return None
    light.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": name, "offset": raw.content, "length": raw.end - raw.content}.items():
        light.external_data.add(key=key, value=str(value))
    return light


def _is_plain(data_type: int) -> bool:
    """Whether an element is a whole number of bytes, as an array has it."""
    return data_type != onnx.TensorProto.STRING and ir.DataType(data_type).bitwidth >= 8


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[_Field]:
    """The fields between two places; ``ValueError`` or ``IndexError`` where they do not fill the space."""
    while start < end:
        tag, content = _varint(data, start)
        wire = tag & 7
        if wire == _BYTES:
            size, content = _varint(data, content)
        elif wire == _VARINT:
            size = _varint(data, content)[1] - content
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if content + size > end:
            raise ValueError("a field that is longer than its message")
        yield _Field(tag >> 3, wire, start, content, content + size)
        start = content + size


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place behind it."""
    value = 0
    for count in range(_MOST_VARINT_BYTES):
        byte = data[place + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, place + count + 1
    raise ValueError("a number without an end")
