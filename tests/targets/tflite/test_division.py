"""Division of int64, which no kernel has: positions through int32, everything else exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert.interpreter import Interpreter

from convertkit.onnx.canonical import canonicalize
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options

HEAD = """<ir_version: 10, opset_import: ["" : 20]> """
ENDS = np.iinfo(np.int64)
NUMBERS = np.array([0, 1, -1, 6, 7, -7, 8, -8, 13, 1 << 33, -(1 << 33) - 5, 10**18, ENDS.max, ENDS.min, ENDS.min + 1])


def run(text: str, feed: np.ndarray, folder: Path) -> tuple[np.ndarray, list[str]]:
    path = folder / "model.tflite"
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEAD + text))
    compile_model(canonicalize(ir.from_proto(proto)), Options(input_layout="nchw")).write(path)
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], feed)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return found, [operation["op_name"] for operation in interpreter._get_ops_details()]


@pytest.mark.parametrize("divisor", [1, -1, 2, 3, -7, 8, 12, 1000, -(1 << 40), 3 << 35, ENDS.max])
def test_int64_by_a_constant(divisor: int, tmp_path: Path):
    text = f"g (int64[{len(NUMBERS)}] x) => (int64[{len(NUMBERS)}] y) <int64 d = {{{divisor}}}> {{ y = Div (x, d) }}"
    numbers = NUMBERS[ENDS.min != NUMBERS] if divisor == -1 else NUMBERS
    numbers = np.resize(numbers, NUMBERS.shape)
    found, _ = run(text, numbers, tmp_path)
    wanted = [abs(x) // abs(divisor) * (-1 if (x < 0) != (divisor < 0) else 1) for x in numbers.tolist()]
    assert found.tolist() == wanted


def test_positions_are_divided_as_int32(tmp_path: Path):
    text = """g (float[1,3,35] x) => (int64[1,3] y) <int64 d = {5}> {
        p = ArgMax <axis: int = 2, keepdims: int = 0> (x)
        y = Div (p, d) }"""
    x = np.random.default_rng(1).standard_normal((1, 3, 35)).astype(np.float32)
    found, operators = run(text, x, tmp_path)
    assert np.array_equal(found, x.argmax(2) // 5)
    assert "DIV" in operators
    assert "BITCAST" not in operators


def test_int64_by_numbers_that_are_only_known_at_run_time(tmp_path: Path):
    divisors = [1, 2, -3, 7, 1000, -(1 << 40), 3 << 35, 10**17 + 1, ENDS.max]
    pairs = [(x, y) for x in (*NUMBERS.tolist(), 10**17, -(3 << 40) + 1) for y in divisors]
    text = f"""g (int64[{len(pairs)},2] x) => (int64[{len(pairs)},1] y) <int64[2] k = {{1, 1}}> {{
        p, q = Split <axis: int = 1> (x, k)
        y = Div (p, q) }}"""
    found, _ = run(text, np.array(pairs), tmp_path)
    assert found[:, 0].tolist() == [abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) for x, y in pairs]


def test_uint32_is_divided_as_int64(tmp_path: Path):
    numbers = np.array([0, 1, 5, 1 << 31, (1 << 32) - 1], np.uint32)
    found, _ = run("g (uint32[5] x) => (uint32[5] y) <uint32 d = {3}> { y = Div (x, d) }", numbers, tmp_path)
    assert found.dtype == np.uint32
    assert found.tolist() == (numbers // 3).tolist()
