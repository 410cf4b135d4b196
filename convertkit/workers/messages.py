"""What goes through a worker's pipes: a length, a JSON header, then raw array bytes; nothing that is ever executed.

NumPy is imported with the first message only, so that a worker can be started before it.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from convertkit.artifact import Array

CHUNK = 1 << 20
_PART_S = 0.2
_LENGTH = struct.Struct("<Q")


def send_line(stream: IO[bytes], text: str) -> None:
    """Write what a worker hears first, before it needs NumPy."""
    data = text.encode()
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive_line(read: Callable[[int], bytes | bytearray]) -> str:
    """What :func:`send_line` wrote, through a function that reads so many bytes."""
    (length,) = _LENGTH.unpack(read(_LENGTH.size))
    return bytes(read(length)).decode()


def send(stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write one message."""
    import numpy as np

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    index = [[name, array.dtype.name, list(arrays[name].shape)] for name, array in contiguous.items()]
    text = json.dumps({**header, "arrays": index}).encode()
    stream.write(_LENGTH.pack(len(text)))
    stream.write(text)
    for array in contiguous.values():
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()


def receive(read: Callable[[int], bytes | bytearray]) -> tuple[dict[str, Any], dict[str, Array]]:
    """One message, through a function that reads so many bytes."""
    import ml_dtypes
    import numpy as np

    (length,) = _LENGTH.unpack(read(_LENGTH.size))
    header = json.loads(read(length))
    arrays = {}
    for name, dtype_name, shape in header.pop("arrays"):
        dtype = np.dtype(getattr(ml_dtypes, dtype_name, dtype_name))
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(read(count * dtype.itemsize), dtype).reshape(shape)
    return header, arrays


def is_complete(data: bytes | bytearray) -> bool:
    """Whether ``data`` is one whole message."""
    if len(data) < _LENGTH.size:
        return False
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    if len(data) < end:
        return False
    index = json.loads(data[_LENGTH.size : end])["arrays"]
    expected: int = end + sum(_size_bytes(dtype, shape) for _, dtype, shape in index)
    return len(data) == expected


def _size_bytes(dtype: str, shape: Sequence[int]) -> int:
    import ml_dtypes
    import numpy as np

    return int(np.prod(shape, dtype=np.int64)) * np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize


def reader(stream: IO[bytes]) -> Callable[[int], bytearray]:
    """Reads exactly so many bytes of a pipe; ``EOFError`` where it ends before."""

    def read(count: int) -> bytearray:
        data = bytearray(count)
        view, filled = memoryview(data), 0
        while filled < count:
            got = os.readv(stream.fileno(), [view[filled : filled + CHUNK]])
            if got == 0:
                raise EOFError
            filled += got
        return data

    return read


def deadline_reader(stream: IO[bytes], deadline: float | None) -> Callable[[int], bytearray]:
    """Like ``reader``, but raises ``TimeoutError`` once the monotonic clock passes ``deadline``, if there is one.

    It waits in short parts, so that a task that is halted does not wait on (:mod:`convertkit.tasks.halting`).
    """
    until = math.inf if deadline is None else deadline

    def read(count: int) -> bytearray:
        data = bytearray(count)
        view, filled = memoryview(data), 0
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while filled < count:
                if not selector.select(min(_PART_S, max(0.0, until - time.monotonic()))):
                    if time.monotonic() >= until:
                        raise TimeoutError
                    continue
                got = os.readv(stream.fileno(), [view[filled : filled + CHUNK]])
                if got == 0:
                    raise EOFError
                filled += got
        return data

    return read
