"""Opsets 27 and 28 as opset 26: the same numbers as ONNX's reference evaluator gives the newer model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from convertkit.artifact import Artifact
from convertkit.converters.onnx.source import OnnxSource
from convertkit.errors import ToolError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner, optimised_runner
from convertkit.onnx.specs import interface
from convertkit.recipe import ExportOptions

X = np.float32([[-3.5, 2.0, 0.0, 7.25], [1.5, -0.25, 9.0, -8.0]])
BYTES = np.int8([[-128, -1, 0, 5], [127, 64, -77, 3]])
SHIFTS = np.int8([[1, 3, 2, 0], [7, 1, 2, 6]])
CASES = {
    "float[2,4] x -> y = Celu <alpha = 0.5> (x)": X,
    "float[2,4] x, float[2,4] z -> y = Mod (x, z)": (X, X[::-1].copy() + np.float32(0.3)),
    "float[2,4] x, float[2,4] z -> y = Mod <fmod = 1> (x, z)": (X, X[::-1].copy() + np.float32(0.3)),
    "int8[2,4] x, int8[2,4] z -> y = Mod (x, z)": (BYTES, SHIFTS + np.int8(1)),
    'int8[2,4] x, int8[2,4] z -> y = BitShift <direction = "RIGHT"> (x, z)': (BYTES, SHIFTS),
    'int8[2,4] x, int8[2,4] z -> y = BitShift <direction = "LEFT"> (x, z)': (BYTES, SHIFTS),
    "float[1,1,2,4] x -> y = SpaceToDepth <blocksize = 2> (x)": X[None, None],
    'float[1,2,2,4] x -> y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x)': np.stack([X, X[::-1]])[None],
    "float[2,4] x, float[2,4] z -> y = SwiGLU (x, z)": (X, X[::-1].copy()),
    "float[2,4] x -> y = ReduceLogSumExp (x)": X,
    'float[2,4] x -> t = Einsum <equation = "ij,kj->ik"> (x, x) y = Celu (t)': X,
}


def model(case: str, opset: int = 28) -> onnx.ModelProto:
    inputs, body = case.split(" -> ")
    kind = inputs.partition("[")[0]
    return onnx.parser.parse_model(
        f'<ir_version: 12, opset_import: ["" : {opset}]> g ({inputs}) => ({kind} y) {{ {body} }}'
    )


@pytest.mark.parametrize("case", CASES)
def test_newer_opsets_keep_their_numbers(case, tmp_path):
    operands = CASES[case] if isinstance(CASES[case], tuple) else (CASES[case],)
    feed = dict(zip(("x", "z"), operands))
    newer = model(case)
    expected = ReferenceEvaluator(newer).run(None, feed)[0]
    onnx.save(newer, tmp_path / "newer.onnx")
    older = canonicalize(load_model(tmp_path / "newer.onnx"))
    assert older.graph.opset_imports[""] == 26
    path = tmp_path / "older.onnx"
    onnx.save(ir.to_proto(older), path)
    with OnnxRunner(artifact(path)) as runner:
        found = runner.run(feed)["y"]
        assert not runner.refusal
    assert found.dtype == expected.dtype
    largest = np.abs(expected.astype(np.float64)).max()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6 * largest)  # ONNX Runtime's Sigmoid is as exact


def artifact(path: Path) -> Artifact:
    return Artifact(path, "onnx", *interface(load_model(path)), sha256="")


def test_a_type_that_no_older_operator_takes_is_refused_by_name(tmp_path):
    text = "bfloat16[4] x, bool[4] c -> y = Compress (x, c)"
    onnx.save(model(text), tmp_path / "newer.onnx")
    with pytest.raises(Unsupported, match=r"\(Compress-28\): opset 26 has no such operator for these types"):
        canonicalize(load_model(tmp_path / "newer.onnx"))


@pytest.fixture
def double_erf(tmp_path) -> Path:
    """A valid model that ONNX Runtime has no kernel for."""
    path = tmp_path / "erf.onnx"
    graph = onnx.parser.parse_graph("g (double[4] x) => (double y) { y = Erf (x) }")
    opsets = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def test_a_source_without_a_kernel_runs_in_the_reference_evaluator_and_says_so(double_erf):
    source = OnnxSource(double_erf, ExportOptions(source=str(double_erf), targets=("onnxruntime",)))
    assert not source.notes
    with source.runner() as runner:
        np.testing.assert_allclose(runner.run({"x": np.array([0.0, 0.5, -1.0, 9.0])})["y"][1], 0.5204998778130465)
        assert "reference evaluator" in runner.runtime
    (note,) = source.notes
    assert re.match(r"the source was run by ONNX.s reference evaluator 1\.\d+\.\d+: ", note)


def test_what_users_run_in_onnx_runtime_has_no_stand_in(double_erf):
    with pytest.raises(ToolError, match="does not load"), optimised_runner(artifact(double_erf)):
        pass


def test_an_operator_that_onnx_does_not_know_has_no_stand_in(tmp_path):
    node = onnx.helper.make_node("Unheard", ["x"], ["y"], domain="example")
    infos = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("example", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    with (
        pytest.raises(Unsupported, match="Unheard is an operator of example"),
        OnnxRunner(artifact(tmp_path / "m.onnx")),
    ):
        pass
