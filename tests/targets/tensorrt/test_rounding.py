"""By how much a graph's own rounding changes its results, and what an engine may differ by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from convertkit.artifact import Artifact
from convertkit.onnx.load import load_model
from convertkit.onnx.specs import interface
from convertkit.targets.tensorrt.golden import Golden
from convertkit.targets.tensorrt.rounding import changed, otherwise_rounded
from convertkit.targets.tensorrt.vectors import encoded, share

STEP = 0.25


def rounded(folder: Path, body: str, step: float = STEP) -> Artifact:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y)
        <float s = {{{step}}}, float one = {{1}}, int8 z = {{0}}, bool keep = {{1}},
         int8[4, 4] w = {{1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}}>
        {{ {body} }}"""
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    return Artifact(folder / "model.onnx", "onnx", *interface(load_model(folder / "model.onnx")), "")


PAIR = "q = QuantizeLinear (x, s, z) r = DequantizeLinear (q, s, z) y = Abs (r)"
BRANCH = """y = If (keep) <
    then_branch = a () => (float[N, 4] t) { q = QuantizeLinear (x, s, z) t = DequantizeLinear (q, s, z) },
    else_branch = b () => (float[N, 4] e) { e = Identity (x) } >"""


MANTISSA = np.float32(1 + 2**-10 + 2**-12)
"""Rounded to 10 bits it is 1 + 2^-10."""


@pytest.mark.parametrize("body", [PAIR, BRANCH])
def test_what_is_computed_keeps_its_floats(tmp_path: Path, body: str) -> None:
    artifact = rounded(tmp_path, body)
    feed = {"x": np.array([[0.1, 0.3, 0.5, 0.74]], np.float32)}
    with otherwise_rounded(artifact) as other:
        np.testing.assert_array_equal(other.run(feed)["y"], feed["x"])


@pytest.mark.parametrize("operator", ["MatMul (x, e)", "Gemm (x, e)", "Gemm (e, x)"])
def test_products_of_float32_have_factors_of_ten_bits(tmp_path: Path, operator: str) -> None:
    artifact = rounded(tmp_path, f"e = DequantizeLinear (w, one, z) y = {operator}")
    with otherwise_rounded(artifact) as other:
        got = other.run({"x": np.full((4, 4), MANTISSA)})["y"]
    np.testing.assert_array_equal(got, np.full((4, 4), 1 + 2**-10, np.float32))


@pytest.mark.parametrize("scale", [1e-9, 1e-30, 1e6, 1e30])
def test_small_and_large_factors_keep_their_exponents(tmp_path: Path, scale: float) -> None:
    """By way of float16 they were 0 or infinite, so that an engine might have given anything."""
    artifact = rounded(tmp_path, "e = DequantizeLinear (w, one, z) y = MatMul (x, e)")
    factor = MANTISSA * np.float32(scale)
    with otherwise_rounded(artifact) as other:
        got = other.run({"x": np.full((2, 4), factor)})["y"]
    np.testing.assert_allclose(got, np.full((2, 4), factor), rtol=2**-11)
    assert (got != factor).all()


def test_float16_is_computed_in_float32(tmp_path: Path) -> None:
    body = "h = Cast <to = 10> (x) e = Exp (h) y = Cast <to = 1> (e)"
    feed = {"x": np.array([[0.1, 0.3, 0.5, 0.74]], np.float32)}
    with otherwise_rounded(rounded(tmp_path, body)) as other:
        np.testing.assert_allclose(other.run(feed)["y"], np.exp(feed["x"]), rtol=1e-6)


def test_rounding_is_what_it_changes(tmp_path: Path) -> None:
    artifact = rounded(tmp_path, PAIR)
    feed = {"x": np.array([[0.1, 0.3, 0.5, 0.74]], np.float32)}
    vector = encoded(artifact, feed, {"y": np.array([[0.0, 0.25, 0.5, 0.75]], np.float32)})
    with otherwise_rounded(artifact) as other:
        assert changed(artifact, other, vector) == pytest.approx({"y": 0.1})


def test_coarse_steps_allow_more_than_a_hundredth(tmp_path: Path) -> None:
    samples = [{"x": np.array([[0.1, 0.3, 0.5, 0.74]], np.float32)}]
    coarse, fine = (Golden.of(rounded(tmp_path, PAIR, step), (), (), samples, 0) for step in (0.25, 0.001))
    assert coarse.atol == pytest.approx({"y": 0.3}), "three times 0.1"
    assert fine.atol == pytest.approx({"y": 0.0013}), "a hundredth of the greatest value, which is that of 127 steps"
    (tiny,) = (each for each in coarse.edges if each.name == "1e-6 of the scale")
    assert tiny.atol["y"] == pytest.approx(3e-3), "a hundredth of what golden vectors may differ by, where all is 0"


def test_types_of_fewer_bits_may_differ_by_more() -> None:
    assert share(["float32", "int8"]) == 0.01
    assert share(["float32", "float16"]) == 0.03
    assert share(["bfloat16", "float16"]) == 0.04
