"""Vectors of numbers that are equal lie in a FlatBuffer once; vectors of offsets never do."""

from __future__ import annotations

import struct

import flatbuffers
import pytest

from convertkit.targets.tflite.shared_vectors import SharingBuilder


def vector(builder: flatbuffers.Builder, numbers: list[int], size: int = 4) -> int:
    builder.StartVector(size, len(numbers), size)
    for number in reversed(numbers):
        {4: builder.PrependInt32, 8: builder.PrependInt64}[size](number)
    return builder.EndVector()


def read(builder: flatbuffers.Builder, offset: int, kind: str = "i") -> list[int]:
    start = len(builder.Bytes) - offset
    (count,) = struct.unpack_from("<I", builder.Bytes, start)
    return list(struct.unpack_from(f"<{count}{kind}", builder.Bytes, start + 4))


@pytest.mark.parametrize("room", [8, 4096], ids=["grows", "large"])
def test_numbers_are_shared_and_readable(room: int) -> None:
    builder = SharingBuilder(room)
    first = vector(builder, [3, 1, 4])
    name = builder.CreateString("a name of odd length")
    assert builder.CreateString("a name of odd length") > name
    second, size = vector(builder, [2, 7]), builder.Offset()
    assert vector(builder, [3, 1, 4]) == first
    assert builder.Offset() == size, "nothing was added"
    third = vector(builder, [3, 1])
    assert [read(builder, each) for each in (first, second, third)] == [[3, 1, 4], [2, 7], [3, 1]]


def test_wider_numbers_of_the_same_bytes_are_others() -> None:
    builder = SharingBuilder(64)
    narrow = vector(builder, [1, 0])
    wide = vector(builder, [1], 8)
    assert read(builder, narrow) == [1, 0]
    assert read(builder, wide, "q") == [1]
    assert (len(builder.Bytes) - wide + 4) % 8 == len(builder.Bytes) % 8, "aligned from the end"


def test_offsets_are_not_shared() -> None:
    builder = SharingBuilder(64)
    found = []
    for _ in range(2):
        name = builder.CreateString("x")
        builder.StartVector(4, 1, 4)
        builder.PrependUOffsetTRelative(name)
        found.append(builder.EndVector())
    assert found[0] != found[1]
