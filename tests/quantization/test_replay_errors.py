"""Calibration on samples that the float model fails on ends with a sentence."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from convertkit.errors import ToolError
from convertkit.quantization.graph.replay import open_session, run_all
from tests import onnx_models


def test_a_kernel_that_fails_is_told() -> None:
    """ONNX Runtime's own ``Fail`` is not a ``RuntimeError``."""
    sizes = numpy_helper.from_array(np.array([3], np.int64), "sizes")
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"])
    model = ir.from_proto(onnx_models.model([node], {"x": ["N"]}, {"y": [3]}, [sizes]))
    with pytest.raises(ToolError, match="ONNX Runtime fails on the float model"):
        list(run_all(open_session(model), ["y"], [{"x": np.zeros(4, np.float32)}], {}))
