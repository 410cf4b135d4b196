"""Generated floats lie where the model is defined: read from what its operators ask, backwards to the inputs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.onnx.input_domains import input_domains, with_domains

INF = math.inf
ALL = (-INF, INF)
CASES = {
    "y = Log (x)": (0, INF),
    "y = Acosh (x)": (1, INF),
    "y = Atanh (x)": (-1, 1),
    "y = Asin (x)": (-1, 1),
    "y = Acos (x)": (-1, 1),
    "y = ReduceLogSum (x)": (0, INF),
    "a = Sub (x, three) y = Sqrt (a)": (3, INF),
    "a = Sub (three, x) y = Sqrt (a)": (-INF, 3),
    "a = Mul (x, three) b = Add (a, six) y = Log (b)": (-2, INF),
    "a = Neg (x) b = Div (a, three) y = Acos (b)": (-3, 3),
    "a = Div (three, x) y = Sqrt (a)": (0, INF),
    "a = Reciprocal (x) y = Log (a)": (0, INF),
    "y = Pow (x, half)": (0, INF),
    "y = Pow (x, three)": ALL,
    "a = Add (x, x) b = Transpose (a) y = Sqrt (b)": (0, INF),
    "a = Concat <axis = 0> (x, half) y = Sqrt (a)": (0, INF),
    "a = ReduceSum (x) y = Log (a)": (0, INF),
    "a = ReduceMean (x) y = Acosh (a)": (1, INF),
    "a = Mul (x, x) y = Acos (a)": (-1, 1),
    "a = Exp (x) y = Acosh (a)": (0, INF),
    "a = Log (x) y = Sqrt (a)": (1, INF),
    "a = Sqrt (x) y = Acosh (a)": (1, INF),
    "a = Abs (x) y = Asin (a)": (-1, 1),
    "a = Max (x, three) y = Log (a)": ALL,
    "a = Clip (x, half) y = Log (a)": ALL,
    "a = Clip (x, negative) y = Log (a)": (0, INF),
    "a = Relu (x) y = Acosh (a)": (1, INF),
    "a = Relu (x) b = Add (a, half) y = Log (b)": ALL,
    "a = Mul (x, x) b = Add (a, half) y = Log (b)": ALL,
    "a = Softmax (x) y = Log (a)": ALL,
    "a = Sigmoid (x) b = Sub (one, a) y = Log (b)": ALL,
    "a = Tanh (x) y = Atanh (a)": ALL,
    "a = Sub (x, three) b = Sqrt (a) c = Add (x, three) y = Log (c)": (3, INF),
    "a = Sub (x, three) b = Sqrt (a) c = Sub (half, x) y = Log (c)": ALL,
    "a = MatMul (x, x) y = Log (a)": ALL,
    "y = Erf (x)": ALL,
}
CONSTANTS = {"half": 0.5, "one": 1.0, "three": 3.0, "six": 6.0, "negative": -2.0}


def model(body: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 18]> g (float[2,2] x) => (float y) {{ {body} }}'
    )
    for name, value in CONSTANTS.items():
        shape = (1, 2) if "Concat" in body else ()
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full(shape, value, np.float32), name))
    return proto


@pytest.mark.parametrize("body", CASES)
def test_the_domain_of_an_input(body: str) -> None:
    assert input_domains(model(body)).get("x", ALL) == CASES[body]


@pytest.mark.parametrize("body", [body for body, found in CASES.items() if found != ALL])
def test_inside_it_onnx_runtime_gives_numbers_and_beyond_its_ends_nan(body: str) -> None:
    proto = model(body)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    for node in proto.graph.node:
        if node.output[0] not in ("x", "y"):
            proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.output[0]))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])

    def is_defined(number: float) -> bool:
        values = session.run(None, {"x": np.full((2, 2), number, np.float32)})
        return not any(np.isnan(value).any() for value in values)

    low, high = CASES[body]
    first, last = max(low, high - 4) if high < INF else low, min(high, low + 4) if low > -INF else high
    assert all(is_defined(number) for number in np.linspace(first + 0.01, last - 0.01, 7))
    assert low == -INF or not is_defined(low - 0.01)
    assert high == INF or not is_defined(high + 0.01)


def test_ranges_come_with_the_interface(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model("a = Sub (x, three) y = Acosh (a)"), path)
    spec = TensorSpec("x", (2, 2), "float32")
    source = Artifact(path, "onnx", (spec,), (), "")
    assert with_domains(source, [spec]) == (replace(spec, value_range=(4.0, 8.0)),)
    said = replace(spec, value_range=(5.0, 6.0))
    assert with_domains(source, [said]) == (said,)
    assert with_domains(replace(source, format="torchscript"), [spec]) == (spec,)


def test_functions_of_the_model_are_looked_into(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.root (x) }
    <opset_import: ["" : 18], domain: "own"> root (a) => (b) { b = Sqrt (a) }"""
    assert input_domains(onnx.parser.parse_model(text)) == {"x": (0.0, INF)}
