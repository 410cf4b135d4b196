"""Averages over padding of images whose size only a feed tells."""

import pytest

from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled, numbers

HEAD = '<ir_version: 9, opset_import: ["" : 20]> g '
WINDOWS = {
    "not SAME": "kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]",
    "one side": "kernel_shape=[2,3], pads=[1,0,0,2]",
    "counted": "kernel_shape=[3,2], pads=[1,0,1,1], strides=[2,1], count_include_pad=1",
}


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("shape", ["n,3,h,w", "2,3,h,6"])
def test_images(window: str, layout: str, shape: str):
    case = compiled(
        f"{HEAD} (float[{shape}] x) => (float[a,b,c,d] y) {{ y = AveragePool<{window}>(x) }}",
        Options(input_layout=layout),
    )
    fixed = shape.startswith("2")
    case.agree(*({"x": numbers(2 if fixed else n, 3, h, 6 if fixed else w)} for n, h, w in ((1, 6, 5), (2, 9, 8))))


def test_lines():
    case = compiled(f"""{HEAD} (float[n,3,t] x) => (float[a,b,c] y) {{
        y = AveragePool<kernel_shape=[3], pads=[1,1], strides=[2]>(x) }}""")
    case.agree(*({"x": numbers(n, 3, t)} for n, t in ((1, 6), (2, 9), (1, 4))))
