"""``.params`` files of MXNet: named arrays, read without MXNet; nothing in them can be executed.

Source: MXNet 1.9.1, ``NDArray::Save`` and ``NDArray::Load`` in src/ndarray/ndarray.cc: little-endian, a list of arrays
and then a list of names.  The two older forms of an array are read, too; sparse ones are refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError, Unsupported

MAGIC = struct.pack("<QQ", 0x112, 0)
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_MOST_ARRAYS, _MOST_AXES, _MOST_NAME = 1 << 20, 32, 4096
_DTYPES: Mapping[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("<f8"),
    2: np.dtype("<f2"),
    3: np.dtype("u1"),
    4: np.dtype("<i4"),
    5: np.dtype("i1"),
    6: np.dtype("<i8"),
    7: np.dtype("?"),
    8: np.dtype("<i2"),
    12: np.dtype(ml_dtypes.bfloat16),
}


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays by their names, as the file has them (``arg:NAME``); ``SourceError`` where it is not whole."""
    reader = _Reader(path)
    if reader.take(16) != MAGIC:
        raise SourceError(f"{path.name} is not a list of MXNet's arrays")
    arrays = [reader.array() for _ in range(reader.count(_MOST_ARRAYS))]
    names = [reader.name() for _ in range(reader.count(_MOST_ARRAYS))]
    if len(names) != len(arrays) or len(set(names)) != len(names):
        raise SourceError(f"{path.name} holds {len(arrays)} arrays and {len(set(names))} names")
    return dict(zip(names, arrays, strict=True))


class _Reader:
    def __init__(self, path: Path) -> None:
        self._name, self._data, self._at = path.name, path.read_bytes(), 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self._data) - self._at:
            raise SourceError(f"{self._name} ends at byte {len(self._data)}, within an array or a name")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, kind: str) -> int:
        (found,) = struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))
        return int(found)

    def count(self, most: int) -> int:
        found = self.number("Q")
        if found > most:
            raise SourceError(f"{self._name} says that it holds {found} entries")
        return found

    def name(self) -> str:
        try:
            return self.take(self.count(_MOST_NAME)).decode()
        except UnicodeDecodeError as error:
            raise SourceError(f"{self._name}: the name of an array is not text") from error

    def array(self) -> Array:
        first = self.number("I")
        if first in (_V2, _V3):
            if self.number("i") not in (0, -1):
                raise Unsupported(f"{self._name} holds a sparse array")
            shape = self._shape(self.number("i"), "q")
        elif first == _V1:
            shape = self._shape(self.number("I"), "q")
        else:
            shape = self._shape(first, "I")
        if first != _V3 and not shape:
            return np.zeros(0, np.float32)
        self.take(8)  # the device that it was saved from
        flag = self.number("i")
        if flag not in _DTYPES:
            raise Unsupported(f"{self._name} holds an array of the type {flag}")
        dtype = _DTYPES[flag]
        return np.frombuffer(self.take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)

    def _shape(self, rank: int, kind: str) -> tuple[int, ...]:
        if not 0 <= rank <= _MOST_AXES:
            raise SourceError(f"{self._name} holds an array of {rank} axes")
        shape = tuple(self.number(kind) for _ in range(rank))
        if any(size < 0 or size > len(self._data) for size in shape):
            raise SourceError(f"{self._name} holds an array of the sizes {list(shape)}, which do not fit into it")
        return shape
