"""Read FlatBuffers from untrusted bytes: every offset is checked before it is followed.

Only what TFLite's schema needs: tables, scalars, strings and vectors.
Source: FlatBuffers internals, https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError

T = TypeVar("T", int, float, bool)

_SCALARS = {
    "bool": struct.Struct("<?"),
    "i8": struct.Struct("<b"),
    "u8": struct.Struct("<B"),
    "i32": struct.Struct("<i"),
    "u32": struct.Struct("<I"),
    "i64": struct.Struct("<q"),
    "u64": struct.Struct("<Q"),
    "f32": struct.Struct("<f"),
}
_SOFFSET = struct.Struct("<i")
_UOFFSET = struct.Struct("<I")
_VOFFSET = struct.Struct("<H")


def root(data: memoryview) -> Table:
    """The table that the file's first four bytes point to."""
    return Table.at(data, _follow(data, 0))


@dataclass(frozen=True, slots=True)
class Table:
    """One table: ``start`` is its position, ``fields`` the relative positions of its slots (0: absent)."""

    data: memoryview
    start: int
    fields: tuple[int, ...]

    @classmethod
    def at(cls, data: memoryview, start: int) -> Table:
        """The table at ``start``, whose vtable must lie within ``data`` as well."""
        vtable = start - _unpack(_SOFFSET, data, start)
        size = _unpack(_VOFFSET, data, vtable)
        length = _unpack(_VOFFSET, data, vtable + 2)
        if size < 4 or size % 2 or vtable + size > len(data) or start + length > len(data):
            raise SourceError("the FlatBuffer is broken: a table reaches beyond the end of the file")
        fields = struct.unpack_from(f"<{(size - 4) // 2}H", data, vtable + 4)
        if any(field >= length for field in fields if field):
            raise SourceError("the FlatBuffer is broken: a field lies outside its table")
        return cls(data, start, fields)

    def has(self, slot: int) -> bool:
        """Whether the file stores this field, rather than leaving it at its default."""
        return self.place(slot) != 0

    def scalar(self, slot: int, kind: str, default: T) -> T:
        """A number or truth value; ``kind`` is a key such as ``i32``."""
        position = self.place(slot)
        if not position:
            return default
        value = _unpack(_SCALARS[kind], self.data, position)
        return type(default)(value)

    def table(self, slot: int) -> Table | None:
        """A table that this one points to."""
        position = self.place(slot)
        return Table.at(self.data, _follow(self.data, position)) if position else None

    def text(self, slot: int) -> str:
        """A string, empty where absent; bytes that are not UTF-8 are replaced."""
        raw = self.array(slot, "u1")
        return raw.tobytes().decode(errors="replace")

    def array(self, slot: int, dtype: str) -> Array:
        """A vector of numbers as a view of the file; ``dtype`` is NumPy's code such as ``<i4``."""
        position = self.place(slot)
        kind = np.dtype(dtype)
        if not position:
            return np.empty(0, kind)
        start, count = self._vector(position, kind.itemsize)
        return np.frombuffer(self.data, kind, count, start)

    def integers(self, slot: int, dtype: str = "<i4") -> tuple[int, ...]:
        """A short vector of integers."""
        return tuple(self.array(slot, dtype).tolist())

    def tables(self, slot: int) -> tuple[Table, ...]:
        """A vector of tables."""
        position = self.place(slot)
        if not position:
            return ()
        start, count = self._vector(position, 4)
        return tuple(Table.at(self.data, _follow(self.data, start + 4 * index)) for index in range(count))

    def place(self, slot: int) -> int:
        """Where in the file the field stands: its value, or the offset of what it points to; 0 where it is absent."""
        relative = self.fields[slot] if slot < len(self.fields) else 0
        return self.start + relative if relative else 0

    def vector(self, slot: int, itemsize: int = 4) -> tuple[int, int]:
        """Where in the file the first element of a vector stands, and how many there are."""
        return self._vector(self.place(slot), itemsize)

    def _vector(self, position: int, itemsize: int) -> tuple[int, int]:
        start = _follow(self.data, position)
        count = _unpack(_UOFFSET, self.data, start)
        if start + 4 + count * itemsize > len(self.data):
            raise SourceError("the FlatBuffer is broken: a vector reaches beyond the end of the file")
        return start + 4, count


def _follow(data: memoryview, position: int) -> int:
    return position + int(_unpack(_UOFFSET, data, position))


def _unpack(kind: struct.Struct, data: memoryview, position: int) -> int:
    if position < 0 or position + kind.size > len(data):
        raise SourceError("the FlatBuffer is broken: an offset points outside the file")
    value: int = kind.unpack_from(data, position)[0]
    return value
