"""Files in which LiteRT moves its memory in the first call: later calls are right, too."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from onnx import numpy_helper, parser

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

RNG = np.random.default_rng(0)
BEGINS = {
    "dense": "a = MatMul(x, w)\n b = Add(a, c)",
    "stored dense": "w = DequantizeLinear(w8, tenth)\n a = MatMul(x, w)\n b = Add(a, c)",
    "convolution": "i = Reshape(x, image)\n a = Conv(i, k)\n b = Reshape(a, rows)",
}
STORED = {
    "w": RNG.normal(size=(6, 5)).astype(np.float32), "c": RNG.normal(size=5).astype(np.float32),
    "v": RNG.normal(size=(10, 3)).astype(np.float32), "k": RNG.normal(size=(5, 1, 2, 3)).astype(np.float32),
    "image": np.array([-1, 1, 2, 3]), "rows": np.array([-1, 5]), "flat": np.array([-1]), "first": np.array([0]),
    "zero": np.array(0), "zero1": np.array([0]), "step": np.array(5), "last": np.array([1]), "width": np.array([5]),
    "backwards": np.array([4, 3, 2, 1, 0]), "step1": np.array(1), "go": np.array(True), "many": np.array(40),
    "nought": np.array(0, np.float32), "v5": RNG.normal(size=(5, 3)).astype(np.float32),
    "square": RNG.normal(size=(5, 5)).astype(np.float32), "tenth": np.array(0.1, np.float32),
    "w8": RNG.integers(-20, 20, (6, 5)).astype(np.int8),
}  # fmt: skip
RANGE = """
 s = Shape(x)
 n = Gather<axis=0>(s, zero)
 end = Mul(n, step)
 r = Range(zero, end, step)
 starts = Unsqueeze(r, last)
 count = Gather<axis=0>(s, first)
 sizes = Concat<axis=0>(count, width)
 order = Expand(backwards, sizes)
 at = Add(order, starts)
 values = Reshape(b, flat)
 turned = Gather(values, at)
 d = Concat<axis=1>(turned, b)
 y = MatMul(d, v) }"""

GROWS = """
 most = ReduceMax<keepdims=0>(x)
 whole = Cast<to=7>(most)
 above = Abs(whole)
 turns = Add(above, step1)
 t = Loop<body=body (int64 turn, bool going, float[L,5] u) => (bool still, float[M,5] grown) {
  still = Identity(going)
  grown = Concat<axis=0>(u, b) }>(turns, go, b)
 d = Concat<axis=0>(t, b)
 y = MatMul(d, v5) }"""
CHOOSES = """
 sum = ReduceSum<keepdims=0>(x)
 positive = Greater(sum, nought)
 t = If<then_branch=two () => (float[L,5] r) { r = Concat<axis=0>(b, b) },
        else_branch=three () => (float[M,5] q) { q = Concat<axis=0>(b, b, b) }>(positive)
 d = Concat<axis=0>(t, b)
 y = MatMul(d, v5) }"""
STEPS = """
 half = MatMul(b, square)
 t = Loop<body=body (int64 turn, bool going, float[N,5] u) => (bool still, float[N,5] next) {
  still = Identity(going)
  next = Tanh(u) }>(many, go, half)
 y = MatMul(t, v5) }"""


def written(place, begin, rest=RANGE):
    text = f"g (float[N,6] x) => (float[P,3] y) {{\n {BEGINS[begin]}{rest}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["":17]>\n{text}')
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    words -= {output for node in model.graph.node for output in node.output}
    model.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in STORED.items() if name in words)
    onnx.checker.check_model(model)
    onnx.save(model, place / "model.onnx")
    compiled = compile_model(canonicalize(load_model(place / "model.onnx")), Options(input_layout="nchw"))
    compiled.write(place / "model.tflite")
    return [operation.code for operation in compiled.program.subgraphs[0].operations]


@pytest.mark.parametrize(("begin", "rest", "rows"), [(each, RANGE, 16) for each in BEGINS] + [("dense", GROWS, 3)])
def test_every_call_of_many_interpreters_is_right(begin, rest, rows, tmp_path):
    written(tmp_path, begin, rest)
    plainly = onnxruntime.SessionOptions()  # by default a product with stored weights becomes one of integers
    plainly.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", plainly)
    for _ in range(40):
        interpreter = Interpreter(str(tmp_path / "model.tflite"), num_threads=1)
        interpreter.resize_tensor_input(0, [rows, 6])
        interpreter.allocate_tensors()
        for _ in range(3):
            x = RNG.normal(size=(rows, 6)).astype(np.float32)
            interpreter.set_tensor(0, x)
            interpreter.invoke()
            got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
            np.testing.assert_allclose(got, session.run(None, {"x": x})[0], atol=1e-4)


@pytest.mark.parametrize("rest", [GROWS, CHOOSES])
def test_sizes_that_a_body_decides_are_known_late(rest, tmp_path):
    assert written(tmp_path, "dense", rest)[0] == "MUL"


def test_what_is_reshaped_last_is_read_behind_a_factor(tmp_path):
    """XNNPACK, whose part ends with the reshape, would go on writing to where its result was."""
    codes = written(tmp_path, "dense", RANGE)
    values = codes.index("RESHAPE", codes.index("BROADCAST_TO") + 1)
    sizes_known = "\n d = Reshape(b, flat)\n e = Gather(d, backwards)\n f = Unsqueeze(e, zero1)\n y = MatMul(f, v5) }"
    plain = written(tmp_path, "dense", sizes_known)
    assert codes[values + 1] == "MUL"
    assert "MUL" not in plain


def test_a_loop_that_keeps_all_sizes_has_no_factors(tmp_path):
    codes = written(tmp_path, "dense", STEPS)
    assert "WHILE" in codes
    assert "MUL" not in codes


def test_a_file_whose_sizes_are_known_has_no_factors(tmp_path):
    plain = written(tmp_path, "dense", "\n d = Concat<axis=1>(b, b)\n y = MatMul(d, v) }")
    assert "MUL" not in plain
    assert written(tmp_path, "dense")[0] == "MUL"


def test_stored_weights_are_read_without_a_factor(tmp_path):
    """XNNPACK packs weights that are constants, or made of constants, and leaves out a layer with others."""
    codes = written(tmp_path, "stored dense")
    layer = codes.index("FULLY_CONNECTED")
    assert sorted(codes[:layer]) == ["DEQUANTIZE", "MUL"], "the factor is that of x"


KNOWN = {
    "cut": " d = Slice(b, zero1, two1, last)\n y = MatMul(d, v2) }",
    "two parts": """ d = Slice(b, zero1, two1, last)
 e = Slice(b, two1, width, last)
 f = Concat<axis=1>(e, d)
 y = MatMul(f, v5) }""",
    "normalised": " d = LayerNormalization(b, c)\n y = MatMul(d, v5) }",
    "split": " d, e = Split<axis=1>(b, two_and_three)\n f = Concat<axis=1>(e, d)\n y = MatMul(f, v5) }",
}
STORED |= {
    "one1": np.array([1]), "v1": RNG.normal(size=(1, 3)).astype(np.float32),
    "two1": np.array([2]), "v2": RNG.normal(size=(2, 3)).astype(np.float32), "two_and_three": np.array([2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_everything_is_allocated_before_the_first_call_where_sizes_are_known(name, tmp_path):
    """What is allocated while the model runs moves the others, and XNNPACK reads them where they were."""
    assert "MUL" not in written(tmp_path, "dense", f"\n{KNOWN[name]}")[:3]
    interpreter = Interpreter(
        str(tmp_path / "model.tflite"),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.resize_tensor_input(0, [4, 6])
    interpreter.allocate_tensors()
    for details in interpreter.get_tensor_details():
        assert interpreter.tensor(details["index"])() is not None  # it raises an error of what is not allocated


def test_what_litert_allocates_late_is_read_behind_factors(tmp_path):
    codes = written(tmp_path, "dense", "\n d, places = TopK(b, one1)\n y = MatMul(d, v1) }")
    assert codes[0] == "MUL"
