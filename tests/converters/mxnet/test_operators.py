"""Every operator: the graph in ONNX Runtime against the evaluator in float64, by the rows of a table."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from mxnet_files import CASES, Case, write_case

import convertkit
from convertkit.converters.mxnet.evaluate import EVALUATORS
from convertkit.converters.mxnet.lower import LOWERINGS
from convertkit.converters.mxnet.source import MxnetSource
from convertkit.recipe import ExportOptions, InputSpec

_ALIASES = {
    "_Plus", "_plus", "_Minus", "_minus", "_Mul", "_mul", "_Div", "_div", "_maximum", "_Maximum", "_minimum",
    "_Minimum",
    "_power", "_Power", "broadcast_plus", "broadcast_minus", "_PlusScalar", "_MinusScalar", "_RMinusScalar",
    "_MulScalar",
    "_DivScalar", "_RDivScalar", "_PowerScalar", "stop_gradient", "MakeLoss", "ElementWiseSum", "reshape", "flatten",
    "swapaxes", "split", "concat", "flip", "pad", "cast", "Softmax",
}  # fmt: skip
_IN_NETS = {
    "Dropout", "LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput", "SoftmaxOutput", "_zeros",
    "_rnn_param_concat", "take",
}  # fmt: skip
"""Tested in whole graphs below."""


def opened(case: Case, path, feed) -> MxnetSource:
    inputs = tuple(InputSpec(name, value.shape, "float32") for name, value in feed.items())
    return MxnetSource(path, ExportOptions(str(path), inputs=inputs))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_graph_computes_what_the_evaluator_does(tmp_path, case):
    path, feed = write_case(case, tmp_path / "m")
    source = opened(case, path, feed)
    made = source.stage().run(source.artifact, tmp_path)
    onnx.checker.check_model(str(made.path), full_check=True)
    found = ort.InferenceSession(str(made.path)).run(None, {spec.name: feed[spec.name] for spec in made.inputs})
    expected = list(source.runner().run(feed).values())
    assert len(found) == len(expected) == case.outputs
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= 3e-6 * max(np.abs(other).max(), 1.0)


def test_both_sides_know_the_same_operators():
    assert set(EVALUATORS) == set(LOWERINGS)
    assert {case.kind for case in CASES} | _ALIASES | _IN_NETS == set(EVALUATORS)


def test_a_batch_stays_dynamic(tmp_path):
    case = next(case for case in CASES if case.kind == "Convolution")
    path, _ = write_case(case, tmp_path / "m")
    result = convertkit.export(path, "onnxruntime", input="data:batch,3,7,6", output=tmp_path / "out")
    assert result.artifact.inputs[0].shape == ("batch", 3, 7, 6)
    assert result.artifact.outputs[0].shape[1:] == (4, 4, 4)
