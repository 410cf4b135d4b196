"""Random small graphs of supported operators: converted, run, and held against ONNX Runtime."""

from __future__ import annotations

import onnx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from convertkit.errors import Unsupported
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled
from tests.targets.tflite.random_graphs import feeds_for, graphs

QUIET = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LAYOUTS = st.sampled_from(["auto", "nchw", "nhwc"])


def check(model: onnx.ModelProto, layout: str) -> None:
    """A refusal is an answer; numbers have to be right."""
    onnx.checker.check_model(model, full_check=True)
    try:
        case = compiled(model, Options(input_layout=layout))
    except Unsupported:
        return
    case.agree(*feeds_for(model), tolerance=2e-5)


@settings(QUIET, max_examples=200, derandomize=True)
@given(graphs(), LAYOUTS)
def test_random_graphs(model, layout):
    check(model, layout)


@pytest.mark.nightly
@pytest.mark.parametrize("start", [1, 2])
def test_many_random_graphs(start):
    seed(start)(settings(QUIET, max_examples=2000)(given(graphs(), LAYOUTS)(check)))()
