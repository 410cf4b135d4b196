"""Quantized element types: read from text and bytecode, converted to QDQ, held against the specification's formula."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import pytest

pytest.importorskip("jaxlib.mlir.ir")

from jaxlib.mlir import ir

from convertkit.artifact import Array
from convertkit.converters.stablehlo.importer import Parsed, to_onnx
from convertkit.converters.stablehlo.module import context, run_pass
from convertkit.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Kind:
    """A quantized type, and beside it what it says."""

    name: str
    low: int
    high: int
    scales: float | list[list[float]]
    zeros: int | list[list[int]]
    dtype: type[np.signedinteger[Any]]

    def stored(self, reals: Array) -> Array:
        """``uniform_quantize`` as the specification writes it: divide, add the zero point, clamp, round to even."""
        shifted = reals / np.float32(self.scales) + np.float32(self.zeros)
        whole: Array = np.rint(np.clip(shifted.astype(np.float64), self.low, self.high)).astype(self.dtype)
        return whole

    def expressed(self, integers: Array) -> Array:
        """``uniform_dequantize``."""
        centred: Array = (integers.astype(np.int64) - self.zeros).astype(np.float32) * np.float32(self.scales)
        return centred


BYTE = Kind("!quant.uniform<i8:f32, 1.0e-01:6>", -128, 127, 0.1, 6, np.int8)
NARROW = Kind("!quant.uniform<i8<-100:100>:f32, 3.0e-02:-3>", -100, 100, 0.03, -3, np.int8)
ROWS = Kind("!quant.uniform<i8:f32:0, {0.1:2,0.07:-4}>", -128, 127, [[0.1], [0.07]], [[2], [-4]], np.int8)
SHORT = Kind("!quant.uniform<i16:f32, 2.0e-03:-8>", -(2**15), 2**15 - 1, 0.002, -8, np.int16)
WORD = Kind("!quant.uniform<i32:f32, 1.0e-05:11>", -(2**31), 2**31 - 1, 1e-5, 11, np.int32)
I8 = BYTE.name
rng = np.random.default_rng(7)
REALS = np.concatenate([rng.uniform(-15, 15, (2, 30)), [[1e9, -1e9, 0.0], [40.0, -40.0, 0.1]]], 1).astype(np.float32)


def run(source: str | bytes, *arrays: Array) -> Array:
    model = onnx_ir.to_proto(to_onnx(source)).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    result = session.run(None, {each.name: array for each, array in zip(session.get_inputs(), arrays, strict=True)})[0]
    return np.asarray(result)


def operators(source: str) -> list[str]:
    return [node.op_type for node in to_onnx(source).graph if node.op_type != "Identity"]


def module(body: str, taken: str, given: str) -> str:
    return f"func.func @main(%x: tensor<{taken}>) -> tensor<{given}> {{\n{body}\nreturn %y : tensor<{given}>\n}}"


def one(operator: str, taken: str, given: str) -> str:
    return module(f"%y = stablehlo.{operator} %x : (tensor<{taken}>) -> tensor<{given}>", taken, given)


@pytest.mark.parametrize("kind", [BYTE, NARROW, ROWS, SHORT, WORD], ids=lambda kind: kind.name)
def test_quantize_and_back(kind: Kind):
    want = kind.stored(REALS)
    got = run(one("uniform_quantize", "2x33xf32", f"2x33x{kind.name}"), REALS)
    np.testing.assert_array_equal(got, want)
    back = run(one("uniform_dequantize", f"2x33x{kind.name}", "2x33xf32"), want)
    np.testing.assert_allclose(back, kind.expressed(want), rtol=1e-6)


def test_quantized_otherwise():
    """From one quantized type to another goes through the real number."""
    integers = rng.integers(-128, 128, (2, 33)).astype(np.int8)
    got = run(one("uniform_quantize", f"2x33x{I8}", f"2x33x{NARROW.name}"), integers)
    np.testing.assert_array_equal(got, NARROW.stored(BYTE.expressed(integers)))


@pytest.mark.parametrize("free", ["2", "?"])
def test_operators_compute_between_dequantize_and_quantize(free: str):
    source = module(f"%y = stablehlo.add %x, %x : tensor<{free}x3x{I8}>", f"{free}x3x{I8}", f"{free}x3x{I8}")
    assert operators(source) == ["DequantizeLinear", "Add", "QuantizeLinear"]
    integers = rng.integers(-128, 128, (2, 3)).astype(np.int8)
    real = BYTE.expressed(integers)
    np.testing.assert_array_equal(run(source, integers), BYTE.stored(real + real))


@pytest.mark.parametrize("form", ["text", "bytecode", "portable"])
def test_forms(form: str):
    source = one("uniform_dequantize", f"2x33x{ROWS.name}", "2x33xf32")
    integers = rng.integers(-128, 128, (2, 33)).astype(np.int8)
    written = source if form == "text" else bytecode(source, form)
    np.testing.assert_array_equal(run(written, integers), run(source, integers))


def bytecode(source: str, form: str) -> bytes:
    with context() as ctx:
        read = ir.Module.parse(source, ctx)
        if form == "portable":
            run_pass(read, "stablehlo-legalize-to-vhlo")
        written = io.BytesIO()
        read.operation.write_bytecode(written)
        return written.getvalue()


@dataclass(frozen=True, slots=True)
class Moved:
    """An operator that only moves data does so on the integers."""

    name: str
    body: str
    expect: list[str]


T, Q = f"tensor<2x3x{I8}>", f"tensor<{I8}>"
MOVES = [
    Moved("transpose", f"%y = stablehlo.reshape %t : (tensor<3x2x{I8}>) -> {T}", ["Transpose", "Reshape"]),
    Moved("pad", f"%y = stablehlo.slice %p [0:2, 0:3] : (tensor<2x4x{I8}>) -> {T}", ["Pad", "Slice"]),
    Moved("concatenate", f"%y = stablehlo.slice %c [1:3, 0:3] : (tensor<4x3x{I8}>) -> {T}", ["Concat", "Slice"]),
]
FIRST = {
    "transpose": f"%t = stablehlo.transpose %x, dims = [1, 0] : ({T}) -> tensor<3x2x{I8}>\n",
    "pad": f"%v = stablehlo.constant() {{value = dense<6> : tensor<i8>}} : () -> {Q}\n"
    f"%p = stablehlo.pad %x, %v, low = [0, 1], high = [0, 0], interior = [0, 0] : ({T}, {Q}) -> tensor<2x4x{I8}>\n",
    "concatenate": f"%c = stablehlo.concatenate %x, %x, dim = 0 : ({T}, {T}) -> tensor<4x3x{I8}>\n",
}


@pytest.mark.parametrize("case", MOVES, ids=lambda case: case.name)
def test_moves(case: Moved):
    assert operators(module(FIRST[case.name] + case.body, f"2x3x{I8}", f"2x3x{I8}")) == case.expect


def product(accumulator: str) -> str:
    """x @ w in 32-bit integers, plus a bias of their scale, as 8-bit integers."""
    weights = f"tensor<3x2x{WEIGHTS}>"
    wide, vector = f"tensor<2x2x{accumulator.format(axis=1)}>", f"tensor<2x{accumulator.format(axis=0)}>"
    return module(
        f"""%w = stablehlo.constant() {{value = dense<[[1, -70], [90, 5], [-8, 127]]> : tensor<3x2xi8>}}
          : () -> {weights}
        %b = stablehlo.constant() {{value = dense<[300, -1000]> : tensor<2xi32>}} : () -> {vector}
        %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({T}, {weights}) -> {wide}
        %s = stablehlo.broadcast_in_dim %b, dims = [1] : ({vector}) -> {wide}
        %a = stablehlo.add %p, %s : {wide}
        %y = stablehlo.uniform_quantize %a : ({wide}) -> tensor<2x2x{OUT}>""",
        f"2x3x{I8}",
        f"2x2x{OUT}",
    )


OUT = "!quant.uniform<i8:f32, 4.0e-01:-2>"
WEIGHTS = "!quant.uniform<i8<-127:127>:f32:1, {0.02,0.03}>"
FITTING = "!quant.uniform<i32:f32:{axis}, {{0.002,0.003}}>"
COARSE = FITTING.replace("0.002,", "0.16,")


def test_products_in_32_bits_become_one_float_product():
    """Their scale is the product of the operands' scales, so that rounding to it changes nothing."""
    assert operators(product(FITTING)) == ["DequantizeLinear"] * 2 + ["MatMul", "DequantizeLinear", "Add"] + [
        "QuantizeLinear"
    ]
    integers = rng.integers(-128, 128, (2, 3)).astype(np.int8)
    weights, scales = np.array([[1, -70], [90, 5], [-8, 127]]), np.array([0.002, 0.003])
    sums = (integers.astype(int) - 6) @ weights + [300, -1000]
    np.testing.assert_array_equal(run(product(FITTING), integers), np.clip(np.rint(sums * scales / 0.4) - 2, -128, 127))


