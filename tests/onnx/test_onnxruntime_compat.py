"""What is relied on of ONNX Runtime beyond its documentation: where a new version fails here, mend the module."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx import onnxruntime_compat as compat
from tests import onnx_models


def session(model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(
        model if isinstance(model, bytes) else model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def one(kind: str, domain: str = "", dtype: int = 1, **how) -> object:
    node = helper.make_node(kind, ["x"], ["y"], domain=domain)
    made = onnx_models.model([node], {"x": [2]}, {"y": [2]}, **how)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = dtype
    return made


def test_a_missing_kernel_has_its_error() -> None:
    with pytest.raises(compat.KERNEL_LACKING):
        session(one("Relu", dtype=5))  # int16
    assert issubclass(compat.KERNEL_LACKING, compat.CANNOT_RUN)


@pytest.mark.parametrize("model", [one("Unheard"), one("Relu", opset=99), one("Relu", ir_version=99)])
def test_what_it_cannot_run_is_told_at_load(model) -> None:
    with pytest.raises(compat.CANNOT_RUN):
        session(model)
    with pytest.raises(compat.ERRORS):
        session(model)


def test_no_model_at_all() -> None:
    with pytest.raises(compat.ERRORS) as caught:
        session(b"\xff\xff\xff")
    assert not isinstance(caught.value, RuntimeError), "its errors are not a RuntimeError: they have to be named"


def test_a_failing_kernel_has_its_error() -> None:
    sizes = numpy_helper.from_array(np.array([3], np.int64), "sizes")
    node = helper.make_node("Reshape", ["x", "sizes"], ["y"])
    made = session(onnx_models.model([node], {"x": ["N"]}, {"y": [3]}, [sizes]))
    with pytest.raises(compat.ERRORS):
        made.run(None, {"x": np.zeros(4, np.float32)})
    with pytest.raises(compat.ERRORS):
        made.run(None, {"x": np.zeros(3, np.int64)})


def test_every_kernel_is_described() -> None:
    relu = next(each for each in compat.kernels() if each.op_name == "Relu" and each.provider == "CPUExecutionProvider")
    assert relu.domain == ""
    assert len(relu.version_range) == 2
    assert any("tensor(float)" in types for types in relu.type_constraints.values())
