"""Factors join weights only where the products are numbers: what is small times what is large stays two steps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled

_HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
_ONES = ", ".join(["1e30"] * 16)
_SCALE = ", ".join(["1e10"] * 4)
_GRAPHS = {
    "behind a product": f"g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {{{_ONES}}}, float[4] s = {{{_SCALE}}}>"
    "{p = MatMul(x, w) y = Mul(p, s)}",
    "in front of one": f"g (float[2,4] x) => (float[2,4] y) <float[4,4] w = {{{_ONES}}}, float[4] s = {{{_SCALE}}}>"
    "{n = LayerNormalization(x, s) y = MatMul(n, w)}",
    "statistics": "g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {1e30}, float[1] s = {1e10},"
    "float[1] z = {0.0}, float[1] v = {1.0}> {c = Conv(x, w) y = BatchNormalization(c, s, z, z, v)}",
}


@pytest.mark.parametrize("name", _GRAPHS)
def test_small_inputs_stay_finite(name: str) -> None:
    case = compiled(f"{_HEAD} {_GRAPHS[name]}")
    shape = [dim.dim_value for dim in case.proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    small = x * np.float32(0 if name == "in front of one" else 1e-9)
    ((expected, result),) = case.both([{"x": small}])
    assert np.isfinite(expected["y"]).all()
    np.testing.assert_allclose(result["y"], expected["y"], rtol=1e-3)
