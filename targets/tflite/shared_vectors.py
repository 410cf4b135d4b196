"""A FlatBuffers builder that stores equal vectors of numbers once: shapes and lists of tensors repeat in a graph."""

from __future__ import annotations

import flatbuffers

_COUNT_BYTES = 4
"""In front of a vector."""


class SharingBuilder(flatbuffers.Builder):  # type: ignore[misc]
    """As its base, but a vector that lies in the buffer already is taken out again when it ends.

    Vectors of offsets stay: they say how far away something is, so equal bytes mean other things at other places.
    """

    def __init__(self, initial_size: int) -> None:
        super().__init__(initial_size)
        self._known: dict[tuple[int, bytes], int] = {}
        self._before, self._size, self._alignment, self._is_numbers = 0, 0, 1, False

    def StartVector(self, elem_size: int, num_elems: int, alignment: int) -> int:  # noqa: N802 - the base's own name
        self._before, self._size = self.Offset(), elem_size * num_elems
        self._alignment, self._is_numbers = alignment, True
        return int(super().StartVector(elem_size, num_elems, alignment))

    def PrependUOffsetTRelative(self, off: int) -> None:  # noqa: N802 - the base's own name
        self._is_numbers = False
        super().PrependUOffsetTRelative(off)

    def EndVector(self, num_elems: int | None = None) -> int:  # noqa: N802 - the base's own name
        made = int(super().EndVector(num_elems))
        if not self._is_numbers:
            return made
        self._is_numbers = False  # text ends as a vector, too, and has not started as one
        start = len(self.Bytes) - made
        key = self._alignment, bytes(self.Bytes[start : start + _COUNT_BYTES + self._size])
        if key not in self._known:
            self._known[key] = made
            return made
        self.head = len(self.Bytes) - self._before
        return self._known[key]
