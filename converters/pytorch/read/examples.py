"""Example inputs that a traced archive keeps, read without torch's unpickler."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np

from convertkit.converters.pytorch.model.examples import Example, ExampleArray, flattened, integer_range
from convertkit.converters.pytorch.read.pickles import StoredTensor, stored_examples

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
