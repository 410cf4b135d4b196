"""By how much a graph's own rounding changes its results, and what an engine may differ by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.errors import ToolError
from convertkit.onnx.load import load_model
from convertkit.onnx.specs import interface
from convertkit.stage import Feed, Outputs, Runner
from convertkit.targets.tensorrt import edges
from convertkit.targets.tensorrt.edges import edge_vectors
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


def test_a_factor_of_several_products_is_rounded_for_each(tmp_path: Path) -> None:
    """Queries, keys and values of attention read one normalised value; float32 transformers were refused for it."""
    artifact = rounded(tmp_path, "e = Abs (x) a = MatMul (x, e) b = MatMul (x, e) y = Add (a, b)")
    with otherwise_rounded(artifact) as other:
        got = other.run({"x": np.eye(4, dtype=np.float32) * MANTISSA})["y"]
    np.testing.assert_array_equal(got, np.eye(4, dtype=np.float32) * 2 * (1 + 2**-10) ** 2)


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


def test_what_rounding_decides_is_not_compared(tmp_path: Path) -> None:
    """0.3 and 0.26 are both 0.25 behind the pair, where the first one wins."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[N, 4] x) => (float[N, 4] y, int64[N, 1] place)
        <float s = {{{STEP}}}, int8 z = {{0}}>
        {{ {PAIR} place = ArgMax <axis = 1> (r) }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    artifact = Artifact(tmp_path / "model.onnx", "onnx", *interface(load_model(tmp_path / "model.onnx")), "")
    close, far = ([{"x": np.array([values], np.float32)}] for values in ((0.26, 0.3, 0, 0.1), (0.1, 0.3, 1.2, 0)))
    decided, golden = (Golden.of(artifact, (), (), samples, 0) for samples in (far, close))
    assert decided.atol["place"] == 0.0
    assert decided.described()["atol"]["place"] == 0.0
    assert golden.atol["place"] == np.inf
    assert golden.described()["atol"] == {"y": pytest.approx(0.3), "place": None}
    zeros = next(each for each in golden.edges if each.name == "zeros")
    assert zeros.atol["place"] == 0.0, "one input says nothing about another"


class Failing:
    """A runner that fails on what is all zeros."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, feed: Feed) -> Outputs:
        if not np.any(feed["x"]):
            raise ToolError("no zeros\nat all")
        return self._runner.run(feed)


def test_edge_inputs_that_are_left_out_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = rounded(tmp_path, PAIR)
    samples = [{"x": np.array([[0.1, 0.3, 0.5, 0.74]], np.float32)}]
    whole = Golden.of(artifact, (), (), samples, 0)
    with plugins.runner(artifact) as runner:
        found, left = edge_vectors(artifact, Failing(runner), runner, whole.vectors, whole.atol, 0.01)
        assert [each.described() for each in left] == [
            {"name": name, "reason": "no zeros"} for name in ("zeros", "signed zeros")
        ]
        assert [each.name for each in found] == [each.name for each in whole.edges if "zeros" not in each.name]
        monkeypatch.setattr(edges, "MOST_BYTES", 100)
        found, left = edge_vectors(artifact, runner, runner, whole.vectors, whole.atol, 0.01)
    assert len(found) == 3, "of 32 bytes each"
    assert [*(each.name for each in found), *(each.name for each in left)] == [each.name for each in whole.edges]
    assert whole.described()["edges_left_out"] == []
