"""What we use of ONNX Runtime that its documentation does not promise, each with a test of what we rely on.

The classes of its errors lie in its native module alone; most of them are not ``RuntimeError``.  Where a new version
moves or changes one, ``tests/onnx/test_onnxruntime_compat.py`` names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
