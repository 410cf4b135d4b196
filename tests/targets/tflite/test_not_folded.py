"""What no integer kernel computes as the QDQ graph says stays float, and is refused where all has to be integers."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.errors import Unsupported
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.test_quantized import Qdq, within_one_lsb

IMAGE, MATRIX = (1, 4, 6, 5), (5, 6)
RESULT = 0.037
"""Scale of the result: no multiple of the input's step lies between two of its own."""


def f32(*numbers):
    return np.array(numbers, np.float32).reshape(() if len(numbers) == 1 else -1)


def padded(q, x, mode, *value):
    sizes = q.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    return q.node("Pad", x, sizes, *(q.constant(f32(each)) for each in value), mode=mode)


def resized(q, x):
    scales = q.constant(f32(1, 1, 2, 2))
    return q.node("Resize", x, "", scales, mode="linear")


def product(q, x, inner=6, bias=True, **attributes):
    w, scales = q.weight(inner, 7, axis=1)
    return q.node("Gemm", x, w, *([q.bias(scales)] if bias else []), **attributes)


FLOAT = {
    "clip, upper bound inside of the range": (lambda q, x: q.node("Clip", x, "", q.constant(f32(1.0))), IMAGE),
    "clip, lower bound inside of the range": (lambda q, x: q.node("Clip", x, q.constant(f32(-1.0))), IMAGE),
    "padding of -1": (lambda q, x: padded(q, x, "constant", -1.0), IMAGE),
    "padding of 1": (lambda q, x: padded(q, x, "constant", 1.0), IMAGE),
    "interpolation to another scale": (resized, IMAGE),
    "product with alpha": (lambda q, x: product(q, x, alpha=0.5), MATRIX),
    "product with beta": (lambda q, x: product(q, x, beta=0.5), MATRIX),
    "product of the transposed": (lambda q, x: product(q, x, inner=5, transA=1), MATRIX),
    "transposed convolution in groups": (
        lambda q, x: q.node("ConvTranspose", x, q.weight(4, 3, 2, 2, axis=1)[0], group=2, strides=[2, 2]), IMAGE
    ),
}  # fmt: skip
REFUSED = {
    "average beside padding in front that does not count": (
        lambda q, x: q.node("AveragePool", x, kernel_shape=[3, 3], pads=[2, 2, 0, 0]),
        "PAD", np.int8,
    ),
    "slopes beside 16 bits": (
        lambda q, x: q.node("PRelu", x, q.quantized(q.constant(f32(0.1, 0.2, 0.3, 0.4).reshape(4, 1, 1)), scale=0.01)),
        "MUL", np.int16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOAT)
def test_what_the_kernel_would_round_otherwise_stays_float(name: str):
    build, shape = FLOAT[name]
    q = Qdq()
    case = q.case(q.quantized(build(q, q.quantized("x")), scale=RESULT), shape)
    assert case.operators["DEQUANTIZE"] >= 2
    within_one_lsb(case, shape, RESULT)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused_where_all_has_to_be_integers(name: str):
    build, kernel, kind = REFUSED[name]
    q = Qdq(kind=kind)
    with pytest.raises(Unsupported, match=rf"\({kernel}\): computes in float32"):
        q.case(q.quantized(build(q, q.quantized("x"))), IMAGE, Options(full_integer=True))
