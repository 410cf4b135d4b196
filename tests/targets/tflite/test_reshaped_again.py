"""Sizes that are an input's numbers, and other ones in the next call."""

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 9, opset_import: ["" : 20]> g '
SIZES = [np.array(each, np.int64) for each in ((5, 20), (20, 5), (10, 10), (5, 20))]
BODIES = {
    "input": "y = Reshape(x, s)",
    "input, read": "r = Reshape(x, s) y = Exp(r)",
    "computed": "e = Exp(x) y = Reshape(e, s)",
    "computed, read": "e = Exp(x) r = Reshape(e, s) y = Neg(r)",
    "multiplied": "e = MatMul(x, x) r = Reshape(e, s) y = MatMul(r, k)",
    "bools": "e = IsNaN(x) y = Reshape(e, s)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_each_call_has_its_sizes(body: str):
    kind = "bool" if "IsNaN" in body else "float"
    inner = "float[1, 3] k" if "k)" in body else ""
    rows = [np.array([size[0] * size[1], 1]) for size in SIZES] if inner else SIZES
    given = f"float[10,10] x, int64[2] s{', ' + inner if inner else ''}"
    case = compiled(f"{HEAD} ({given}) => ({kind}[a,b] y) {{ {body} }}")
    x, k = numbers(10, 10), numbers(1, 3)
    case.agree(*({"x": x, "s": size, **({"k": k} if inner else {})} for size in rows))


def test_sizes_of_sizes_need_nothing():
    case = compiled(f"""{HEAD} (float[n,4,3] x) => (float[a,b] y) <int64[1] m = {{-1}}> {{
        e = Exp(x) n = Shape<end=1>(x) t = Concat<axis=0>(n, m) y = Reshape(e, t) }}""")
    assert "TILE" not in case.operators
    case.agree({"x": numbers(2, 4, 3)}, {"x": numbers(5, 4, 3)})
