"""Scratch memory that kernels of TensorFlow Lite Micro ask for while they are prepared.

Source: ``RequestScratchBufferInArena`` in kernels/*.cc of tensorflow/tflite-micro, 2026-08-20.  Pointers have 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor

_Tensors = tuple[FileTensor | None, ...]
POINTER_BYTES = 8
_INT_BYTES = 4


def scratch_bytes(operator: FileOperator, graph: FileGraph) -> tuple[int, ...]:
    """The sizes that the operator's kernel asks for, in its order."""
    rule = _RULES.get(operator.code)
    if rule is None:
        return ()
    return rule(tuple(map(graph.tensor, operator.inputs)), graph.tensors[operator.outputs[0]])


def _elements(tensor: FileTensor | None) -> int:
    return 0 if tensor is None else math.prod(tensor.shape)


def _unpacked(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    """Weights of four bits, widened."""
    weights = inputs[1]
    return (_elements(weights),) if weights is not None and weights.dtype == "int4" else ()


def _iterated(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    data, axes = inputs[0], inputs[1]
    assert data is not None
    return _INT_BYTES * len(data.shape), _INT_BYTES * _elements(axes)


def _summed(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    data = inputs[0]
    assert data is not None
    sums = (_INT_BYTES * _elements(output),) if data.dtype in ("int8", "int16") else ()
    return (*sums, *_iterated(inputs, output))


def _pointers(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    return (POINTER_BYTES * len(inputs),)


def _mirrored(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    data = inputs[0]
    assert data is not None
    return (_INT_BYTES * len(data.shape),) * 2


def _transposed(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    data, bias = inputs[2], inputs[3] if len(inputs) > 3 else None
    assert data is not None
    wide = {"int8": 4, "int16": 8}.get(data.dtype)
    widened = (8 * _elements(bias),) if bias is not None and bias.dtype == "int16" and data.dtype == "int16" else ()
    return (*((wide * _elements(output),) if wide else ()), *widened)


def _gates(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    """Four of the size of the cell state."""
    state = inputs[19]
    assert state is not None
    return (state.size_bytes,) * 4


def _memory(inputs: _Tensors, output: FileTensor) -> tuple[int, ...]:
    data, weights = inputs[0], inputs[1]
    assert data is not None
    assert weights is not None
    batch, filters = data.shape[0], weights.shape[0]
    sums = 4 * batch * filters
    return (sums,) if data.dtype == "float32" else (sums, 4 * _elements(output))


_RULES: Mapping[str, Callable[[_Tensors, FileTensor], tuple[int, ...]]] = {
    "CONV_2D": _unpacked,
    "DEPTHWISE_CONV_2D": _unpacked,
    "FULLY_CONNECTED": _unpacked,
    "TRANSPOSE_CONV": _transposed,
    "ADD_N": _pointers,
    "MIRROR_PAD": _mirrored,
    "MEAN": _summed,
    "SUM": _summed,
    "REDUCE_MAX": _iterated,
    "REDUCE_MIN": _iterated,
    "REDUCE_ALL": _iterated,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _gates,
    "SVDF": _memory,
}
