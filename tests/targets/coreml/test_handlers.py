"""Operators lowered to MIL and read back from the package, beside ONNX Runtime: what ONNX's own cases do not have.

The breadth is in tests/conformance; here are weights, quantization, dynamic forms and refusals.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from convertkit.errors import ToolError, Unsupported
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.package.program import Block, Operation, TensorType
from convertkit.targets.coreml.runner import CoreMLRunner
from convertkit.workers.process import Worker
from tests.targets.coreml.apple_packages import Row, compile_text, numbers

ELIGIBLE = Path(__file__).parents[2] / "conformance" / "eligible.json"
X34 = "float[3,4] x"
IMAGE = "float[2,3,5,7] x"

SCALES = {"s": np.float32(0.05), "z": np.int8(3)}
W8 = np.random.default_rng(1).integers(-127, 128, (6, 4), np.int8)
INTEGERS = np.int32([0, 1, -1, 2**31 - 1, -(2**31), 0x5A5A5A5A, -123456789])
ROWS = [
    Row("relu", X34, "float[3,4] y", "y = Relu(x)", expect=("relu", "identity")),
    Row(
        "integer-relu",
        "int32[3,4] x",
        "int32[3,4] y",
        "y = Relu(x)",
        feed={"x": np.arange(-6, 6, dtype=np.int32).reshape(3, 4)},
    ),
    Row(
        "conv-groups",
        "float[2,4,6,7] x",
        "float[2,6,3,4] y",
        "y = Conv<group=2, strides=[2,2], pads=[1,0,0,1]>(x, w, c)",
        {"w": numbers(6, 2, 3, 2), "c": numbers(6)},
        expect=("conv", "identity"),
    ),
    Row(
        "depthwise",
        IMAGE,
        "float[2,6,5,7] y",
        "y = Conv<group=3, pads=[1,1,1,1]>(x, w)",
        {"w": numbers(6, 1, 3, 3)},
    ),
    Row(
        "conv-transpose",
        IMAGE,
        "float[2,4,10,14] y",
        "y = ConvTranspose<strides=[2,2], pads=[1,1,0,0], output_padding=[0,0]>(x, w, c)",
        {"w": numbers(3, 4, 3, 3), "c": numbers(4)},
    ),
    Row(
        "linear",
        X34,
        "float[3,6] y",
        "y = Gemm<transB=1>(x, w, c)",
        {"w": numbers(6, 4), "c": numbers(6)},
        expect=("linear", "identity"),
    ),
    Row(
        "gemm-scaled",
        X34,
        "float[3,6] y",
        "y = Gemm<alpha=0.5, beta=2.0>(x, w, c)",
        {"w": numbers(4, 6), "c": numbers(3, 1)},
    ),
    Row(
        "weight-matmul",
        "float[2,3,4] x",
        "float[2,3,5] y",
        "y = MatMul(x, w)",
        {"w": numbers(4, 5)},
        expect=("linear", "identity"),
    ),
    Row("vector-matmul", "float[4] x", "float[5] y", "y = MatMul(x, w)", {"w": numbers(4, 5)}),
    Row("scalar", "float x", "float y", "y = Add(x, x)", feed={"x": np.array(1.5, np.float32)}),
    Row("booleans", "bool[3,4] x", "bool[3,4] y", "y = Not(x)", feed={"x": numbers(3, 4) > 0}),
    Row("int64", "int64[3] x", "int64[3] y", "y = Mul(x, x)", feed={"x": np.array([-3, 2, 40000], np.int64)}),
    Row(
        "wrapped-bytes",
        "uint8[3] x",
        "uint8[3] y",
        "y = Sub(x, o)",
        {"o": np.uint8([200, 3, 0])},
        {"x": np.uint8([7, 9, 255])},
    ),
    Row(
        "truncated-division",
        "int32[4] x",
        "int32[4] y",
        "y = Div(x, o)",
        {"o": np.int32([2, -2, 3, -3])},
        {"x": np.int32([-7, 7, 8, -8])},
    ),
    Row(
        "fmod",
        "float[4] x",
        "float[4] y",
        "y = Mod<fmod=1>(x, o)",
        {"o": np.float32([2, -2, 3, -3])},
        {"x": np.float32([-7, 7, 8, -8.5])},
    ),
    Row("negative-index", X34, "float[2,4] y", "y = Gather(x, i)", {"i": np.int64([-1, 0])}),
    Row(
        "computed-index",
        X34 + ", int64[2] i",
        "float[2,4] y",
        "y = Gather(x, i)",
        feed={"x": numbers(3, 4), "i": np.int64([-1, 1])},
    ),
    Row(
        "backward-slice",
        X34,
        "float[3,2] y",
        "y = Slice(x, a, e, d, p)",
        {"a": np.int64([3]), "e": np.int64([-5]), "d": np.int64([1]), "p": np.int64([-2])},
    ),
    Row("log-softmax-of-large", X34, "float[3,4] y", "y = LogSoftmax(x)", feed={"x": numbers(3, 4) * 200}),
    Row("acosh-near-1", "float[4] x", "float[4] y", "y = Acosh(x)", feed={"x": np.float32([1, 1.0001, 2, 900])}),
    Row("asinh-near-0", "float[4] x", "float[4] y", "y = Asinh(x)", feed={"x": np.float32([1e-6, -1e-3, 2, -900])}),
    Row(
        "reflect",
        IMAGE,
        "float[2,3,7,10] y",
        'y = Pad<mode="reflect">(x, p)',
        {"p": np.int64([0, 0, 1, 2, 0, 0, 1, 1])},
    ),
    Row(
        "integer-pad",
        "int32[2,2] x",
        "int32[4,2] y",
        "y = Pad(x, p, v)",
        {"p": np.int64([1, 0, 1, 0]), "v": np.int32(7)},
        {"x": np.int32([[1, 2], [3, 4]])},
    ),
    Row(
        "upsampled",
        IMAGE,
        "float[2,3,10,14] y",
        'y = Resize<mode="linear">(x, , f)',
        {"f": np.float32([1, 1, 2, 2])},
        expect=("upsample_bilinear", "identity"),
    ),
    Row(
        "downsampled",
        IMAGE,
        "float[2,3,3,4] y",
        'y = Resize<mode="linear">(x, , , f)',
        {"f": np.int64([2, 3, 3, 4])},
        expect=("matmul", "matmul", "identity"),
    ),
    Row(
        "ceil-pool",
        IMAGE,
        "float[2,3,3,4] y",
        "y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)",
        expect=("max_pool", "identity"),
    ),
    Row(
        "average-with-border",
        IMAGE,
        "float[2,3,3,4] y",
        "y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1>(x)",
        expect=("avg_pool", "identity"),
    ),
    Row(
        "windows",
        "float[2,8,6,3] x",
        "float[8,12,3] y",
        "s = Reshape(x, f) t = Transpose<perm=[0,1,3,2,4,5]>(s) y = Reshape(t, g)",
        {"f": np.int64([2, 2, 4, 2, 3, 3]), "g": np.int64([-1, 12, 3])},
        expect=("reshape", "transpose", "reshape"),
    ),
    Row(
        "six-axes-apart",
        "float[2,24,5,7] x",
        "float[2,4,10,21] y",
        "s = Reshape(x, f) t = Transpose<perm=[0,3,4,1,5,2]>(s) y = Reshape(t, g)",
        {"f": np.int64([2, 2, 3, 4, 5, 7]), "g": np.int64([0, 4, 10, 21])},
    ),
    Row(
        "average-of-opset-18",
        IMAGE,
        "float[2,3,3,4] y",
        "y = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>(x)",
        expect=("avg_pool", "identity"),
        opset=18,
    ),
    Row(
        "batch-norm",
        IMAGE,
        "float[2,3,5,7] y",
        "y = BatchNormalization(x, a, b, m, v)",
        {"a": numbers(3), "b": numbers(3, seed=1), "m": numbers(3, seed=2), "v": np.abs(numbers(3, seed=3)) + 0.1},
        expect=("mul", "add", "identity"),
    ),
    Row(
        "group-norm",
        "float[2,4,5,7] x",
        "float[2,4,5,7] y",
        "y = GroupNormalization<num_groups=2>(x, a, b)",
        {"a": numbers(4), "b": numbers(4, seed=1)},
    ),
    Row(
        "lstm",
        "float[5,2,3] x",
        "float[5,1,2,4] y",
        "y, h, c = LSTM<hidden_size=4>(x, w, r, b)",
        {"w": numbers(1, 16, 3), "r": numbers(1, 16, 4, seed=1), "b": numbers(1, 32, seed=2)},
        expect=("lstm",),
    ),
    Row(
        "lstm-both-ways",
        "float[5,2,3] x",
        "float[5,2,2,4] y",
        'y, h, c = LSTM<hidden_size=4, direction="bidirectional">(x, w, r, b)',
        {"w": numbers(2, 16, 3), "r": numbers(2, 16, 4, seed=1), "b": numbers(2, 32, seed=2)},
    ),
    Row(
        "gru",
        "float[5,2,3] x",
        "float[5,1,2,4] y",
        "y, h = GRU<hidden_size=4, linear_before_reset=1>(x, w, r, b)",
        {"w": numbers(1, 12, 3), "r": numbers(1, 12, 4, seed=1), "b": numbers(1, 24, seed=2)},
    ),
    Row(
        "gru-reverse",
        "float[5,2,3] x",
        "float[5,1,2,4] y",
        'y, h = GRU<hidden_size=4, direction="reverse">(x, w, r, b)',
        {"w": numbers(1, 12, 3), "r": numbers(1, 12, 4, seed=1), "b": numbers(1, 24, seed=2)},
    ),
    Row(
        "rnn-reverse",
        "float[5,2,3] x",
        "float[5,1,2,4] y",
        'y, h = RNN<hidden_size=4, direction="reverse">(x, w, r, b)',
        {"w": numbers(1, 4, 3), "r": numbers(1, 4, 4, seed=1), "b": numbers(1, 8, seed=2)},
        expect=("rnn",),
    ),
    Row(
        "quantized",
        X34,
        "float[3,4] y",
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
        SCALES,
        expect=("quantize", "dequantize", "identity"),
    ),
    Row(
        "weights-of-bytes",
        X34,
        "float[3,6] y",
        "w = DequantizeLinear<axis=0>(q, s) y = Gemm<transB=1>(x, w)",
        {"q": W8, "s": np.abs(numbers(6)) / 50},
        expect=("constexpr_affine_dequantize", "linear", "identity"),
    ),
    Row(
        "weights-of-bytes-18",
        X34,
        "float[3,6] y",
        "w = DequantizeLinear<axis=0>(q, s) y = Gemm<transB=1>(x, w)",
        {"q": W8, "s": np.abs(numbers(6)) / 50},
        expect=("constexpr_blockwise_shift_scale", "linear", "identity"),
        target="iOS18",
    ),
    Row(
        "halves",
        "float16[3,4] x",
        "float16[3,4] y",
        "y = Exp(x)",
        feed={"x": numbers(3, 4).astype(np.float16)},
        tolerance=1e-3,
    ),
    Row(
        "shuffled",
        "float[1,8,3,2] x",
        "float[1,2,6,4] y",
        'y = DepthToSpace<blocksize=2, mode="CRD">(x)',
        expect=("pixel_shuffle", "identity"),
    ),
    Row(
        "dcr",
        "float[1,8,3,2] x",
        "float[1,2,6,4] y",
        "y = DepthToSpace<blocksize=2>(x)",
        expect=("depth_to_space", "identity"),
    ),
    Row("cast", X34, "int32[3,4] y", "y = Cast<to=6>(x)", feed={"x": 3 * numbers(3, 4)}),
    Row("cast-like", X34, "int32[3,4] y", "y = CastLike(x, k)", {"k": np.int32([1])}, {"x": 3 * numbers(3, 4)}),
    Row("constant", X34, "float[3,4] y", "c = Constant<value_float=1.5>() y = Add(x, c)"),
    Row(
        "constant-of-shape",
        X34,
        "float[3,4] y",
        "z = ConstantOfShape<value=float[1]{2.5}>(s) y = Mul(x, z)",
        {"s": np.int64([3, 4])},
    ),
    Row(
        "range",
        X34,
        "float[3,4] y",
        "r = Range(a, e, d) y = Add(x, r)",
        {"a": np.float32(1), "e": np.float32(9), "d": np.float32(2)},
    ),
    Row("global-lp-pool", IMAGE, "float[2,3,1,1] y", "y = GlobalLpPool<p=3>(x)"),
    Row("reduce-log-sum-exp", X34, "float[3,1] y", "y = ReduceLogSumExp<keepdims=1>(x, a)", {"a": np.int64([1])}),
    Row(
        "dft-of-a-dynamic-batch",
        "float[N,9,1] x",
        "float[N,5,2] y",
        "y = DFT<onesided=1>(x, , a)",
        {"a": np.int64(1)},
        {"x": numbers(3, 9, 1)},
        expect=("reshape", "linear"),
    ),
    Row(
        "dft-of-a-part",
        "float[2,9,3,2] x",
        "float[2,5,3,2] y",
        "y = DFT(x, n, a)",
        {"n": np.int64(5), "a": np.int64(1)},
    ),
    Row(
        "stft",
        "float[2,40,1] x",
        "float[2,9,5,2] y",
        "y = STFT(x, s, w)",
        {"s": np.int64(4), "w": numbers(8)},
    ),
    Row(
        "col2im",
        "float[2,12,20] x",
        "float[2,3,6,5] y",
        "y = Col2Im(x, i, k)",
        {"i": np.int64([6, 5]), "k": np.int64([2, 2])},
    ),
    Row(
        "sampled-at-edges",
        "float[2,3,5,7] x, float[2,4,4,2] g",
        "float[2,3,4,4] y",
        'y = GridSample<padding_mode="reflection">(x, g)',
        feed={"x": numbers(2, 3, 5, 7), "g": 2 * numbers(2, 4, 4, 2, seed=1)},
        expect=("resample", "identity"),
    ),
    Row(
        "compressed-while-it-runs",
        "float[3,4] x, bool[4] c",
        "float[3,M] y",
        "y = Compress<axis=1>(x, c)",
        feed={"x": numbers(3, 4), "c": np.array([True, False, True, True])},
    ),
    Row("p-relu", IMAGE, "float[2,3,5,7] y", "y = PRelu(x, a)", {"a": np.abs(numbers(3, 1, 1))}),
    Row(
        "bits-beside-a-constant",
        "int32[7] x",
        "int32[7] y",
        "a = BitwiseAnd(x, m) o = BitwiseOr(a, n) y = BitwiseXor(o, x)",
        {"m": np.int32(-(2**31) + 0x55AA), "n": np.int32([0, -1, 5, 1 << 30, -7, 0, 3])},
        {"x": INTEGERS},
    ),
    Row(
        "lowest-bits",
        "int32[7] x",
        "int32[7] y",
        "y = BitwiseAnd(x, m)",
        {"m": np.int32(0xFF)},
        {"x": INTEGERS},
        expect=("mod", "identity"),
    ),
    Row("bits-of-bytes", "uint8[3] x", "uint8[3] y", "y = BitwiseNot(x)", feed={"x": np.uint8([0, 7, 255])}),
    Row("bits-of-integers", "int64[7] x", "int64[7] y", "y = BitwiseNot(x)", feed={"x": INTEGERS.astype(np.int64)}),
    Row(
        "shifted",
        "uint8[4] x, uint8[4] s",
        "uint8[4] y",
        'r = BitShift<direction="RIGHT">(x, s) y = BitShift<direction="LEFT">(r, t)',
        {"t": np.uint8([7, 0, 1, 3])},
        {"x": np.uint8([255, 254, 77, 200]), "s": np.uint8([0, 1, 7, 3])},
    ),
    Row("determinant", "float[2,3,3] x", "float[2] y", "y = Det(x)"),
    Row("determinant-of-one", "float[2,1,1] x", "float[2] y", "y = Det(x)"),
    Row(
        "bytes-of-this-input",
        X34,
        "float[3,4] y",
        "q, s, z = DynamicQuantizeLinear(x) c = Cast<to=1>(q) y = Mul(c, s)",
        expect=("reduce_min", "minimum"),
    ),
    Row(
        "bytes-of-zeros",
        X34,
        "uint8[3,4] q, float s",
        "q, s, z = DynamicQuantizeLinear(x)",
        feed={"x": np.zeros((3, 4), np.float32)},
    ),
    Row(
        "blocks-of-an-input",
        "int8[2,6] x",
        "float[2,6] y",
        "y = DequantizeLinear<axis=1, block_size=3>(x, s, z)",
        {"s": np.float32([[0.1, 0.2], [0.3, 0.4]]), "z": np.int8([[1, 2], [3, 4]])},
        {"x": np.arange(-6, 6, dtype=np.int8).reshape(2, 6)},
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Row, worker: Worker, tmp_path: Path):
    row.check(worker, tmp_path / "c")


REFUSED = [
    ("double[3] x", "double[3] y", "y = Add(x, x)", "float64 numbers"),
    ("string[3] x", "string[3] y", "y = Identity(x)", "string numbers"),
    ("int64[3] x", "int32[3] y", "y = BitCast<to=6>(x)", "no such operator"),
    ("uint32[3] x", "uint32[3] y", "y = BitwiseNot(x)", "highest bits of uint32"),
    ("float[4,4] x", "float y", "y = Det(x)", "Det of 4 x 4"),
    (
        "float[1,1,3,3] x, float[1,2,2,2] g",
        "float[1,1,2,2] y",
        'y = GridSample<mode="nearest">(x, g)',
        "only the bilinear one is documented",
    ),
    ("float[1,1,1,1,1,2] x", "float[1,1,1,1,1,2] y", "y = Relu(x)", "6 dimensions"),
]


@pytest.mark.parametrize(("inputs", "outputs", "body", "reason"), REFUSED)
def test_what_core_ml_cannot_hold_is_refused(inputs, outputs, body, reason, worker: Worker, tmp_path: Path):
    with pytest.raises(Unsupported, match=reason) as refused:
        compile_text(worker, f"test ({inputs}) => ({outputs}) {{ {body} }}", tmp_path / "c")
    assert refused.value.ways_out


def test_a_division_by_0_has_no_answer(worker: Worker, tmp_path: Path):
    """Golden inputs are then others; numbers that NumPy makes up are not an answer."""
    made = compile_text(worker, "test (int32[3] x, int32[3] d) => (int32[3] y) { y = Div(x, d) }", tmp_path / "c")
    with CoreMLRunner(made.artifact) as runner, pytest.raises(ToolError, match="division of integers by 0"):
        runner.run({"x": np.int32([1, 2, 3]), "d": np.int32([1, 0, 2])})
    golden = json.loads((made.artifact.path.parent / "golden.json").read_text())
    assert golden["vectors"]


def test_a_program_of_others_is_refused_by_the_operation():
    operation = Operation(
        "resample",
        {"x": (np.zeros((1, 1, 2, 2), np.float32),), "coordinates": (np.zeros((1, 1, 1, 2), np.float32),)},
        (("y", TensorType("float32", (1, 1, 1, 1))),),
        {
            "sampling_mode": np.array("nearest"),
            "padding_mode": np.array("constant"),
            "padding_value": np.float32(0),
            "coordinates_mode": np.array("unnormalized"),
            "align_corners": np.array(True),
        },
    )
    with pytest.raises(ToolError, match="mode nearest at unnormalized places"):
        Evaluator(Block((), ("y",), (operation,))).run({})


def test_four_bits_need_ios_18(worker: Worker, tmp_path: Path):
    import ml_dtypes

    weights = {"q": np.arange(-7, 9, dtype=np.int8).clip(-7, 7).reshape(4, 4).astype(ml_dtypes.int4)}
    weights["s"] = np.float32([0.1, 0.2, 0.3, 0.4])
    text = f"test ({X34}) => (float[3,4] y) {{ w = DequantizeLinear<axis=0>(q, s) y = Gemm<transB=1>(x, w) }}"
    made = compile_text(worker, text, tmp_path / "new", "iOS18", **weights)
    made.agree({"x": numbers(3, 4)})
    with pytest.raises(Unsupported, match="4 bits") as refused:
        compile_text(worker, text, tmp_path / "old", "iOS17", **weights)
    assert any("iOS18" in way for way in refused.value.ways_out)


def test_bytes_are_the_same_in_every_process(worker: Worker, tmp_path: Path):
    text = f"test ({IMAGE}) => (float[2,6,5,7] y) {{ c = Conv<pads=[1,1,1,1]>(x, w) y = Relu(c) }}"
    weights = {"w": numbers(6, 3, 3, 3)}
    first = compile_text(worker, text, tmp_path / "a", **weights).artifact
    again = compile_text(worker, text, tmp_path / "b", **weights).artifact
    with Worker("convertkit.targets.coreml.service:CoreMLService", env={"PYTHONHASHSEED": "7"}) as other:
        apart = compile_text(other, text, tmp_path / "c", **weights).artifact
    assert first.sha256 == again.sha256 == apart.sha256


def test_every_handler_has_a_row_or_a_case():
    """And its signature is that of the schema, in every version that a canonical model may have."""
    cases = {row["op"] for row in json.loads(ELIGIBLE.read_text())["cases"]}
    with Worker("tests.targets.coreml.coreml_registry_service:Handlers", timeout_s=120) as worker:
        handled = set(worker.call("operators").value)
        assert not worker.call("missing").value, "versions that canonical models have"
    rows = " ".join(row.body for row in ROWS)
    untold = {op for op in handled - cases if f"{op}(" not in rows and f"{op}<" not in rows}
    assert not untold
    assert len(handled) > 120
