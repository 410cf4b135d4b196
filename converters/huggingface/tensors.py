"""Tensors of ``.safetensors`` files, mapped into memory: nothing is executed, or read before it is asked for.

Source: the format's description, https://huggingface.co/docs/safetensors: eight bytes of length, a table in JSON,
little-endian numbers.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from convertkit.artifact import Array
from convertkit.errors import SourceError, Unsupported

_MAX_HEADER_BYTES = 100 << 20
_DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one tensor lies: ``begin`` counts bytes of the file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int

    def read(self) -> Array:
        """The numbers, as the file has them, not copied; ``Unsupported`` for a type that is not a float."""
        if self.dtype not in _DTYPES:
            raise Unsupported(f"{self.path.name}: weights of the type {self.dtype}")
        if 0 in self.shape:
            return np.empty(self.shape, _DTYPES[self.dtype])
        return np.memmap(self.path, _DTYPES[self.dtype], "r", self.begin, self.shape)


def files(folder: Path) -> tuple[Path, ...]:
    """The files that hold the weights together; none where the folder has none under a usual name."""
    index = folder / INDEX
    if not index.is_file():
        return (folder / _WHOLE,) if (folder / _WHOLE).is_file() else ()
    try:
        if index.stat().st_size > _MAX_HEADER_BYTES:
            raise SourceError(f"{index}: larger than an index of weights is")
        names = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{index} is not an index of weights") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise SourceError(f"{index.name} names {name!r}, which is not a file beside it")
    return tuple(folder / name for name in names)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of the folder by its name; ``SourceError`` for a file that is not whole."""
    found: dict[str, Stored] = {}
    for path in files(folder):
        for name, tensor in _tensors(path):
            if name in found:
                raise SourceError(f"{path.name} and {found[name].path.name} both hold {name}")
            found[name] = tensor
    return found


def _tensors(path: Path) -> Iterator[tuple[str, Stored]]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(size - 8, _MAX_HEADER_BYTES):
            raise SourceError(f"{path.name} is not a whole safetensors file")
        header = stream.read(length)
    try:
        table = json.loads(header)
        rows = [(name, entry) for name, entry in table.items() if name != "__metadata__"]
        for name, entry in rows:
            yield name, _placed(path, name, entry, 8 + length, size)
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as error:
        raise SourceError(f"{path.name}: its table of tensors cannot be read") from error


def _placed(path: Path, name: str, entry: Mapping[str, Any], start: int, size: int) -> Stored:
    dtype, shape, (begin, end) = str(entry["dtype"]), entry["shape"], entry["data_offsets"]
    numbers = (*shape, begin, end)
    if not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= size for each in numbers):
        raise SourceError(f"{path.name}: {name} does not lie in the file")
    width = _DTYPES[dtype].itemsize if dtype in _DTYPES else None
    if end < begin or start + end > size or (width is not None and math.prod(shape) * width != end - begin):
        raise SourceError(f"{path.name}: {name} has {end - begin} bytes, which its sizes {list(shape)} do not give")
    return Stored(path, dtype, tuple(shape), start + begin)
