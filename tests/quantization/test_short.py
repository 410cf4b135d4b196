"""--bf16, and --fp16 throughout: what is computed in 16 bits, what stays float32 and why, and the numbers."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.passes.common import ShapeInferencePass

import convertkit
from convertkit.errors import UsageError
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.weights.short import BFLOAT16, FLOAT16, Short, compute_in
from convertkit.report.schema import schema
from tests import onnx_models

DRAW = np.random.default_rng(9)
DATA = DRAW.normal(0, 1, (24, 3, 6, 5)).astype(np.float32)
B = ml_dtypes.bfloat16


def network() -> onnx.ModelProto:
    """A convolution, Relu, a mean, a Gemm: opset 18, where a convolution does not have bfloat16."""
    weights = {"w": (4, 3, 3, 3), "b": (4,), "v": (6, 4), "c": (6,)}
    draw = np.random.default_rng(5)
    stored = [numpy_helper.from_array(draw.normal(0, 1, shape).astype(np.float32), k) for k, shape in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "v", "c"], ["y"], "gemm", transB=1),
    ]
    return onnx_models.model(nodes, {"x": ["N", 3, 6, 5]}, {"y": ["N", 6]}, stored)


def exported(tmp_path: Path, proto: object, **how: object) -> convertkit.ExportResult:
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    return convertkit.export(source, "tensorrt", output=tmp_path / "out", bf16=True, **how)


@pytest.mark.parametrize("how", [{}, {"calib": DATA}])
def test_everything_is_bfloat16_but_the_interface(tmp_path: Path, how: dict[str, object]) -> None:
    made = exported(tmp_path, network(), **how)
    assert made.report["effective"]["sentence"] == "bf16: weights and arithmetic in bfloat16"
    model = onnx.load(made.artifact.path)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 22
    floats = [each for each in model.graph.initializer if each.data_type != TensorProto.INT64]
    assert {each.data_type for each in floats} == {TensorProto.BFLOAT16}
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == ["Cast", "Conv", "Relu", "GlobalAveragePool", "Reshape", "Gemm", "Cast"]
    ends = (*model.graph.input, *model.graph.output)
    assert [each.type.tensor_type.elem_type for each in ends] == [TensorProto.FLOAT] * 2


def test_what_ran_is_told_and_the_loss_is_measured(tmp_path: Path) -> None:
    made = exported(tmp_path, network(), calib=DATA)
    assert made.report["steps"][-1]["artifact"]["runtime"].endswith(", bfloat16 operators in float32")
    (tensor,) = made.report["steps"][-1]["parity"]["versus_source"]["tensors"]
    assert 35 < tensor["snr_db"] < 70, "eight bits"
    jsonschema.validate(made.report, schema())
    assert made.report["steps"][-2]["diagnosis"]["held_out"]["snr_db"] > 35
    told = (made.artifact.path.parent / "README.md").read_text()
    assert (
        "Each value may differ by 4 % of its output's greatest one, or by three times what the\nmodel's own rounding"
        in told
    )


def test_what_counts_stays_float32(tmp_path: Path) -> None:
    """Angles of positions, and a look-up by a rounded value: in bfloat16 position 257 would be 256."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (int64[N] place, float[N] share) => (float[N,4] wave, float[N,4] row)
    { p = Cast <to = 1> (place)
      u = Unsqueeze (p, last)
      angle = Mul (u, frequencies)
      sine = Sin (angle)
      wave = Mul (sine, gain)
      scaled = Mul (share, many)
      bounded = Clip (scaled, zero, many)
      index = Cast <to = 7> (bounded)
      entry = Gather (table, index)
      row = Mul (entry, gain) }"""
    proto = onnx.parser.parse_model(text)
    stored = {
        "last": np.array([1]),
        "frequencies": np.array([1.0, 0.3, 0.1, 0.02], np.float32),
        "gain": np.array([1.5, 2.5, 0.5, 3.0], np.float32),
        "zero": np.array(0.0, np.float32),
        "many": np.array(899.0, np.float32),
        "table": DRAW.normal(0, 1, (900, 4)).astype(np.float32),
    }
    proto.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in stored.items())
    data = {"place": np.arange(240, 272).reshape(8, 4), "share": DRAW.uniform(0, 1, (8, 4)).astype(np.float32)}
    made = exported(tmp_path, proto, calib=data)
    kinds = {each.name: each.type.tensor_type.elem_type for each in onnx.load(made.artifact.path).graph.value_info}
    assert {kinds[name] for name in ("p", "u", "angle", "sine", "scaled", "bounded")} == {TensorProto.FLOAT}
    assert {kinds[name] for name in ("wave_bfloat16", "entry", "row_bfloat16")} == {TensorProto.BFLOAT16}
    assert min(each["snr_db"] for each in made.report["steps"][-1]["parity"]["versus_source"]["tensors"]) > 40


def graph(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'))
    ShapeInferencePass()(model)
    return model


def seen(low: float, high: float) -> Statistics:
    found = Statistics()
    found.extremes(low, high)
    return found


@pytest.mark.parametrize(("short", "greatest"), [(FLOAT16, 2e4), (BFLOAT16, 1e38)])
def test_what_would_overflow_stays_float32(short: Short, greatest: float) -> None:
    text = "g (float[4] x) => (float[4] y) { a = Exp (x) b = Neg (a) c = Sigmoid (b) y = Relu (c) }"
    calm = {"x": seen(-1, 1), "c": seen(0, 1), "y": seen(0, 1)}
    loud = {"a": seen(0, greatest), "b": seen(-greatest, 0)}
    model = graph(text)
    assert compute_in(short, model, calm | loud) == ("a", "b", "c")
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    model = graph(text)
    assert compute_in(short, model, calm) == ()


@pytest.mark.parametrize("target", ["tensorrt", "coreml"])
def test_only_what_reads_infinities_of_a_mask_stays_float32(tmp_path: Path, target: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[2,4,4] x) => (float[2,4,4] y) {
        a = MatMul(x, w) s = Add(a, mask) p = Softmax(s) y = MatMul(p, x) }"""
    proto = onnx.parser.parse_model(text)
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    stored = {"mask": mask, "w": DRAW.normal(0, 1, (4, 4)).astype(np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in stored.items())
    source = onnx_models.write(tmp_path, proto, "source.onnx")
    made = convertkit.export(source, target, output=tmp_path / "out", fp16=True)
    (kept,) = (step["diagnosis"]["float32"] for step in made.report["steps"] if step["stage"] == "half")
    assert len(kept) == 2, "the sum and the softmax"


def test_what_the_target_lacks_and_what_onnx_lacks_stay_float32() -> None:
    text = (
        "g (float[4] x) => (float[4] y, float[4] z) { a = Mish (x) y = Relu (a) h = HammingWindow (n) z = Mul (h, x) }"
    )
    model = graph(text.replace("float[4] x)", "float[4] x, int64 n)"))
    assert compute_in(BFLOAT16, model, {}, {"Mish"}) == ("a", "h")


def test_what_moves_between_float32_is_not_rounded() -> None:
    """``t`` and ``s`` bring values to nodes of float32; ``u`` comes from a half, and a half reads ``v``, too."""
    text = (
        "g (float[2,3] x) => (float[3,2] y, float[2,2] o, float[2,2] r, float[2,2] z) { t = Transpose (x)"
        " s = Slice (t, zero, two) y = CumSum (t, zero) c = CumSum (s, zero) m = Neg (c) u = Transpose (m)"
        " o = CumSum (u, zero) v = Transpose (c) r = Relu (v) z = CumSum (v, zero) }"
    )
    model = graph(text.replace("g (float[2,3] x)", "g (float[2,3] x, int64[1] zero, int64[1] two)"))
    assert compute_in(FLOAT16, model, {}) == ("t", "s", "y", "c", "o", "z")
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [node.op_type for node in model.graph].count("Cast") == 4


def test_what_moves_to_float32_from_halves_or_to_an_output_is_a_half() -> None:
    model = graph("g (float[2,3] x, int64 n) => (float[3,2] t, float[3,2] y) { t = Transpose (x) y = CumSum (t, n) }")
    assert compute_in(FLOAT16, model, {}) == ("y",)


def test_constants_are_rounded_to_nearest() -> None:
    model = graph("g (float[3] x) => (float[3] y) { y = Mul (x, k) }")
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -3.3], np.float32)
    constant = ir.Value(name="k", const_value=ir.tensor(values, name="k"), type=ir.TensorType(ir.DataType.FLOAT))
    model.graph.register_initializer(constant)
    model.graph[0].replace_input_with(1, constant)
    compute_in(BFLOAT16, model, {})
    (stored,) = model.graph.initializers.values()
    assert stored.const_value is not None
    np.testing.assert_array_equal(stored.const_value.numpy().astype(np.float32), [1, 1 + 2**-6, B(-3.3)])


@pytest.mark.parametrize(
    ("target", "how", "says"),
    [
        ("onnxruntime", {}, "target onnxruntime does not deliver bf16"),
        ("tensorrt", {"fp16": True}, "--fp16 and --bf16 exclude each other"),
        ("tensorrt", {"full_integer": True}, "--full-integer goes with --int8 or --int16x8"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path: Path, target: str, how: dict[str, object], says: str) -> None:
    source = onnx_models.write(tmp_path, network(), "source.onnx")
    with pytest.raises(UsageError, match=says):
        convertkit.export(source, target, output=tmp_path / "out", bf16=True, **how)
    assert not (tmp_path / "out").exists()
