"""Operators that ONNX took back and ONNX Runtime still runs: against ONNX Runtime on them as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

import convertkit
from convertkit.errors import ConvertKitError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model

X = np.random.default_rng(0).normal(0.3, 2, (2, 3, 6, 7)).astype(np.float32)
CASES = [
    ("Affine", {"alpha": 2.5, "beta": -0.5}),
    ("Affine", {}),
    ("Crop", {"border": [1, 2, 3, 1]}),
    ("Crop", {"border": [0, 0, 0, 2]}),
    ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 2]}),
    ("ImageScaler", {"bias": [-103.9, -116.8, 5.0], "scale": 0.5}),
    ("ImageScaler", {"bias": [1.0, 2.0, 3.0]}),
    ("ParametricSoftplus", {"alpha": 1.5, "beta": 0.7}),
    ("Scale", {"scale": -3.0}),
    ("ScaledTanh", {"alpha": 1.7, "beta": 0.6}),
]


def written(path: Path, kind: str, attributes: dict[str, object], opset: int, name: str = "g") -> onnx.ModelProto:
    """One such operator between two that stayed."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node(kind, ["a"], ["b"], name="old", **attributes),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, 6, 7])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y])
    graph.name = name
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    path.write_bytes(proto.SerializeToString())
    return proto


def run(proto: onnx.ModelProto) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": X})[0]


@pytest.mark.parametrize("opset", [6, 7, 9])
@pytest.mark.parametrize(("kind", "attributes"), CASES)
def test_they_compute_what_onnx_runtime_computes(tmp_path: Path, kind: str, attributes: dict[str, object], opset: int):
    old = written(tmp_path / "old.onnx", kind, attributes, opset)
    canonical = canonicalize(load_model(tmp_path / "old.onnx"))
    np.testing.assert_allclose(run(ir.to_proto(canonical)), run(old), rtol=1e-6, atol=1e-6)


def test_a_model_that_begins_with_one_is_exported(tmp_path: Path):
    written(tmp_path / "old.onnx", "ImageScaler", CASES[5][1], 7)
    result = convertkit.export(str(tmp_path / "old.onnx"), "tflite", output=tmp_path / "out", cache=False)
    assert result.passed


def test_what_nobody_runs_is_named(tmp_path: Path):
    written(tmp_path / "old.onnx", "ATen", {}, 7)
    with pytest.raises(Unsupported, match=r"old \(ATen-7\): ONNX has no such operator at opset 7"):
        canonicalize(load_model(tmp_path / "old.onnx"))


def test_a_graph_without_a_name_is_read(tmp_path: Path):
    """ONNX's checker wants one, ONNX Runtime does not."""
    old = written(tmp_path / "old.onnx", "Affine", {}, 7, name="")
    canonical = canonicalize(load_model(tmp_path / "old.onnx"))
    np.testing.assert_allclose(run(ir.to_proto(canonical)), run(old), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("Crop", {}), ("Crop", {"border": [0, 1, 0, 1], "scale": [6]}), ("ScaledTanh", {}),
     ("ParametricSoftplus", {"alpha": 2.0}), ("ImageScaler", {"scale": 2.0})],
)  # fmt: skip
def test_what_states_too_little_is_named(tmp_path: Path, kind: str, attributes: dict[str, object]) -> None:
    """ONNX Runtime does not take it either, or makes something else of it."""
    written(tmp_path / "m.onnx", kind, attributes, 7)
    with pytest.raises(ConvertKitError, match=kind):
        convertkit.export(tmp_path / "m.onnx", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()
