"""Random small graphs of supported operators: converted, run, and held against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from convertkit.errors import Unsupported
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled, numbers
from tests.targets.tflite.random_graphs import feeds_for
from tests.targets.tflite.random_quantized import Quantized, quantized_graphs
from tests.targets.tflite.random_steps import graphs

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


def check_no_numbers(model: onnx.ModelProto, layout: str) -> None:
    """NaN and infinities where ONNX Runtime has them."""
    try:
        case = compiled(model, Options(input_layout=layout))
    except Unsupported:
        return
    for expected, result in case.both(feeds_for(model, special=True)):
        for name, want in expected.items():
            have, finite = result[name], np.isfinite(want)
            np.testing.assert_array_equal(have[~finite], want[~finite])
            largest = float(np.abs(want[finite]).max(initial=1e-6))
            np.testing.assert_allclose(have[finite], want[finite], rtol=0, atol=2e-5 * largest)


@settings(QUIET, max_examples=60, derandomize=True)
@given(graphs(special=True), LAYOUTS)
def test_random_graphs_of_no_numbers(model, layout):
    check_no_numbers(model, layout)


@pytest.mark.nightly
def test_many_random_graphs_of_no_numbers():
    seed(1)(settings(QUIET, max_examples=1000)(given(graphs(special=True), LAYOUTS)(check_no_numbers)))()


@pytest.mark.nightly
@pytest.mark.parametrize("start", [1, 2])
def test_many_random_graphs(start):
    seed(start)(settings(QUIET, max_examples=2000)(given(graphs(), LAYOUTS)(check)))()


def check_quantized(case: Quantized, layout: str, *, full_integer: bool) -> None:
    """Every integer within one step of ONNX Runtime's on the same graph."""
    try:
        made = compiled(case.model, Options(input_layout=layout, full_integer=full_integer))
    except Unsupported:
        return
    sizes = [dim.dim_value for dim in case.model.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x0": numbers(*sizes, seed=seed) * np.float32(2)} for seed in range(3)]
    for expected, result in made.both(feeds):
        for name, want in expected.items():
            assert result[name].shape == want.shape
            steps = np.abs(np.rint((result[name] - want) / case.step))
            assert steps.max(initial=0) <= 1, (name, steps.max(), case.step)


@settings(QUIET, max_examples=150, derandomize=True)
@given(quantized_graphs(), LAYOUTS, st.booleans())
def test_random_quantized_graphs(case, layout, full_integer):
    check_quantized(case, layout, full_integer=full_integer)


@pytest.mark.nightly
@pytest.mark.parametrize("start", [1, 2])
def test_many_random_quantized_graphs(start):
    given_cases = given(quantized_graphs(), LAYOUTS, st.booleans())
    seed(start)(settings(QUIET, max_examples=2000)(given_cases(_any_quantized)))()


def _any_quantized(case, layout, full_integer):
    check_quantized(case, layout, full_integer=full_integer)
