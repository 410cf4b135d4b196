"""A model's bytes as a C++ array, and back: what is compiled into firmware is what was verified."""

from __future__ import annotations

import re
from pathlib import Path

from convertkit.errors import SourceError

ALIGNMENT_BYTES = 16
"""Of the array: FlatBuffers wants it, and kernels that read vectors of weights do."""
_IN_A_LINE = 16
_ARRAY = re.compile(r"const unsigned char kModel\[\] = \{(.*?)\};", re.DOTALL)
_LENGTH = re.compile(r"const unsigned int kModelSize = (\d+);")


def rows(data: bytes) -> str:
    """Bytes as lines of hexadecimal numbers."""
    chunks = (data[start : start + _IN_A_LINE] for start in range(0, len(data), _IN_A_LINE))
    return "\n".join("    " + " ".join(f"0x{byte:02x}," for byte in chunk) for chunk in chunks)


def model_source(data: bytes, namespace: str) -> str:
    """``model.cc``: the array and its length in bytes."""
    return (
        '#include "model.h"\n\n'
        f"namespace {namespace} {{\n\n"
        f"alignas({ALIGNMENT_BYTES}) const unsigned char kModel[] = {{\n{rows(data)}\n}};\n"
        f"const unsigned int kModelSize = {len(data)};\n\n"
        f"}}  // namespace {namespace}\n"
    )


def read_model(path: Path) -> bytes:
    """The bytes of the array in ``path``; ``SourceError`` where there is none, or its length is another one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}") from error
    array, length = _ARRAY.search(text), _LENGTH.search(text)
    if array is None or length is None:
        raise SourceError(f"{path.name} has no array kModel with its length kModelSize")
    try:
        data = bytes(int(each, 16) for each in array[1].replace(",", " ").split())
    except ValueError as error:
        raise SourceError(f"{path.name}: kModel holds something else than bytes: {error}") from error
    if len(data) != int(length[1]):
        raise SourceError(f"{path.name}: kModel has {len(data)} bytes, kModelSize says {length[1]}")
    return data
