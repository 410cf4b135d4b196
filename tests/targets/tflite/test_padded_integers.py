"""Pads that repeat elements move integers, whatever their scale means."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.tflite.test_quantized import SCALE, Qdq, within_one_lsb

SHAPE = (2, 4, 6)
SIDES = np.array([0, 1, 2, 0, 2, 3])


def padded(q: Qdq, mode: str):
    return q.node("Pad", q.quantized("x"), q.constant(SIDES), mode=mode)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("kind", [np.int8, np.int16])
def test_the_scale_stays(mode: str, kind: type):
    q = Qdq(kind=kind)
    case = q.case(q.quantized(padded(q, mode)), SHAPE)
    assert case.operators["QUANTIZE"] == case.operators["DEQUANTIZE"] == 1
    within_one_lsb(case, SHAPE, SCALE)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_another_scale_is_rounded_behind(mode: str):
    q = Qdq()
    case = q.case(q.quantized(padded(q, mode), scale=0.037), SHAPE)
    assert case.operators["DEQUANTIZE"] == 1 or case.operators["QUANTIZE"] == 2
    within_one_lsb(case, SHAPE, 0.037)


def test_an_axis_of_any_size_is_repeated_in_integers():
    q = Qdq()
    case = q.case(q.quantized(padded(q, "edge")), ("n", 4, "t"))
    assert case.operators["QUANTIZE"] == case.operators["DEQUANTIZE"] == 1
    within_one_lsb(case, (3, 4, 5), SCALE)
