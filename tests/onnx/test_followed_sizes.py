"""Files whose inputs were made dynamic, and whose other shapes were left as they were."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import convertkit
from convertkit.converters.onnx.followed_sizes import follow_free_sizes
from convertkit.converters.onnx.source import OnnxSource
from convertkit.recipe import ExportOptions

HEAD = '<ir_version: 8, opset_import: ["" : 17]> graph '
CASES = {
    "a number": ("(float[N,3] x) => (float[1,3] y) { y = Relu (x) }", ["N", 3]),
    "through what is between": (
        "(float[N,3] x) => (float[4,3] y) <float[1,3] m> { m = Relu (x) y = Exp (m) }",
        ["N", 3],
    ),
    "another input's name": ("(float[N,3] x, float[M] z) => (float[M,3] y) { y = Relu (x) }", ["N", 3]),
    "an input that has no name": ("(float[?,3] x) => (float[1,3] y) { y = Relu (x) }", ["x_0", 3]),
    "a name of its own": ("(float[N,3] x) => (float[K,3] y) { y = Relu (x) }", ["K", 3]),
    "nothing is dynamic": ("(float[2,3] x) => (float[1,3] y) { y = Relu (x) }", [1, 3]),
    "the rules do not tell": (
        "(float[N,3] x, int64[2] s) => (float[6,1] y) { y = Reshape (x, s) }",
        [6, 1],
    ),
    "another domain": ("(float[N,3] x) => (float[1,3] y) { y = my.Op (x) }", [1, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_of_the_output(name: str) -> None:
    body, expected = CASES[name]
    model = ir.from_proto(onnx.parser.parse_model(HEAD.replace("17]", '17, "my" : 1]') + body))
    follow_free_sizes(model)
    shape = model.graph.outputs[0].shape
    assert shape is not None
    assert [size.value if isinstance(size, ir.SymbolicDim) else size for size in shape] == expected


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
@pytest.mark.parametrize("name", ["a number", "through what is between"])
def test_the_report_says_what_the_file_gives(tmp_path: Path, name: str, target: str) -> None:
    onnx.save(onnx.parser.parse_model(HEAD + CASES[name][0]), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.passed
    assert done.report["interface"]["outputs"][0]["shape"] == ["N", 3]


UNTOLD = {
    "a number": ("(float[N,4] x) => (float[1,2] y) {", [None, 2]),
    "an input's name": ("(float[N,4] x) => (float[N,2] y) {", [None, 2]),
    "other axes": ("(float[N,4] x) => (float[2] y) {", [None, 2]),
    "a name of its own": ("(float[N,4] x) => (float[K,2] y) {", ["K", 2]),
}


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
@pytest.mark.parametrize("name", UNTOLD)
def test_a_run_says_what_no_rule_tells(tmp_path: Path, name: str, target: str) -> None:
    """A size that the model computes: twice the batch."""
    ends, expected = UNTOLD[name]
    body = f"""{ends} n = Shape <end = 1> (x) d = Mul (n, two) s = Concat <axis = 0> (d, two) z = Reshape (x, s)
        y = Exp (z) }}""".replace("{", "<int64[1] two = {2}> {", 1)
    onnx.save(onnx.parser.parse_model(HEAD + body), tmp_path / "m.onnx")
    done = convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out")
    assert done.passed
    found = done.report["interface"]["outputs"][0]["shape"]
    own = {f"y_{axis}" for axis in range(2)}
    assert [None if size in own else size for size in found] == expected


def test_a_model_that_does_not_run_keeps_what_it_declares(tmp_path: Path) -> None:
    text = """(float[N,4] x) => (float[1,3] y) <int64[1] seven = {7}, int64[1] three = {3}> {
        n = Shape <end = 1> (x) d = Mul (n, seven) s = Concat <axis = 0> (d, three) z = Reshape (x, s) y = Exp (z) }"""
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "m.onnx")
    source = OnnxSource(tmp_path / "m.onnx", ExportOptions(source=str(tmp_path / "m.onnx")))
    assert source.artifact.outputs[0].shape == (1, 3)
