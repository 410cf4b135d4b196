"""A float32 model that rounds to float16 on its way still does; one that computes in it does not."""

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled, numbers

TEXT = """<ir_version: 9, opset_import: ["" : 20]>
g (float[3,4] x) => (float[a,b] y) <int64[2] sizes = {{4, 3}}> {{ {body} }}"""
ODD = np.array([[1e-8, 70000, 65519.9, 65520], [2049, 2051, 1e-5, 6e-8], [np.inf, np.nan, -0.0, 3]], np.float32)
BODIES = {
    "at once": "h = Cast<to=10>(x) y = Cast<to=1>(h)",
    "inside": "a = Abs(x) h = Cast<to=10>(a) b = Cast<to=1>(h) y = Sub(b, x)",
    "moved": "h = Cast<to=10>(x) g = Reshape(h, sizes) i = Transpose(g) y = Cast<to=1>(i)",
    "to integers": "h = Cast<to=10>(x) i = Cast<to=6>(h) y = Cast<to=1>(i)",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_it_rounds(body):
    case = compiled(TEXT.format(body=body))
    assert not case.compiled.from_halves
    feeds = [{"x": 9 * numbers(3, 4)}] + ([] if "to=6" in body else [{"x": ODD}])
    with np.errstate(invalid="ignore"):
        for expected, result in case.both(feeds):
            np.testing.assert_array_equal(result["y"], expected["y"])


def test_what_is_computed_in_halves_is_computed_in_floats():
    case = compiled(TEXT.format(body="h = Cast<to=10>(x) g = Exp(h) y = Cast<to=1>(g)"))
    assert case.compiled.from_halves
    assert case.operators == {"EXP": 1}
