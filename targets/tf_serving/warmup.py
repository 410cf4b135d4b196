"""Warm-up requests that TensorFlow Serving replays when it loads a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convertkit.artifact import Array

FILE = "assets.extra/tf_serving_warmup_requests"
_MODEL_SPEC, _INPUTS = 1, 2
"""Of PredictRequest."""
_NAME, _SIGNATURE = 1, 3
"""Of ModelSpec."""
_REQUEST, _PREDICT_LOG = 1, 6
"""Of PredictLog and PredictionLog.  Source: tensorflow_serving/apis/{predict,model,prediction_log}.proto."""
_KEY, _VALUE = 1, 2
_VARINT_BITS = 7


def write_warmup(tf: Any, folder: Path, name: str, signature: str, inputs: Mapping[str, Array]) -> None:
    """Write a record file with one call of the model that the server knows as ``name``."""
    spec = _field(_NAME, name.encode()) + _field(_SIGNATURE, signature.encode())
    request = _field(_MODEL_SPEC, spec)
    for key, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString(deterministic=True)
        request += _field(_INPUTS, _field(_KEY, key.encode()) + _field(_VALUE, tensor))
    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as records:
        records.write(_field(_PREDICT_LOG, _field(_REQUEST, request)))


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message in the wire format of protocol buffers."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >> _VARINT_BITS:
        found.append(value & 0x7F | 0x80)
        value >>= _VARINT_BITS
    found.append(value)
    return bytes(found)
