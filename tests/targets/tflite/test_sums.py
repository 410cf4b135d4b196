"""Means and sums of many pixels are as exact as of few: XNNPACK adds rows one by one."""

import numpy as np
import pytest

from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled

MODEL = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[1, {height}, 96, 24] x) => (float[{result}] y) <int64[{count}] axes = {{{axes}}}> {{
  y = {op} <keepdims = {keep}> (x, axes)
}}
"""


def of(op: str, height: int, axes: str, result: str, keep: int):
    text = MODEL.format(op=op, height=height, axes=axes, count=axes.count(",") + 1, result=result, keep=keep)
    return compiled(text, Options(input_layout="nchw"))


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize(("result", "keep"), [("1, 1, 1, 24", 1), ("1, 24", 0)])
def test_many_pixels_are_added_axis_by_axis(op: str, result: str, keep: int):
    case = of(op, 96, "1, 2", result, keep)
    assert case.operators == {op.removeprefix("Reduce").upper(): 2}
    x = np.random.default_rng(0).random((1, 96, 96, 24), np.float32)
    ((_, found),) = case.both([{"x": x}])
    exact = np.sum(x, (1, 2), np.float64, keepdims=bool(keep)) / (96 * 96 if op == "ReduceMean" else 1)
    np.testing.assert_allclose(found["y"], exact, rtol=6e-7)


@pytest.mark.parametrize(("height", "axes", "result"), [(8, "1, 2", "1, 1, 1, 24"), (96, "1, 2, 3", "1, 1, 1, 1")])
def test_few_pixels_and_whole_rows_are_added_at_once(height: int, axes: str, result: str):
    assert of("ReduceMean", height, axes, result, 1).operators == {"MEAN": 1}


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_large_channel_leaves_nothing_in_the_norm_of_others(size: int):
    text = f"""
    <ir_version: 9, opset_import: ["" : 18]>
    g (float[1, 7, 2, 3] x) => (float[1, 7, 2, 3] y) {{
      y = LRN <size = {size}, alpha = 0.3, beta = 0.6, bias = 0.5> (x)
    }}
    """
    case = compiled(text, Options(input_layout="nchw"))
    assert "LOCAL_RESPONSE_NORMALIZATION" not in case.operators
    x = np.random.default_rng(1).normal(0, 1, (1, 7, 2, 3)).astype(np.float32)
    x[:, 2] = 3e4
    ((_, found),) = case.both([{"x": x}])
    squares = np.pad(np.float64(x) ** 2, [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)])
    near = sum(squares[:, first : first + 7] for first in range(size))
    np.testing.assert_allclose(found["y"], x / (0.5 + 0.3 / size * near) ** 0.6, rtol=2e-6)
