"""Random small graphs of supported operators: converted, run, and held against ONNX Runtime."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from onnx import parser

from convertkit.errors import Unsupported
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case, compiled, numbers
from tests.targets.tflite.random_graphs import feeds_for
from tests.targets.tflite.random_quantized import Quantized, quantized_graphs
from tests.targets.tflite.random_steps import graphs

QUIET = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
LAYOUTS = st.sampled_from(["auto", "nchw", "nhwc"])
_FLOOR = 0.8
"""Of the graphs that are generated, how many at least have to be converted and computed."""

SATURATING = np.array([0.0, -0.0, 1e-6, -1e-6, 1e3, -1e3, 1e4, -1e4], np.float32)
"""Edges of quantized graphs: none is near the middle between two steps, where runtimes round to either."""


class Computed:
    """Counts how many generated graphs were computed, so that refusing them all does not pass."""

    def __init__(self) -> None:
        self.generated, self.computed = 0, 0
        self.reasons: collections.Counter[str] = collections.Counter()

    def compiled(self, model: onnx.ModelProto, options: Options) -> Case | None:
        """``model`` compiled, None where that is refused: a refusal is an answer.

        What ``--full-integer`` refuses because TFLite computes it in float is compiled without that flag.
        """
        self.generated += 1
        try:
            case = compiled(model, options)
        except Unsupported as refusal:
            if options.full_integer and "--full-integer allows no float" in str(refusal):
                self.generated -= 1
                return self.compiled(model, Options(input_layout=options.input_layout))
            self.reasons[str(refusal)] += 1
            return None
        self.computed += 1
        return case

    def suffices(self) -> None:
        assert self.computed >= _FLOOR * self.generated, (self.generated, self.reasons.most_common(9))


def run(strategies: Sequence[st.SearchStrategy], check: Callable[..., None], examples: int, start: int = 0) -> None:
    """``check`` on so many drawn examples; derandomised where there is no seed to ``start`` from."""
    count = Computed()
    how = settings(QUIET, max_examples=examples, derandomize=not start)
    drawn = how(given(st.tuples(*strategies))(lambda values: check(count, *values)))
    (seed(start)(drawn) if start else drawn)()
    count.suffices()


def check_numbers(count: Computed, model: onnx.ModelProto, layout: str) -> None:
    """Numbers have to be right."""
    onnx.checker.check_model(model, full_check=True)
    case = count.compiled(model, Options(input_layout=layout))
    if case is not None:
        case.agree(*feeds_for(model), tolerance=2e-5, by_truth=True)


def check_no_numbers(count: Computed, model: onnx.ModelProto, layout: str) -> None:
    """NaN and infinities where ONNX Runtime has them."""
    case = count.compiled(model, Options(input_layout=layout))
    for expected, result in case.both(feeds_for(model, special=True)) if case is not None else ():
        for name, want in expected.items():
            have, finite = result[name], np.isfinite(want)
            np.testing.assert_array_equal(have[~finite], want[~finite])
            largest = float(np.abs(want[finite]).max(initial=1e-6))
            np.testing.assert_allclose(have[finite], want[finite], rtol=0, atol=2e-5 * largest)


def check_quantized(count: Computed, quantized: Quantized, layout: str, full_integer: bool) -> None:
    """Every integer within one step of ONNX Runtime's on the same graph."""
    case = count.compiled(quantized.model, Options(input_layout=layout, full_integer=full_integer))
    sizes = [dim.dim_value for dim in quantized.model.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x0": numbers(*sizes, seed=seed) * np.float32(2)} for seed in range(3)]
    rng = np.random.default_rng(0)
    feeds += [{"x0": rng.choice(SATURATING, sizes)}, {"x0": np.zeros(sizes, np.float32)}]
    for expected, result in case.both(feeds) if case is not None else ():
        for name, want in expected.items():
            assert result[name].shape == want.shape
            steps = np.abs(np.rint((result[name] - want) / quantized.step))
            assert steps.max(initial=0) <= 1, (name, steps.max(), quantized.step)


HEAD = '<ir_version: 9, opset_import: ["" : 20, "no" : 1]> '
FLOATS = (graphs(), LAYOUTS)
ODD = (graphs(special=True), LAYOUTS)
QUANTIZED = (quantized_graphs(), LAYOUTS, st.booleans())


def test_random_graphs():
    run(FLOATS, check_numbers, 200)


def test_random_graphs_of_no_numbers():
    run(ODD, check_no_numbers, 60)


def test_random_quantized_graphs():
    run(QUANTIZED, check_quantized, 150)


REFUSED = "g (float[2] x) => (float[2] y) { y = no.such (x) }"


NORM = """<ir_version: 9, opset_import: ["" : 20]>
g (float[1,5,3] x) => (float[1,5,3] y) <float[5] one = {1, 1, 1, 1, 1}, float[5] zero = {0, 0, 0, 0, 0}> {
  y = InstanceNormalization <epsilon = 1e-5> (x, one, zero)
}"""


def test_the_truth_excuses_roundings_and_no_fault():
    """One row of five has all but no variance: roundings decide on it, and on none of the others."""
    case = compiled(parser.parse_model(NORM))
    rows = np.float32([[[1000, 1000.001, 1000.002], [1, 2, 3], [1, 2, 4], [1, 3, 4], [-1, 0, 2]]])
    ((expected, _),) = case.both([{"x": rows}])
    want = expected["y"]
    for row, is_explained in enumerate([True, False, False, False, False]):
        other = want.copy()
        other[0, row] += np.float32(1e-3)
        assert bool(case.explained({"x": rows}, "y", want, other, 2e-5)) is is_explained


def test_refusing_everything_does_not_pass():
    def refuse(count: Computed, layout: str) -> None:
        assert count.compiled(parser.parse_model(HEAD + REFUSED), Options(input_layout=layout)) is None

    with pytest.raises(AssertionError):
        run((LAYOUTS,), refuse, 3)


@pytest.mark.nightly
def test_many_random_graphs_of_no_numbers():
    run(ODD, check_no_numbers, 1000, start=1)


@pytest.mark.nightly
@pytest.mark.parametrize("start", [1, 2])
def test_many_random_graphs(start):
    run(FLOATS, check_numbers, 2000, start)


@pytest.mark.nightly
@pytest.mark.parametrize("start", [1, 2])
def test_many_random_quantized_graphs(start):
    run(QUANTIZED, check_quantized, 2000, start)
