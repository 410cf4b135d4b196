"""Int8 convolutions of few channels take several pixels of a row as one, with the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from convertkit.kernel_costs import ConvShape, KernelCosts, Tile
from convertkit.targets.tflite.costs.tables import tables
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case, numbers
from tests.targets.tflite.test_quantized import Qdq, within_one_lsb

STEP = 0.08


def convolution(
    shape: tuple[int | str, ...], filters: int, window: list[int], options: Options | None = None, **attributes: object
) -> Case:
    q = Qdq()
    w, scales = q.weight(filters, shape[1], *window)
    y = q.node("Conv", q.quantized("x"), w, q.bias(scales), **attributes)
    return q.case(q.quantized(q.node("Relu", y), scale=STEP, zero=-128), shape, options)


@pytest.mark.parametrize(
    ("shape", "filters", "window", "attributes", "operators"),
    [
        pytest.param(
            (1, 3, 22, 22), 64, [7, 7], {"pads": [3] * 4, "strides": [2, 2]}, {"PAD": 1, "RESHAPE": 2}, id="stride"
        ),
        pytest.param((1, 1, 12, 12), 8, [5, 5], {"pads": [2] * 4}, {"PAD": 1, "RESHAPE": 3}, id="one channel"),
        pytest.param((1, 1, 12, 12), 10, [5, 5], {}, {"PAD": 0, "RESHAPE": 2}, id="no pads"),
        pytest.param((1, 16, 9, 8), 4, [1, 1], {}, {"PAD": 0, "RESHAPE": 2}, id="one element"),
        pytest.param((1, 2, 7, 15), 8, [3, 3], {"pads": [0, 1, 2, 3], "strides": [1, 2]}, {"PAD": 1}, id="asymmetric"),
        pytest.param((1, 1, 9, 13), 8, [3, 2], {"strides": [2, 3]}, {"SLICE": 1}, id="pixels that no window reads"),
        pytest.param((1, 1, 12, 12), 8, [5, 5], {"auto_pad": "SAME_UPPER"}, {"PAD": 1}, id="auto pad"),
        pytest.param((1, 1, 40), 8, [9], {"pads": [4, 4]}, {"PAD": 1}, id="a signal"),
    ],
)
def test_rows_are_cut_and_integers_stay(
    shape: tuple[int, ...], filters: int, window: list[int], attributes: dict[str, object], operators: dict[str, int]
) -> None:
    case = convolution(shape, filters, window, **attributes)
    plain = convolution(shape, filters, window, Options(full_integer=True), **attributes)
    for code, count in operators.items():
        assert case.operators[code] == count, code
    assert plain.operators["SLICE"] == 0
    within_one_lsb(case, shape, STEP)
    feeds = [{"x": numbers(*shape, seed=seed) * 3} for seed in range(3)]
    for (_, folded), (_, unfolded) in zip(case.both(feeds), plain.both(feeds), strict=True):
        np.testing.assert_array_equal(folded["y"], unfolded["y"])


def test_free_batch() -> None:
    case = convolution(("N", 1, 12, 12), 8, [5, 5], pads=[2] * 4)
    assert case.operators["RESHAPE"] == 3
    for batch in (3, 1):
        within_one_lsb(case, (batch, 1, 12, 12), STEP)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        pytest.param((1, 64, 8, 8), {"pads": [1] * 4}, id="enough channels"),
        pytest.param((1, 1, 12, 12), {"dilations": [2, 2]}, id="dilation"),
        pytest.param((1, 1, "H", "W"), {"pads": [1] * 4}, id="dynamic sizes"),
        pytest.param((1, 3, 7, 7), {"pads": [1] * 4}, id="a row that nothing divides"),
    ],
)
def test_left_as_they_are(shape: tuple[int | str, ...], attributes: dict[str, object]) -> None:
    case = convolution(shape, 64, [3, 3], **attributes)
    assert case.operators["CONV_2D"] == 1
    assert case.operators["RESHAPE"] == 0


def test_float_convolutions_stay() -> None:
    q = Qdq()
    w, _ = q.weight(8, 1, 5, 5)
    assert q.case(q.node("Conv", "x", w), (1, 1, 12, 12)).operators["RESHAPE"] == 0


WIDE, NARROW = Tile(64, 64, 1.0, 0.0), Tile(8, 16, 1.0, 0.0)


def test_no_machine_loses() -> None:
    """16 channels to 16 filters fill the narrow tile, so only a machine with the wide one gains."""
    shape = ConvShape(64, 8, (3, 3), 1, 16, 16)
    assert KernelCosts((), (WIDE,)).together(shape) > 1
    assert KernelCosts((), (WIDE, NARROW)).together(shape) == 0


def test_a_stride_goes_into_the_channels() -> None:
    """7 elements at stride 2 are 4 pairs, in all tiles that round 3 channels up to 8."""
    shape = ConvShape(64, 8, (7, 7), 2, 3, 64)
    assert KernelCosts((), (NARROW,)).together(shape) == 1
    assert shape.together(1) == ConvShape(64, 8, (7, 4), 1, 6, 64)


def test_weights_are_worth_it() -> None:
    """4 outputs together take 1,280 bytes instead of 200, 2 take 480; a pixel costs 102, 31 and 10 ns."""
    for rows, outputs in ((8, 4), (1, 2)):
        shape = ConvShape(8 * rows, 8, (5, 5), 1, 1, 8)
        assert KernelCosts((), (Tile(64, 64, 1e-3, 0.0),)).together(shape) == outputs


def test_costs_are_those_of_the_form_that_is_written() -> None:
    shape = ConvShape(784, 28, (5, 5), 1, 1, 8)
    kernel_costs = KernelCosts((WIDE,), (WIDE, NARROW))
    folded = shape.together(kernel_costs.together(shape))
    assert kernel_costs.times(shape) == (
        (WIDE.nanoseconds(folded) + NARROW.nanoseconds(folded)) / 2,
        WIDE.nanoseconds(shape),
    )


def test_narrow_first_layers_are_no_faster_in_integers() -> None:
    """MobileNet's first layer, about; the last of its blocks, where integers are four times faster."""
    integer, real = tables(()).kernel_costs.times(ConvShape(112 * 112, 112, (3, 3), 2, 3, 32))
    assert integer > 0.8 * real
    integer, real = tables(()).kernel_costs.times(ConvShape(49, 7, (1, 1), 1, 960, 160))
    assert 3 * integer < real


def test_full_pairs_of_tiles_have_kernels_of_their_own() -> None:
    """A float kernel of 32 filters takes less than two of 16; 48 filters are three of 16."""
    tile = Tile(1, 16, 4.0, 0.0, pixels=7, call=10.0, paired=3.0)
    for filters, product in ((16, 4.0), (24, 4.0), (32, 3.0), (48, 4.0), (64, 3.0)):
        shape = ConvShape(8, 8, (1, 1), 1, 5, filters)
        assert tile.nanoseconds(shape) == 10 + 14 * -(-filters // 16) * 16 * 5 * product


def test_a_window_of_one_element_is_a_product_of_matrices() -> None:
    kernel_costs = KernelCosts((WIDE,), (WIDE,), float32_pointwise=(NARROW,), integer_pointwise=(NARROW,))
    for window, stride, kernel in (((1, 1), 1, NARROW), ((1, 1), 2, WIDE), ((1, 3), 1, WIDE)):
        shape = ConvShape(65, 5, window, stride, 64, 64)
        assert kernel_costs.times(shape) == (kernel.nanoseconds(shape), kernel.nanoseconds(shape))
