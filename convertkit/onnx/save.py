"""Write ONNX models with deterministic bytes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.onnx.specs import interface

EXTERNAL_ABOVE_BYTES = 1_500_000_000
"""Protobuf ends at 2 GiB; larger weights go to ``<name>.data`` beside the model."""

_STREAMED_ABOVE_BYTES = 1 << 16
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Field numbers of ``ModelProto.graph``, ``GraphProto.initializer`` and ``TensorProto.raw_data``."""


def save_model(model: ir.Model, path: Path, made_by: str, initial_state: Path | None = None) -> Artifact:
    """Write ``model`` to ``path`` and return it as an artifact of format ``onnx``."""
    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if weights > EXTERNAL_ABOVE_BYTES:
        ir.save(model, path, external_data=path.name + ".data")
        digest = sha256_of(path)
    else:
        hashed = hashlib.sha256()
        with path.open("wb") as stream:
            for chunk in serialized(model):
                hashed.update(chunk)
                stream.write(chunk)
        digest = hashed.hexdigest()
    inputs, outputs = interface(model)
    return Artifact(path, "onnx", inputs, outputs, digest, made_by, initial_state)


def serialized(model: ir.Model) -> Iterator[bytes | memoryview]:
    """The bytes of protobuf's deterministic serialization in pieces; large weights are not copied."""
    proto, streamed = _without_weights(model)
    graph = proto.graph
    weights = [_tensor(tensor, streamed.get(tensor.name)) for tensor in graph.initializer]
    del graph.initializer[:]
    before, after = _split(graph, onnx.GraphProto(node=graph.node, name=graph.name))
    fields = {field.name: value for field, value in proto.ListFields() if field.number < _GRAPH}
    proto.ClearField("graph")
    head, tail = _split(proto, onnx.ModelProto(**fields))
    size = len(before) + len(after) + sum(len(start) + (0 if raw is None else raw.nbytes) for start, raw in weights)
    yield head + _key(_GRAPH, size) + before
    for start, raw in weights:
        yield start
        if raw is not None:
            yield raw
    yield after + tail


def _without_weights(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """The protobuf with large initializers declared and empty, and those initializers by name."""
    streamed = {
        name: (value, value.const_value)
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and _is_streamed(value.const_value)
    }
    for value, tensor in streamed.values():
        value.const_value = ir.Tensor(np.empty(0, tensor.dtype.numpy()), dtype=tensor.dtype, name=value.name)
    try:
        ir.external_data.load_to_model(model)
        proto: onnx.ModelProto = ir.to_proto(model)
    finally:
        for value, tensor in streamed.values():
            value.const_value = tensor
    return proto, {name: tensor for name, (_, tensor) in streamed.items()}


def _is_streamed(tensor: ir.TensorProtocol) -> bool:
    plain = tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth >= 8
    return plain and tensor.nbytes > _STREAMED_ABOVE_BYTES and not tensor.doc_string


def _tensor(proto: onnx.TensorProto, content: ir.TensorProtocol | None) -> tuple[bytes, memoryview | None]:
    """One entry of ``graph.initializer``: all of it, or all up to the raw data, and these."""
    if content is None:
        whole = proto.SerializeToString(deterministic=True)
        return _key(_INITIALIZER, len(whole)) + whole, None
    del proto.dims[:]
    proto.dims.extend(content.shape.numpy())
    proto.ClearField("raw_data")
    raw = np.asarray(content.numpy(), order="C").reshape(-1).view(np.uint8).data
    start = proto.SerializeToString(deterministic=True) + _key(_RAW_DATA, raw.nbytes)
    return _key(_INITIALIZER, len(start) + raw.nbytes) + start, raw


def _split(proto: onnx.GraphProto | onnx.ModelProto, first: onnx.GraphProto | onnx.ModelProto) -> tuple[bytes, bytes]:
    """The bytes of ``proto`` up to where those of ``first``, its leading fields, end; and the rest."""
    whole, leading = (each.SerializeToString(deterministic=True) for each in (proto, first))
    assert whole.startswith(leading), "fields are written in the order of their numbers"
    return leading, whole[len(leading) :]


def _key(field: int, size: int) -> bytes:
    """Tag and length of a field of bytes, as protobuf writes them."""
    groups = max(1, math.ceil(size.bit_length() / 7))
    length = [(size >> 7 * place) & 0x7F | (0x80 if place + 1 < groups else 0) for place in range(groups)]
    return bytes([field << 3 | 2, *length])
