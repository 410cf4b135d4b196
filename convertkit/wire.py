"""Protobuf's wire format, read from untrusted bytes without generated code.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from convertkit.errors import SourceError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Field number, wire type and value of every field; ``SourceError`` where the bytes end too early."""
    position = 0
    while position < len(data):
        tag, position = varint(data, position)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise SourceError("the protobuf is broken: a field without a number")
        if wire == VARINT:
            value, position = varint(data, position)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, position = varint(data, position)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise SourceError(f"the protobuf is broken: wire type {wire}")
        if position + length > len(data):
            raise SourceError("the protobuf is truncated: a field reaches beyond the end")
        yield number, wire, data[position : position + length]
        position += length


def varint(data: memoryview, position: int) -> tuple[int, int]:
    """An integer of up to ten bytes, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise SourceError("the protobuf is truncated: a number reaches beyond the end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise SourceError("the protobuf is broken: a number of more than ten bytes")


def messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """The embedded messages, strings or bytes of one repeated field."""
    for found, _, value in fields(data):
        if found == number and isinstance(value, memoryview):
            yield value


def message(data: memoryview, number: int) -> memoryview:
    """The last message of one field, empty where absent."""
    return next(iter(list(messages(data, number))[-1:]), memoryview(b""))


def text(data: memoryview, number: int) -> str:
    """A string field, empty where absent."""
    return text_of(message(data, number))


def text_of(data: memoryview) -> str:
    """Bytes as text."""
    return bytes(data).decode(errors="replace")


def varints(data: memoryview) -> Iterator[int]:
    """The numbers of a packed field, without their sign."""
    position = 0
    while position < len(data):
        value, position = varint(data, position)
        yield value


def integer(data: memoryview, number: int) -> int:
    """An integer field as a signed 64-bit number, 0 where absent."""
    found = 0
    for each, wire, value in fields(data):
        if each == number and wire == VARINT and isinstance(value, int):
            found = value
    found &= (1 << 64) - 1
    return found - (1 << 64) if found >> 63 else found


def mapping(data: memoryview, number: int) -> Mapping[str, memoryview]:
    """A map field from strings to messages."""
    return {text(entry, 1): message(entry, 2) for entry in messages(data, number)}
