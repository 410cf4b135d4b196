"""Recognising ONNX by the shape of its protobuf, without parsing it."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import BinaryIO

_VARINT, _BYTES = 0, 2
# Field numbers and wire types of onnx.ModelProto (onnx/onnx.proto).
_FIELDS = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES}
_LATER_FIELDS = {14: _BYTES, 20: _BYTES, 25: _BYTES, 26: _BYTES}
_GRAPH, _OPSET = 7, 8
_MAX_FIELDS = 64
_INTEGERS = (b"QuantizeLinear", b"QLinear", b"QGemm", b"ConvInteger", b"MatMulInteger")
_MAX_PRODUCER_BYTES = 4096


def is_onnx(path: Path) -> bool:
    """Whether the top-level fields are those of an ONNX model (a truncated one included)."""
    try:
        with path.open("rb") as stream:
            return _walk(stream)
    except OSError:
        return False


def may_name_files(path: Path) -> bool:
    """Whether the file has the word by which tensors name other files, which then hold their weights.

    Source: onnx.proto, TensorProto.external_data, whose required key is ``location``.
    """
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"location") >= 0


def quantizes(path: Path) -> bool:
    """Whether the file has the name of an operator that writes or multiplies integers for real numbers."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(name) >= 0 for name in _INTEGERS)


def _walk(stream: BinaryIO) -> bool:
    seen: set[int] = set()
    for _ in range(_MAX_FIELDS):
        tag = _varint(stream)
        if tag is None:
            break
        field, wire = tag >> 3, tag & 7
        if (_FIELDS | _LATER_FIELDS).get(field) != wire:
            return False
        value = _varint(stream)
        if value is None:
            break
        # A SavedModel starts like an ONNX file, but its field 2 holds whole graphs, not a producer's name.
        if field == 2 and value > _MAX_PRODUCER_BYTES:
            return False
        seen.add(field)
        if field == _GRAPH:
            break
        if wire == _BYTES:
            stream.seek(value, 1)
    return bool(seen & {_GRAPH, _OPSET})


def _varint(stream: BinaryIO) -> int | None:
    value = 0
    for shift in range(0, 64, 7):
        byte = stream.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None
