"""Names that inference made up for dynamic sizes do not reach the interface."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.specs import interface

HEAD = '<ir_version: 8, opset_import: ["": 18]> g'


def shapes(text: str) -> list[tuple[int | str, ...]]:
    """What a user reads of each output."""
    model = canonicalize(ir.from_proto(onnx.parser.parse_model(f"{HEAD} {text}")))
    return [spec.shape for spec in interface(model)[1]]


def test_a_size_that_an_input_has_is_called_after_it():
    text = """(float[batch, time, 8] x) => (float[unk__17, unk__18, 8] y, float[unk__3, 8] m) <int64[1] a = {1}> {
        y = Relu(x)
        m = ReduceMax<keepdims = 0>(y, a)
    }"""
    assert shapes(text) == [("batch", "time", 8), ("batch", 8)]


def test_what_nothing_tells_is_called_after_the_output():
    text = """(float[n] x) => (int64[1, unk__4] y, int64[unk__4] z) <int64[1] a = {0}> {
        y = NonZero(x)
        z = Squeeze(y, a)
    }"""
    assert shapes(text) == [(1, "y_1"), ("y_1",)]


@pytest.mark.parametrize("size", ["unk__7", "unknown"])
def test_the_names_of_inputs_and_of_people_stay(size):
    assert shapes(f"(float[{size}] x) => (float[{size}] y) {{ y = Relu(x) }}") == [(size,)]
    kept = shapes("(float[n] x) => (int64[1, found] y) { y = NonZero(x) }")
    assert kept == [(1, "found")]