def test_another_scale_rounds():
    assert operators(product(COARSE)).count("Round") == 1  # the sum of two multiples of 0.16 is one
    integers = np.array([[110, 6, 6], [6, 6, 6]], np.int8)
    # 104 * 0.002 is 1.3 steps of 0.16, rounded to one: 300 + 1 of them are 120.4 steps of 0.4, unrounded 120.52.
    np.testing.assert_array_equal(run(product(COARSE), integers)[:, 0], [118, 118])


REFUSED = {
    "unsigned": "!quant.uniform<u8:f32, 1.0e-01:5>",
    "4 bits": "!quant.uniform<i4:f32, 1.0e-01>",
    "half": "!quant.uniform<i8:f16, 1.0e-01>",
    "blocks": "!quant.uniform<i8:f32:{0:2}, {{0.1},{0.2}}>",
}


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
def test_refused_types(name: str):
    kind = f"tensor<4x{name}>"
    with pytest.raises(Unsupported, match=r"quantized element type .*; export the float model and quantize it"):
        to_onnx(f"func.func @main(%x: {kind}) -> {kind} {{\nreturn %x : {kind}\n}}")


SORT = f"""%y = "stablehlo.sort"(%x) ({{
^bb0(%a: {Q}, %b: {Q}):
  %s = stablehlo.compare LT, %a, %b : ({Q}, {Q}) -> tensor<i1>
  stablehlo.return %s : tensor<i1>
}}) {{dimension = 1 : i64, is_stable = true}} : ({T}) -> {T}"""


def test_operators_without_a_float_form_are_refused():
    source = module(SORT, f"2x3x{I8}", f"2x3x{I8}")
    with pytest.raises(Unsupported, match="computes on quantized tensors"):
        to_onnx(source)
    with pytest.raises(Unsupported, match=r"no runtime executes: .*stablehlo\.sort"):
        Parsed(source).expanded()
