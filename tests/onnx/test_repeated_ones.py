"""An Einsum whose operand has size 1 along an axis that is longer in another: ONNX's inference says 1 of the result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import convertkit
from convertkit.onnx.canonical import canonicalize

BODIES = {
    "a constant first": ("float[N,5,8] x", 'e = Einsum <equation = "bnc,bch->bnh"> (w, x)'),
    "with an ellipsis": ("float[N,5,8] x", 'e = Einsum <equation = "...nc,...ch->...nh"> (w, x)'),
    "sizes that are numbers": ("float[4,5,8] x", 'e = Einsum <equation = "bnc,bch->bnh"> (w, x)'),
    "computed": ("float[N,5,8] x", 'm = Abs (w) e = Einsum <equation = "bnc,bch->bnh"> (m, x)'),
    "computed of the input": (
        "float[N,5,8] x",
        'm = ReduceMax (x, first) f = Einsum <equation = "abc,abh->abh"> (m, x) e = Slice (f, a, b, last)',
    ),
    "summed": ("float[N,5,8] x", 'f = Einsum <equation = "bnc,bch->nh"> (w, x) e = Unsqueeze (f, first)'),
    "said nowhere": ("float[N,5,8] x", 'e = Einsum <equation = "bnc,bch"> (w, x)'),
}
TEXT = """<ir_version: 8, opset_import: ["" : 18]>
graph ({given}) => ({declared} y) <float[1,3,5] w, int64[1] first = {{0}}, int64[1] last = {{2}}, int64[1] a = {{0}},
int64[1] b = {{2}}> {{ {body} y = Relu (e) }}"""


def model(name: str, declared: str = "float") -> onnx.ModelProto:
    given, body = BODIES[name]
    parsed = onnx.parser.parse_model(TEXT.format(given=given, body=body, declared=declared))
    weights = np.arange(15, dtype=np.float32).reshape(1, 3, 5) / 8
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return parsed


def run(of: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    (y,) = onnxruntime.InferenceSession(of.SerializeToString()).run(None, {"x": x})
    return np.asarray(y)


def sizes(value: ir.Value) -> list[int | str | None]:
    assert value.shape is not None
    return [size.value if isinstance(size, ir.SymbolicDim) else size for size in value.shape]


@pytest.mark.parametrize("inferred", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_sizes_are_those_of_a_run(name: str, inferred: bool) -> None:
    """Also where the file tells the sizes that ONNX's inference has said."""
    source = model(name)
    if inferred:
        source = onnx.shape_inference.infer_shapes(source)
    made = canonicalize(ir.from_proto(source))
    x = np.random.default_rng(0).standard_normal((4, 5, 8), np.float32)
    expected = run(source, x)
    np.testing.assert_allclose(run(ir.to_proto(made), x), expected, rtol=1e-5, atol=1e-5)
    for value in made.graph.outputs:
        told = [4 if size == "N" else size for size in sizes(value)]
        assert told == list(expected.shape)


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_a_free_batch_is_kept(tmp_path: Path, target: str) -> None:
    onnx.save(model("a constant first"), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    (output,) = done.report["interface"]["outputs"]
    assert done.passed
    assert output["shape"] == ["N", 3, 8]


def test_a_one_that_only_the_file_says_is_not_trusted(tmp_path: Path) -> None:
    """Nothing is squeezed that may be longer."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        graph (float[N,5] x, float[N,5,8] z) => (float[N,8] y) <float[1,5] m> {
        m = com.microsoft.Gelu (x) y = Einsum <equation = "bc,bch->bh"> (m, z) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target="onnxruntime", output=tmp_path / "out")
    assert done.passed
