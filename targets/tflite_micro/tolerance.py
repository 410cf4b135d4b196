"""How far TensorFlow Lite Micro may be from LiteRT on the same file."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.stage import FLOAT32, Tolerance
from convertkit.targets.tflite_micro.file import FileGraph

_INTEGER = Tolerance(
    "the same integers through reference kernels, which round a product twice; softmax and depth amplify single "
    "roundings",
    lsb=3.0,
    lsb_share=0.99,
    snr_db=20.0,
)
"""The bounds of the ``tflite`` target's integers, where results need not be the same integer: the kernels multiply by
31 bits, round, shift, and round again (gemmlowp, ``MultiplyByQuantizedMultiplier``); XNNPACK rounds once."""


def tolerance_of(graphs: Sequence[FileGraph]) -> Tolerance:
    """Of a file with integers that stand for real numbers, and of one without."""
    tensors = (tensor for graph in graphs for tensor in graph.tensors)
    return _INTEGER if any(tensor.channels and tensor.dtype.startswith("int") for tensor in tensors) else FLOAT32
