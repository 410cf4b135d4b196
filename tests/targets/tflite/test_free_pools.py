"""Averages over padding, and maxima that round up, of images whose size only a feed tells."""

import pytest

from convertkit.errors import Unsupported
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


ROUNDED_UP = {
    "halves": "kernel_shape=[2,2], strides=[2,2]",
    "overlap": "kernel_shape=[3,3], strides=[2,2]",
    "padded": "kernel_shape=[3,4], strides=[2,3], pads=[1,1,1,1]",
    "thirds": "kernel_shape=[3,3], strides=[3,3]",
}


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("window", ROUNDED_UP.values(), ids=ROUNDED_UP)
def test_maxima_that_round_up(window: str, layout: str):
    """As in detectors of faces that run over a pyramid of sizes."""
    case = compiled(
        f"{HEAD} (float[n,3,h,w] x) => (float[a,b,c,d] y) {{ y = MaxPool<{window}, ceil_mode=1>(x) }}",
        Options(input_layout=layout),
    )
    sizes = [(1, 6, 5), (2, 9, 8), (1, 7, 7), (1, 8, 10), (3, 11, 6)]
    case.agree(*({"x": numbers(n, 3, h, w) - 3} for n, h, w in sizes))


@pytest.mark.parametrize("size", ["h,w", "h,8", "7,w"])
@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("window", ROUNDED_UP.values(), ids=ROUNDED_UP)
def test_averages_that_round_up(window: str, counts: int, size: str):
    """Of what a window holds of the image and, where they count, of the stated pads."""
    case = compiled(
        f"""{HEAD} (float[n,3,{size}] x) => (float[a,b,c,d] y) {{
            y = AveragePool<{window}, ceil_mode=1, count_include_pad={counts}>(x) }}""",
        Options(input_layout="nhwc"),
    )
    sizes = [(1, 6, 5), (2, 9, 8), (1, 7, 7), (1, 8, 10), (3, 11, 6)]
    given = [(n, 7 if "7" in size else h, 8 if "8" in size else w) for n, h, w in sizes]
    case.agree(*({"x": numbers(n, 3, h, w) - 3} for n, h, w in given))


def test_a_window_inside_of_the_padding_needs_a_size():
    with pytest.raises(Unsupported, match="is dynamic, and this needs it"):
        compiled(f"""{HEAD} (float[n,3,h,8] x) => (float[a,b,c,d] y) {{
            y = MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[0,0,1,1], ceil_mode=1>(x) }}""")


SAME = {
    "conv": 'Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)',
    "uneven": 'Conv<auto_pad="SAME_UPPER", strides=[1,3]>(x, w)',
    "depthwise": 'Conv<auto_pad="SAME_UPPER", strides=[2,3], group=3>(x, d)',
    "maximum": 'MaxPool<auto_pad="SAME_UPPER", kernel_shape=[3,2], strides=[2,2]>(x)',
    "average": 'AveragePool<auto_pad="SAME_UPPER", kernel_shape=[3,3], strides=[2,1]>(x)',
}


def known(name: str, *shape: int) -> str:
    """Seeded weights in ONNX's text form."""
    return f"float[{','.join(map(str, shape))}] {name} = {{{', '.join(map(str, numbers(*shape).ravel()))}}}"


SIZES = [(1, 6, 5), (2, 9, 8), (1, 7, 7), (1, 1, 2), (3, 11, 6)]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("call", SAME.values(), ids=SAME)
def test_strides_that_pad_at_run_time(call: str, layout: str):
    """As TensorFlow's padding SAME over images of any size: the kernels compute it themselves."""
    weights = f"{known('w', 4, 3, 3, 2)}, {known('d', 3, 1, 3, 3)}"
    model = f"{HEAD} (float[n,3,h,w] x) => (float[a,b,c,d] y) <{weights}> {{ y = {call} }}"
    case = compiled(model, Options(input_layout=layout))
    assert "PAD" not in case.operators
    case.agree(*({"x": numbers(n, 3, h, w) - 3} for n, h, w in SIZES))


def test_lines_and_volumes_that_pad_at_run_time():
    lines = compiled(f"""{HEAD} (float[n,3,t] x) => (float[a,b,c] y) <{known("w", 4, 3, 5)}> {{
        z = Conv<auto_pad="SAME_UPPER", strides=[3]>(x, w)
        m = MaxPool<auto_pad="SAME_UPPER", kernel_shape=[3], strides=[2]>(z)
        y = AveragePool<auto_pad="SAME_UPPER", kernel_shape=[2], strides=[2]>(m) }}""")
    lines.agree(*({"x": numbers(n, 3, t)} for n, t in ((1, 6), (2, 19), (1, 4))))
    volumes = compiled(f"""{HEAD} (float[n,2,d,h,w] x) => (float[a,b,c,e,f] y) <{known("w", 4, 2, 3, 2, 3)}> {{
        y = Conv<auto_pad="SAME_UPPER", strides=[2,2,1]>(x, w) }}""")
    volumes.agree(*({"x": numbers(1, 2, *sizes)} for sizes in ((4, 5, 6), (7, 8, 3))))


@pytest.mark.parametrize("call", [
    "MaxPool<auto_pad=\"SAME_LOWER\", kernel_shape=[3,3], strides=[2,2]>(x)",
    "AveragePool<auto_pad=\"SAME_UPPER\", kernel_shape=[3,3], strides=[2,2], count_include_pad=1>(x)",
])  # fmt: skip
def test_what_the_kernels_do_not_pad_needs_a_size(call: str):
    with pytest.raises(Unsupported, match="auto_pad with a stride over a dynamic dimension"):
        compiled(f"{HEAD} (float[n,3,h,w] x) => (float[a,b,c,d] y) {{ y = {call} }}")
