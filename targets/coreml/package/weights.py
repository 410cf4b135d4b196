"""The file that weights lie in: a header of 64 bytes, then for each array 64 bytes about it and its numbers.

Source: coremltools, mlmodel/src/MILBlob/Blob/StorageFormat.hpp.
"""

from __future__ import annotations

import struct
from pathlib import Path

import ml_dtypes
import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError

_SENTINEL = 0xDEADBEEF
_ABOUT = struct.Struct("<IIQQ")
_BITS = {"int4": 4, "uint4": 4, "uint2": 2, "uint1": 1, "uint6": 6}


class Weights:
    """Arrays by file and offset; files are mapped when one is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Array] = {}

    def array(self, file: str, offset: int, dtype: str, shape: tuple[int, ...]) -> Array:
        """The numbers at ``offset`` of ``@model_path/weights/NAME``; ``SourceError`` where there are none."""
        data = self._file(file.rpartition("/")[2])
        if offset + _ABOUT.size > data.size:
            raise SourceError(f"the package is broken: its weights end before {offset}")
        sentinel, _, size, begin = _ABOUT.unpack(data[offset : offset + _ABOUT.size].tobytes())
        if sentinel != _SENTINEL or begin + size > data.size:
            raise SourceError(f"the package is broken: there are no weights at {offset}")
        raw = data[begin : begin + size]
        count = int(np.prod(shape, dtype=np.int64))
        if dtype in _BITS:
            return _unpacked(raw, dtype, count).reshape(shape)
        kind = np.dtype(dtype)
        if count * kind.itemsize > size:
            raise SourceError(f"the package is broken: weights at {offset} are fewer than {count}")
        return raw[: count * kind.itemsize].view(kind).reshape(shape)

    def _file(self, name: str) -> Array:
        if name not in self._files:
            path = self._folder / name
            if not path.is_file():
                raise SourceError(f"the package is broken: it has no weights/{name}")
            self._files[name] = np.memmap(path, np.uint8, "r")
        return self._files[name]


def _unpacked(raw: Array, dtype: str, count: int) -> Array:
    """Numbers of less than a byte, the first in the lowest bits."""
    bits = _BITS[dtype]
    each = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
    values = np.asarray((each << np.arange(bits, dtype=np.uint8)).sum(1, dtype=np.uint8))
    if dtype == "int4":
        return ((values.astype(np.int8) ^ 8) - 8).astype(ml_dtypes.int4)
    return np.asarray(values).astype(getattr(ml_dtypes, dtype, np.uint8))
