"""What kind of file a packaged model is, told by its bytes."""

from __future__ import annotations

from typing import Literal

Format = Literal["tflite", "ort", "onnx"]
_IDENTIFIERS: dict[bytes, Format] = {b"TFL3": "tflite", b"ORTM": "ort"}
"""Bytes 4 to 8 of a FlatBuffer.  Source: the schemas of TensorFlow Lite and ONNX Runtime, ``file_identifier``."""


def format_of(model: bytes) -> Format:
    """The format of these bytes; what has no identifier of its own is taken for ONNX."""
    return _IDENTIFIERS.get(model[4:8], "onnx")
