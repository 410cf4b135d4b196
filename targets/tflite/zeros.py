"""Zeros among the weights of a TFLite file, and how large the file would be with TFLite's sparse tensors.

A sparse tensor holds by rows of its last axis what is not zero, the place of each in its row, and where the rows begin;
a DENSIFY in front of what reads it makes it dense.  LiteRT has it for float32 and int8.  Nothing sparse is written:
docs/measurements/channels.md tells why.
Source: TensorFlow Lite's schema, ``SparsityParameters``, and the kernel of DENSIFY.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.artifact import Array
from convertkit.operators import Zeros
from convertkit.targets.tflite.inspection import CODES, indices

_STORED: dict[int, np.dtype[Any]] = {schema.TensorType.FLOAT32: np.dtype("<f4"), schema.TensorType.INT8: np.dtype("i1")}
_READERS = frozenset({
    "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "CONV_3D", "BATCH_MATMUL", "DEQUANTIZE",
    "UNIDIRECTIONAL_SEQUENCE_LSTM", "LSTM",
})  # fmt: skip
_TABLES = 320
"""Bytes of a tensor's tables of sparsity, its dense twin's entry and a DENSIFY, as FlatBuffers writes them."""
_BYTE, _SHORT = 1 << 8, 1 << 16
_SPEED = (
    "they are not written, since LiteRT makes them dense again when it loads them, and zeros take the time of other "
    "numbers (measured on x86; on Arm nothing was run)"
)


def zeros(path: Path) -> Zeros:
    """Of the constant weights of products in float32 and int8, each buffer counted once; none of int4."""
    content = path.read_bytes()
    model = schema.Model.GetRootAs(content, 0)
    count = weights = saved = 0
    for array in _weights(model):
        count += int((array == 0).sum())
        weights += array.size
        saved += max(0, array.nbytes - sparse_bytes(array))
    return Zeros(count, weights, len(content) - saved, _SPEED)


def sparse_bytes(array: Array) -> int:
    """Of a tensor (…, columns): values that are not zero, their columns, where the rows begin, and the tables."""
    rows, kept = math.prod(array.shape[:-1]), int(np.count_nonzero(array))
    return kept * (array.itemsize + _width(array.shape[-1] - 1)) + (rows + 1) * _width(kept) + _TABLES


def _width(most: int) -> int:
    """Bytes of an index up to ``most``."""
    return 1 if most < _BYTE else 2 if most < _SHORT else 4


def _weights(model: Any) -> Iterator[Array]:
    seen = set[int]()
    for graph in (model.Subgraphs(place) for place in range(model.SubgraphsLength())):
        for operator in (graph.Operators(place) for place in range(graph.OperatorsLength())):
            entry = model.OperatorCodes(operator.OpcodeIndex())
            if CODES[max(entry.BuiltinCode(), entry.DeprecatedBuiltinCode())] not in _READERS:
                continue
            for index in filter(_is_given, indices(operator.InputsAsNumpy())):
                tensor = graph.Tensors(index)
                array = _constant(model, tensor)
                if array is not None and array.ndim > 1 and int(tensor.Buffer()) not in seen:
                    seen.add(int(tensor.Buffer()))
                    yield array


def _is_given(index: int) -> bool:
    return index >= 0


def _constant(model: Any, tensor: Any) -> Array | None:
    dtype = _STORED.get(tensor.Type())
    data = model.Buffers(tensor.Buffer()).DataAsNumpy()
    if dtype is None or not hasattr(data, "tobytes"):
        return None
    return np.asarray(np.frombuffer(data, dtype).reshape(indices(tensor.ShapeAsNumpy())))
