"""MeanVarianceNormalization gives zeros for equal elements, where ONNX Runtime's kernel gives 0 / 0."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit.onnx.canonical import canonicalize
from convertkit.targets.onnxruntime.mean_variance import write_out_mean_variance

HEAD = '<ir_version: 8, opset_import: ["" : 18]> g (float[n,3,4,5] x) => (float[n,3,4,5] y)'


def sessions(axes: str) -> tuple[ort.InferenceSession, ort.InferenceSession]:
    """The operator itself, and what is delivered."""
    proto = onnx.parser.parse_model(f"{HEAD} {{ y = MeanVarianceNormalization {axes} (x) }}")
    model = canonicalize(ir.from_proto(proto))
    write_out_mean_variance(model)
    return ort.InferenceSession(proto.SerializeToString()), ort.InferenceSession(ir.to_proto(model).SerializeToString())


@pytest.mark.parametrize("axes", ["", "<axes = [2, 3]>", "<axes = [0, 1, 2, 3]>"])
def test_equal_elements_are_zeros_and_others_as_before(axes: str):
    kernel, delivered = sessions(axes)
    x = np.random.default_rng(1).normal(3, 2, (2, 3, 4, 5)).astype(np.float32)
    (found,) = delivered.run(None, {"x": x})
    np.testing.assert_allclose(found, kernel.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
    assert not np.isfinite(kernel.run(None, {"x": np.ones_like(x)})[0]).any(), "the kernel is mended: this may go"
    for equal in (0.0, 1.0, 0.5537):
        (found,) = delivered.run(None, {"x": np.full_like(x, equal)})
        assert np.array_equal(found, np.zeros_like(x))


def test_other_operators_that_have_bodies_stay():
    text = f"{HEAD} {{ h = HardSwish(x)  y = MeanVarianceNormalization(h) }}"
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(text)))
    write_out_mean_variance(model)
    proto = ir.to_proto(model)
    assert "HardSwish" in {node.op_type for node in proto.graph.node}
    (found,) = ReferenceEvaluator(proto).run(None, {"x": np.ones((1, 3, 4, 5), np.float32)})
    assert not found.any()


def test_an_export_has_it(tmp_path):
    onnx.save(onnx.parser.parse_model(f"{HEAD} {{ y = MeanVarianceNormalization(x) }}"), tmp_path / "model.onnx")
    made = convertkit.export(tmp_path / "model.onnx", "onnxruntime", output=tmp_path / "out")
    assert not made.run(np.ones((2, 3, 4, 5), np.float32))["y"].any()
