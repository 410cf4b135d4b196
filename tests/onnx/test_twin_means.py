"""Means in the float64 twin: kernels may multiply by a reciprocal, a variance may have been a difference of means."""

import numpy as np
import onnx_ir as ir
import pytest

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from tests.onnx.test_twin import artifact, node, truth_of


@pytest.mark.parametrize(("size", "moves"), [(64, False), (63, True)])
@pytest.mark.parametrize("op", ["ReduceMean", "LayerNormalization"])
def test_a_mean_of_whole_numbers_is_exact_where_the_reciprocal_is(op, size, moves, tmp_path):
    x = np.ones((1, 2, size), np.float32)
    more = {
        "ReduceMean": {"c": np.array([-1])},
        "LayerNormalization": {"c": np.ones(size, np.float32)},
    }[op]
    made = artifact(tmp_path, [node(op, " ".join(["x", *more]))], {"x": x}, constants=more)
    spread = truth_of(made, {"x": x}).spread["y"]
    assert bool(spread.max() > 0) == moves
    assert spread.max() < 1e-3


def test_a_variance_keeps_the_roundings_that_its_source_has(tmp_path):
    """``mean(x²) - mean(x)²`` of equal elements is an error of the last place, which the canonical form lacks."""
    x = np.full((4, 37), 2.7, np.float32)
    nodes = [
        node("Mul", "x x", "s"), node("ReduceMean", "s axes", "a"), node("ReduceMean", "x axes", "m"),
        node("Mul", "m m", "b"), node("Sub", "a b", "v"), node("Abs", "v", "w"), node("Sqrt", "w", "y"),
    ]  # fmt: skip
    made = artifact(tmp_path, nodes, {"x": x}, constants={"axes": np.array([-1])})
    canonical = save_model(canonicalize(load_model(made.path)), tmp_path / "canonical.onnx", "test")
    assert "Slice" in [each.op_type for each in load_model(canonical.path).graph]
    for each in (made, canonical):
        truth = truth_of(each, {"x": x})
        assert np.abs(truth.values["y"]).max() < 1e-7
        assert 1e-4 < truth.spread["y"].max() < 1e-2


def test_only_a_difference_of_means_is_marked():
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[N,9] x) => (float[N,1] y) <int64[1] axes = {1}>'
    text = "m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes) y = Sqrt(v)"
    model = ir.from_onnx_text(f"{head} {{{text}}}")
    assert not any("convertkit.variance" in each.metadata_props for each in canonicalize(model).graph)
