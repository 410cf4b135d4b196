"""Models that others quantized, in every form that ONNX Runtime's tools write."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from ai_edge_litert.interpreter import Interpreter
from onnx import helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import convertkit
from convertkit.errors import UsageError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.qoperators import to_qdq
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from tests.quantization.models import images, model_of, small_cnn

DATA = images(12)
TYPES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8, "u16": QuantType.QUInt16, "s16": QuantType.QInt16}


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self.rest = iter([{"x": x[None]} for x in DATA])

    def get_next(self) -> object:
        return next(self.rest, None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    """A quantized small network by the names of its form and types, as ``QOperator pc u8 s8``."""
    folder = tmp_path_factory.mktemp("quantized")
    onnx.save(small_cnn(), folder / "float.onnx")

    @functools.cache
    def make(name: str) -> Path:
        form, channels, activation, weight = name.split()
        path = folder / f"{name.replace(' ', '_')}.onnx"
        quantize_static(
            str(folder / "float.onnx"), str(path), Reader(), quant_format=QuantFormat[form],
            per_channel=channels == "pc", activation_type=TYPES[activation], weight_type=TYPES[weight],
        )  # fmt: skip
        return path

    return make


def float_outputs() -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(small_cnn().SerializeToString())
    return np.concatenate([session.run(None, {"x": x[None]})[0] for x in DATA])


QOPERATORS = [f"QOperator {channels} {types}" for channels in ("pt", "pc") for types in ("u8 s8", "s8 s8", "u8 u8")]
QDQ = ["QDQ pt u8 s8", "QDQ pc s8 s8", "QDQ pc u8 s8", "QDQ pc u8 u8"]


@pytest.mark.parametrize("name", QOPERATORS)
def test_qlinear_operators_become_the_same_computation(made, tmp_path: Path, name: str) -> None:
    model = canonicalize(load_model(made(name)))
    before = save_model(model, tmp_path / "before.onnx", "test")
    assert to_qdq(model)
    kinds = {node.op_type for node in model.graph}
    assert not {kind for kind in kinds if kind.startswith("QLinear") or kind == "QGemm"}
    # MaxPool moves integers: it stands between a pair of its own now, as targets expect it.
    (pool,) = [node for node in model.graph if node.op_type == "MaxPool"]
    assert pool.inputs[0].producer().op_type == "DequantizeLinear"
    assert [use.node.op_type for use in pool.outputs[0].uses()] == ["QuantizeLinear"]
    after = save_model(model, tmp_path / "after.onnx", "test")
    onnx.checker.check_model(str(after.path), full_check=True)
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        steps = [(one.run({"x": x[None]})["y"] - other.run({"x": x[None]})["y"]) / after.outputs[0].lsb for x in DATA]
    assert np.abs(steps).max() <= 1.01


@pytest.mark.parametrize("name", [*QOPERATORS[:2], QDQ[0]])
def test_images_with_channels_last_as_the_optimizer_writes_them(made, tmp_path: Path, name: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(made(name)), options)
    model = canonicalize(load_model(tmp_path / "optimized.onnx"))
    assert {"QLinearConv", "QLinearGlobalAveragePool"} & {node.op_type for node in model.graph}
    assert to_qdq(model)
    assert not {node.op_type for node in model.graph if node.domain}
    after = save_model(model, tmp_path / "after.onnx", "test")
    onnx.checker.check_model(str(after.path), full_check=True)
    with OnnxRunner(after) as runner:
        for x in DATA:
            steps = (runner.run({"x": x[None]})["y"] - session.run(None, {"x": x[None]})[0]) / after.outputs[0].lsb
            assert np.abs(steps).max() <= 1.01


def test_a_choice_between_integers_of_other_scales(tmp_path: Path) -> None:
    """QLinearWhere."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    stored = {"xs": np.float32(0.02), "xz": np.uint8(100), "ys": np.float32(0.03), "yz": np.uint8(130),
              "zs": np.float32(0.025), "zz": np.uint8(120)}  # fmt: skip
    node = helper.make_node(
        "QLinearWhere", ["c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"], ["z"], domain="com.microsoft"
    )
    kinds = {"c": TensorProto.BOOL, "x": TensorProto.UINT8, "y": TensorProto.UINT8}
    infos = [helper.make_tensor_value_info(name, kind, [4, 6]) for name, kind in kinds.items()]
    result = helper.make_tensor_value_info("z", TensorProto.UINT8, [4, 6])
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()]
    graph = helper.make_graph([node], "g", infos, [result], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "where.onnx")
    model = canonicalize(load_model(tmp_path / "where.onnx"))
    assert to_qdq(model)
    after = save_model(model, tmp_path / "after.onnx", "test")
    rng = np.random.default_rng(0)
    feed = {"c": rng.random((4, 6)) < 0.5, **{k: rng.integers(0, 256, (4, 6)).astype(np.uint8) for k in "xy"}}
    (want,) = onnxruntime.InferenceSession(tmp_path / "where.onnx").run(None, feed)
    with OnnxRunner(after) as runner:
        assert np.abs(runner.run(feed)["z"].astype(int) - want).max() <= 1


