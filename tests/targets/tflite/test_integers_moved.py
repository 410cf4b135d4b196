"""Integers between QuantizeLinear and DequantizeLinear that ONNX moves, joins or computes with as plain numbers."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.errors import Unsupported
from tests.targets.tflite.compiled import Case, compiled, numbers

MOVED = {
    "slices at run time": "b = Slice(q, at, end, rows) c = Slice(q, nil, at, rows) k = Concat<axis=0>(b, c)",
    "steps at run time": "k = Slice(q, at, end, rows, two)",
    "chosen, plain integers first": "k = Where(which, plain, q)",
    "chosen, plain integers second": "k = Where(which, q, plain)",
    "joined": "k = Concat<axis=0>(plain, q)",
    "padded": "k = Pad(q, pads, zero)",
    "padded with another": "k = Pad(q, pads, seven)",
    "padded at run time": "none = Sub(at, at) all = Concat<axis=0>(at, none, none, at) k = Pad(q, all, seven)",
    "repeated": "k = Tile(q, twice)",
    "largest": "k = ReduceMax(q, rows)",
    "rounded by a cast": "k = Cast<to=3>(x)",
    "counted": "i = Cast<to=3>(x) k = Add(i, i)",
}


def moved(nodes: str) -> Case:
    return compiled(f"""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,4] x, bool[n,4] which, int64[1] at) => (float[a,b] y)
        <float scale = {{0.05}}, int8 zero = {{3}}, int8 seven = {{7}}, int8[1,4] plain = {{1,2,3,4}},
        int64[1] nil = {{0}}, int64[1] end = {{99}}, int64[1] rows = {{0}}, int64[1] two = {{2}},
        int64[4] pads = {{1,0,0,2}}, int64[2] twice = {{2,2}}> {{
        q = QuantizeLinear(x, scale, zero)  {nodes}  y = DequantizeLinear(k, scale, zero) }}""")


@pytest.mark.parametrize("nodes", MOVED.values(), ids=MOVED)
def test_bits_keep_their_meaning(nodes: str) -> None:
    sizes = ((3, 1), (1, 0), (5, 3))
    feeds = [
        {"x": numbers(n, 4, seed=n) * 3, "which": numbers(n, 4, seed=9) > 0, "at": np.array([at])} for n, at in sizes
    ]
    case = moved(nodes)
    taken = {spec.name for spec in case.compiled.inputs}
    case.agree(*({name: value for name, value in feed.items() if name in taken} for feed in feeds))


def test_arithmetic_on_stored_integers_is_refused() -> None:
    """An ADD kernel that knew their scale would add the reals: other numbers."""
    with pytest.raises(Unsupported, match=r"\(Add-14\): its inputs are quantized and its output is not"):
        moved("k = Add(q, q)")


def test_integers_are_surrounded_by_their_zero_at_run_time() -> None:
    """PADV2 compares the scale and zero point of what it fills with; PAD fills with the zero point by itself."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,4] x, int64[4] sides) => (float[a,b] y) <float scale = {0.05}, int8 zero = {-3}> {
        q = QuantizeLinear(x, scale, zero)  r = DequantizeLinear(q, scale, zero)  p = Pad(r, sides)
        k = QuantizeLinear(p, scale, zero)  y = DequantizeLinear(k, scale, zero) }""")
    assert "PAD" in case.operators
    sides = ([0, 1, 2, 0], [-1, 2, 0, -1], [0, 0, 0, 0])
    case.agree(*({"x": numbers(3, 4, seed=n) * 3, "sides": np.array(each)} for n, each in enumerate(sides)))


def test_a_transpose_in_front_of_a_rounding_moves_integers() -> None:
    """It does not cut the group of what stands in front of it, as the layout's transposes did."""
    case = compiled("""<ir_version: 8, opset_import: ["" : 21]>
        g (float[n,4,6] x) => (float[a,b,c] y) <float scale = {0.05}, int8 zero = {-3}, float wide = {0.2}> {
        q = QuantizeLinear(x, scale, zero)  r = DequantizeLinear(q, scale, zero)  s = Mul(r, r)
        t = Transpose<perm=[0,2,1]>(s)  k = QuantizeLinear(t, wide, zero)  y = DequantizeLinear(k, wide, zero) }""")
    assert case.operators["QUANTIZE"] == case.operators["DEQUANTIZE"] == 1
    case.agree({"x": numbers(2, 4, 6, seed=3)})
