"""What we use of ONNX Runtime that its documentation does not promise, each with a test of what we rely on.

The classes of its errors lie in its native module alone; most of them are not ``RuntimeError``.  Where a new version
moves or changes one, ``tests/onnx/test_onnxruntime_compat.py`` names it.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

_STATE: Any = ort.capi.onnxruntime_pybind11_state

KERNEL_LACKING: type[Exception] = _STATE.NotImplemented
"""There is no kernel for an operator, its types or its form."""
CANNOT_RUN: tuple[type[Exception], ...] = (_STATE.NotImplemented, _STATE.InvalidGraph, _STATE.Fail)
"""A valid model that ONNX Runtime has no kernel, type or opset for."""
NOT_COMPUTED: tuple[type[Exception], ...] = (*CANNOT_RUN, _STATE.InvalidArgument, _STATE.RuntimeException)
"""A small model of constants is not one that ONNX Runtime computes."""
ERRORS: tuple[type[Exception], ...] = (
    _STATE.Fail,
    _STATE.EPFail,
    _STATE.InvalidArgument,
    _STATE.InvalidGraph,
    _STATE.InvalidProtobuf,
    _STATE.NoSuchFile,
    _STATE.NotImplemented,
    _STATE.RuntimeException,
    RuntimeError,
    ValueError,
)
"""What ONNX Runtime raises for a model that it cannot load or run."""


def kernels() -> Sequence[Any]:
    """Every kernel: its ``op_name``, ``domain``, ``version_range``, ``provider``, ``type_constraints``."""
    from onnxruntime.capi import _pybind_state

    found: Sequence[Any] = _pybind_state.get_all_opkernel_def()
    return found


def quantizes_by_thread(path: Path) -> bool:
    """Whether results depend on the number of threads: DynamicQuantizeLSTM gives each thread a part of the batch.

    Every part has a scale of its own, so that one thread alone computes what the operator's description says.
    """
    return holds(path, b"DynamicQuantizeLSTM")


def holds(path: Path, word: bytes) -> bool:
    """Whether a file has that word somewhere, as the name of an operator."""
    if not path.stat().st_size:
        return False  # of an empty file there is no map
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as model:
        return model.find(word) >= 0


@cache
def cuts_sums() -> bool:
    """Whether ONNX Runtime's products of bytes are cut at 16 bits on this processor; see :mod:`byte_sums`."""
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 2])]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [1, 1])]
    weight = onnx.numpy_helper.from_array(np.array([[127], [127]], np.int8), "w")
    node = onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "sum", inputs, outputs, [weight]),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=8,
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return int(session.run(None, {"x": np.array([[255, 255]], np.uint8)})[0][0, 0]) != 2 * 255 * 127