def test_a_model_without_them_is_left_alone(made) -> None:
    model = canonicalize(load_model(made("QDQ pc s8 s8")))
    before = [node.op_type for node in model.graph]
    assert not to_qdq(model)
    assert [node.op_type for node in model.graph] == before


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
@pytest.mark.parametrize("name", ["QOperator pt u8 s8", "QOperator pc s8 s8", *QDQ])
def test_quantized_sources_arrive(made, tmp_path: Path, name: str, target: str) -> None:
    result = convertkit.export(str(made(name)), target, output=str(tmp_path / "out"), calib=DATA)
    got = np.concatenate([result.run({"x": x[None]})["y"] for x in DATA])
    expected = float_outputs()
    assert 10 * np.log10(np.square(expected).sum() / np.square(got - expected).sum()) > 25
    if target == "tflite" and name.endswith("s8"):
        tensors = Interpreter(model_path=str(result.artifact.path)).get_tensor_details()
        kernels = [each for each in tensors if len(each["shape"]) == 4 and each["shape"][0] % 16 == 0]
        assert {each["dtype"] for each in kernels} == {np.int8}


def test_int8_leaves_scales_that_are_there(made, tmp_path: Path) -> None:
    plain = convertkit.export(str(made("QDQ pc s8 s8")), "tflite", output=str(tmp_path / "a"), calib=DATA)
    asked = convertkit.export(str(made("QDQ pc s8 s8")), "tflite", output=str(tmp_path / "b"), calib=DATA, int8=True)
    assert plain.artifact.sha256 == asked.artifact.sha256


@pytest.mark.parametrize("flags", [{}, {"full_integer": True, "io_dtype": "int8"}], ids=["int8", "full integer"])
def test_integers_that_are_there_need_no_data(made, tmp_path: Path, flags: dict[str, object]) -> None:
    """Of ONNX, and of the file that it became."""
    first = convertkit.export(str(made("QDQ pc s8 s8")), "tflite", int8=True, output=tmp_path / "a", **flags)
    again = convertkit.export(str(first.artifact.path), "tflite", int8=True, output=tmp_path / "b", **flags)
    assert again.passed
    x = DATA.transpose(0, 2, 3, 1)
    feed = np.round(x * 20).clip(-128, 127).astype(np.int8) if flags else np.ascontiguousarray(x)
    one, other = (Interpreter(str(each.artifact.path)).get_signature_runner()(x=feed) for each in (first, again))
    np.testing.assert_array_equal(*one.values(), *other.values())


def test_floats_beside_the_name_of_an_integer_operator_need_data(tmp_path: Path) -> None:
    model = small_cnn()
    model.graph.node[0].name = "before/QuantizeLinear"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="--int8 measures activation ranges and needs data"):
        convertkit.export(str(tmp_path / "m.onnx"), "tflite", int8=True, output=tmp_path / "out")


def test_floats_beside_integers_need_data(made, tmp_path: Path) -> None:
    """The model's output is a float that no pair follows, and every operator has to be integer."""
    model = onnx.load(made("QDQ pc s8 s8"))
    last = model.graph.node[-1]
    assert last.op_type == "DequantizeLinear"
    model.graph.node.append(helper.make_node("Relu", [last.output[0]], ["end"]))
    model.graph.output[0].name = "end"
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="came quantized but for end: their ranges need data: --calib PATH"):
        convertkit.export(str(tmp_path / "m.onnx"), "tflite", int8=True, full_integer=True, output=tmp_path / "out")


def dynamic(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "up"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], "down"),
    ]
    weights = {"w": rng.normal(0, 0.3, (16, 32)).astype("f4"), "v": rng.normal(0, 0.3, (32, 8)).astype("f4")}
    onnx.save(model_of(nodes, weights, {"x": ["N", 16]}, {"y": ["N", 8]}), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx")
    return str(tmp_path / "dynamic.onnx")


def test_dynamic_quantization_passes_to_onnxruntime(tmp_path: Path) -> None:
    result = convertkit.export(dynamic(tmp_path), "onnxruntime", output=str(tmp_path / "out"))
    kinds = {node.op_type for node in onnx.load(result.artifact.path).graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger"} <= kinds


def test_dynamic_quantization_is_computed_elsewhere_too(tmp_path: Path) -> None:
    source = dynamic(tmp_path)
    result = convertkit.export(source, "tflite", output=str(tmp_path / "out"), static={"N": 1})
    x = np.random.default_rng(3).normal(0, 1, (1, 16)).astype("f4")
    expected = ort.InferenceSession(source).run(None, {"x": x})[0]
    np.testing.assert_allclose(result.run({"x": x})["y"], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.nightly
@pytest.mark.case
@pytest.mark.parametrize("file", ["tflm/hello_world_int8.tflite", "mlperf-kws/reference_int8.tflite"])
def test_an_integer_tflite_file_through_tf2onnx(cases: Path, tmp_path: Path, file: str) -> None:
    path = tmp_path / "through.onnx"
    flags = ["--tflite", str(cases / file), "--output", str(path), "--opset", "17"]
    subprocess.run([sys.executable, "-m", "tf2onnx.convert", *flags], check=True, capture_output=True)
    result = convertkit.export(str(path), "tflite", output=str(tmp_path / "out"))
    original = Interpreter(model_path=str(cases / file))
    original.allocate_tensors()
    (entry,), (last,) = original.get_input_details(), original.get_output_details()
    rng = np.random.default_rng(0)
    for _ in range(20):
        integers = rng.integers(-128, 128, entry["shape"]).astype(entry["dtype"])
        original.set_tensor(entry["index"], integers)
        original.invoke()
        (name,) = (spec.name for spec in result.artifact.inputs)
        got = next(iter(result.run({name: integers}).values()))
        steps = got.astype(np.int32) - original.get_tensor(last["index"]).astype(np.int32)
        assert np.abs(steps).max() <= 1
