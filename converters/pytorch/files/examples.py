"""Example inputs that a traced archive keeps, read without torch's unpickler."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from convertkit.artifact import Array, Dim
from convertkit.converters.pytorch.files.pickles import StoredTensor, stored_examples
from convertkit.converters.pytorch.interface.leaves import Kind
from convertkit.converters.pytorch.interface.leaves import Path as Way

_DTYPE_OF_STORAGE = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}


_MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class ExampleArray:
    """Shape (free dimensions by name) and dtype of one array, and the half-open range of its integers where known."""

    shape: tuple[Dim, ...]
    dtype: str
    value_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One array of a parameter, and the way to it through tuples, lists and dicts."""

    array: ExampleArray
    path: Way = ()
    kinds: tuple[Kind, ...] = ()


Example = tuple[Item, ...]
"""What one parameter was called with."""


def flattened(value: object, read: Callable[[object, Way], ExampleArray | None]) -> Example | None:
    """The arrays in a value of nested tuples, lists and dicts; None where ``read`` cannot read one of them."""
    found: list[Item] = []
    waiting: list[tuple[object, Way, tuple[Kind, ...]]] = [(value, (), ())]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return tuple(found)
        each, path, kinds = waiting.pop()
        if isinstance(each, Mapping):
            inner: list[tuple[int | str, object]] = [(str(key), item) for key, item in each.items()]
            kind: Kind = "dict"
        elif isinstance(each, tuple | list):
            inner, kind = list(enumerate(each)), "tuple" if isinstance(each, tuple) else "list"
        else:
            array = read(each, path)
            if array is None:
                return None
            found.append(Item(array, path, kinds))
            continue
        waiting += [(item, (*path, key), (*kinds, kind)) for key, item in reversed(inner)]
    return None  # a pickle of a few bytes may hold one list in another more often than there is time


def traced_examples(path: Path) -> tuple[Example, ...] | None:
    """What the archive was traced with, in the order of ``forward``'s parameters; None where it does not say.

    Recent torch stores shapes and dtypes and leaves the values out.
    """
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/traced_inputs.pkl")]
        if not pickles:
            return None
        try:
            stored = stored_examples(archive.read(pickles[0]))
        except (pickle.UnpicklingError, ValueError, EOFError, IndexError, AttributeError, TypeError, KeyError):
            return None
        folder = pickles[0].removesuffix(".pkl")
        if not isinstance(stored, dict) or not isinstance(stored.get("forward"), tuple | list):
            return None
        examples = [flattened(value, lambda each, path: _array(archive, folder, each)) for value in stored["forward"]]
    return None if None in examples else tuple(example for example in examples if example is not None)


def integer_range(values: Array) -> tuple[float, float] | None:
    """The half-open range of integers that vary, None where nothing can be said."""
    if values.dtype.kind not in "iu" or values.size == 0 or values.min() == values.max():
        return None
    return float(values.min()), float(values.max()) + 1


def _array(archive: zipfile.ZipFile, folder: str, value: object) -> ExampleArray | None:
    if not isinstance(value, StoredTensor) or value.storage not in _DTYPE_OF_STORAGE:
        return None
    name = _DTYPE_OF_STORAGE[value.storage]
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    try:
        flat = np.frombuffer(archive.read(f"{folder}/{value.key}"), dtype)
    except (KeyError, ValueError):
        flat = np.empty(0, dtype)
    return ExampleArray(value.shape, name, integer_range(flat))
