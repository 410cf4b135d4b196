"""Numbers in a FlexBuffer map, which is how custom operators store their options.

Source: FlexBuffers internals, https://flatbuffers.dev/flexbuffers.  Every offset is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from convertkit.errors import SourceError

_MAP = 9
_INT, _UINT, _FLOAT, _BOOL = 1, 2, 3, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_CODES = {_INT: "bhiq", _UINT: "BHIQ", _BOOL: "BHIQ", _FLOAT: "  fd"}


def numbers(data: bytes) -> Mapping[str, float]:
    """Those entries of the root map whose values are numbers or truth values; ``SourceError`` where it is broken."""
    if len(data) < 3:
        raise SourceError("the operator has no options")
    width, kind = data[-1], data[-2]
    if kind >> 2 != _MAP:
        raise SourceError("the operator's options are not a map")
    start = _back(data, len(data) - 2 - width, width)
    inner = 1 << (kind & 3)
    count = _integer(data, start - inner, inner)
    if count > len(data):
        raise SourceError("the operator's options reach beyond their end")
    keys, key_width = _back(data, start - 3 * inner, inner), _integer(data, start - 2 * inner, inner)
    found = {}
    for place in range(count):
        name = _text(data, _back(data, keys + place * key_width, key_width))
        value = _number(data, start + place * inner, inner, _byte(data, start + count * inner + place))
        if value is not None:
            found[name] = value
    return found


def _number(data: bytes, at: int, width: int, packed: int) -> float | None:
    kind = packed >> 2
    if kind in _INDIRECT:
        at, width, kind = _back(data, at, width), 1 << (packed & 3), _INDIRECT[kind]
    return float(_read(data, at, width, _CODES[kind])) if kind in _CODES else None


def _back(data: bytes, at: int, width: int) -> int:
    """Offsets point backwards."""
    return at - _integer(data, at, width)


def _integer(data: bytes, at: int, width: int) -> int:
    return int(_read(data, at, width, "BHIQ"))


def _byte(data: bytes, at: int) -> int:
    return _integer(data, at, 1)


def _read(data: bytes, at: int, width: int, codes: str) -> float:
    code = codes[(1, 2, 4, 8).index(width)] if width in (1, 2, 4, 8) else " "
    if code == " " or at < 0 or at + width > len(data):
        raise SourceError("the operator's options reach beyond their end")
    value: float = struct.unpack_from(f"<{code}", data, at)[0]
    return value


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", max(at, 0))
    if at < 0 or end < 0:
        raise SourceError("the operator's options reach beyond their end")
    return data[at:end].decode(errors="replace")
