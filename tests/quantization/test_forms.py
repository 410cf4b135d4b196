"""Weight-only integers and float16; QDQ that arrives passes through."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.quantization.weights.tables import quantize_tables
from tests.quantization.models import artifact_of, images, model_of, small_cnn

DATA = images(24)


@pytest.mark.parametrize(("precision", "least_db"), [("w8", 35), ("w4", 12), ("fp16", 55)])
@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_weight_forms_need_no_data(quantized, precision: str, target: str, least_db: float) -> None:
    result = quantized(small_cnn(), None, precision, target)
    onnx.checker.check_model(str(result.after.path), full_check=True)
    assert "QuantizeLinear" not in {node.op_type for node in result.graph.node}
    assert result.snr_db(DATA) > least_db


@pytest.mark.parametrize(("precision", "gain_db"), [("w8", 3), ("w4", 3)])
def test_data_makes_weights_better(quantized, precision: str, gain_db: float) -> None:
    """Rounding errors make up for each other where inputs move together."""
    rng = np.random.default_rng(0)
    data = (rng.normal(0, 1, (200, 8)) @ rng.normal(0, 1, (8, 64)) + rng.normal(0, 0.1, (200, 64))).astype("f4")
    weights = {"w": rng.normal(0, 1, (64, 48)).astype("f4")}
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "fc")], weights, {"x": ["N", 64]}, {"y": ["N", 48]})
    with_data, without = (quantized(model, given, precision).snr_db(data[100:]) for given in (data[:100], None))
    assert with_data > without + gain_db


def test_what_int4_leaves_of_its_bytes_makes_the_smallest_weights_int8(quantized) -> None:
    """A depthwise weight of 576 entries beside two of 65536, whose int4 takes 1/7.8 of their float32."""
    rng = np.random.default_rng(0)
    shapes = {"deep": (64, 1, 3, 3), "up": (1024, 64, 1, 1), "down": (64, 1024, 1, 1)}
    weights = {name: rng.normal(0, 0.1, shape).astype("f4") for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "deep"], ["a"], "deep", group=64, pads=[1] * 4),
        helper.make_node("Conv", ["a", "up"], ["b"], "up"),
        helper.make_node("Conv", ["b", "down"], ["y"], "down"),
    ]
    result = quantized(model_of(nodes, weights, {"x": [1, 64, 8, 8]}, {"y": [1, 64, 8, 8]}), None, "w4")
    stored = {each.name: each for each in result.graph.initializer}
    kinds = {node.name: stored[node.input[0]].data_type for node in result.graph.node if "Dequantize" in node.op_type}
    assert sorted(kinds.values()) == sorted([onnx.TensorProto.INT8, *[onnx.TensorProto.INT4] * 2])
    halves = {onnx.TensorProto.INT4: 0.5, onnx.TensorProto.INT8: 1.0, onnx.TensorProto.FLOAT: 4.0}
    spent = sum(np.prod(each.dims, initial=1) * halves[each.data_type] for each in stored.values())
    assert spent <= sum(array.nbytes for array in weights.values()) / 6.5


def test_matrices_are_int4_in_blocks_for_onnxruntime(quantized) -> None:
    rng = np.random.default_rng(0)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"], "fc")],
                     {"w": rng.normal(0, 1, (64, 48)).astype("f4")}, {"x": ["N", 64]}, {"y": ["N", 48]})  # fmt: skip
    result = quantized(model, None, "w4", "onnxruntime")
    (dequantize,) = [node for node in result.graph.node if node.op_type == "DequantizeLinear"]
    assert helper.get_node_attr_value(dequantize, "block_size") == 32
    assert {each.data_type for each in result.graph.initializer} == {onnx.TensorProto.INT4, onnx.TensorProto.FLOAT}
    assert result.snr_db(rng.normal(0, 1, (30, 64)).astype("f4")) > 17


@pytest.mark.parametrize("precision", ["w8", "w4"])
def test_onnxruntime_runs_integer_matrices(tmp_path, precision: str) -> None:
    rng = np.random.default_rng(0)
    w = [rng.normal(0, 0.1, (256, 256)).astype("f4") for _ in range(2)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], "up"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w1"], ["y"], "down"),
    ]
    path = tmp_path / "float.onnx"
    onnx.save(model_of(nodes, {"w0": w[0], "w1": w[1]}, {"x": [1, "T", 256]}, {"y": [1, "T", 256]}), path)
    result = convertkit.export(str(path), "onnxruntime", output=str(tmp_path / "out"), **{precision: True})
    last = result.report["steps"][-1]
    assert "on the fly" in last["parity"]["versus_previous"]["tolerance"]["reason"]
    x = rng.normal(0, 1, (1, 8, 256)).astype("f4")
    expected = np.maximum(x @ w[0], 0) @ w[1]
    noise = np.square(result.run({"x": x})["y"] - expected).sum() / np.square(expected).sum()
    # Two layers, each with activations at 8 bits and one scale per tensor (39 dB) beside weights at 8 or 4 bits.
    assert -10 * np.log10(noise) > {"w8": 36, "w4": 16}[precision]


def embedding() -> onnx.ModelProto:
    """Rows of very different size, looked up by ``ids`` (1, 5) in a table, and multiplied."""
    rng = np.random.default_rng(0)
    table = rng.normal(0, 1, (200, 16)) * np.geomspace(0.01, 10, 200)[:, None]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], "look_up"),
             helper.make_node("MatMul", ["e", "w"], ["y"], "fc")]  # fmt: skip
    constants = {"table": table.astype("f4"), "w": rng.normal(0, 1, (16, 16)).astype("f4")}
    proto = model_of(nodes, constants, {"ids": [1, 5]}, {"y": [1, 5, 16]})
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return proto


@pytest.mark.parametrize("precision", ["w8", "int8"])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_tables_are_looked_up_as_integers(tmp_path, target: str, precision: str) -> None:
    path = tmp_path / "float.onnx"
    onnx.save(embedding(), path)
    samples = {"ids": np.random.default_rng(1).integers(0, 200, (40, 5))}
    chosen = {"w8": {"w8": True}, "int8": {"int8": True, "calib": samples}}[precision]
    result = convertkit.export(str(path), target, output=str(tmp_path / target), **chosen)
    ids = np.array([[0, 3, 77, 150, 199]])
    expected = ort.InferenceSession(path).run(None, {"ids": ids})[0]
    got = result.run({"ids": ids})["y"]
    # Every row has its own scale: the small ones are as exact as the large ones, until activations share one.
    noise = np.maximum(np.square(got - expected).sum(-1) / np.square(expected).sum(-1), 1e-15)
    assert (-10 * np.log10(noise) > 33)[:, -1 if precision == "int8" else 0 :].all()
    # In so small a model a look-up more would be most of the time, and --int8 is not slower than float there.
    stays = (target, precision) == ("tflite", "int8")
    assert (result.artifact.size_bytes < 9_000 < 200 * 16 * 4) is not stays


@pytest.mark.parametrize(
    ("rows", "each_ns", "allowed_ns", "done"),
    [
        pytest.param(200, 100.0, 99.0, False, id="dear"),
        pytest.param(200, 100.0, 101.0, True, id="unnoticed"),
        pytest.param(20_000, 100.0, 99.0, True, id="dear and large"),
        pytest.param(200, 0.0, 0.0, True, id="a runtime that nobody measured"),
    ],
)
def test_small_tables_stay_float_where_look_ups_are_dear(
    rows: int, each_ns: float, allowed_ns: float, done: bool
) -> None:
    proto = embedding()
    table = np.random.default_rng(0).normal(0, 1, (rows, 16)).astype("f4")
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(table, "table"))
    graph = ir.from_proto(proto).graph
    assert bool(quantize_tables(graph, each_ns, allowed_ns)) is done


def test_float16_leaves_what_would_overflow(quantized) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "fc"),
        helper.make_node("Mul", ["m", "big"], ["b"], "blow_up"),
        helper.make_node("Mul", ["b", "small"], ["y"], "back"),
    ]
    constants = {
        "w": rng.normal(0, 1, (16, 16)).astype("f4"),
        "big": np.float32(30000.0),
        "small": np.float32(1 / 30000),
    }
    model = model_of(nodes, constants, {"x": ["N", 16]}, {"y": ["N", 16]})
    data = rng.normal(0, 2, (20, 16)).astype("f4")
    result = quantized(model, data, "fp16", "tensorrt")
    assert set(result.stage.diagnosis["float32"]) == {"blow_up", "back"}
    assert result.snr_db(data) > 50


def test_onnxruntime_stores_halves_and_computes_in_float(tmp_path) -> None:
    """Its processor kernels for float16 are float ones between casts, at each call."""
    path = tmp_path / "float.onnx"
    onnx.save(small_cnn(), path)
    result = convertkit.export(str(path), "onnxruntime", output=str(tmp_path / "out"), fp16=True, calib=DATA)
    graph = onnx.load(result.artifact.path).graph
    stored = {each.name for each in graph.initializer if each.data_type == onnx.TensorProto.FLOAT16}
    casts = [node for node in graph.node if node.op_type == "Cast"]
    assert stored
    assert {node.input[0] for node in casts} == stored
    assert not result.report["steps"][-1]["parity"]["versus_previous"]["tolerance"]["lossy"]


def test_qdq_passes_through_untouched(quantized) -> None:
    once = quantized(small_cnn(), DATA)
    before = onnx.load(once.after.path)
    again = quantized(once.after, DATA)
    assert onnx.load(again.after.path).graph == before.graph


def test_batch_norm_and_odd_gemms_are_folded(tmp_path) -> None:
    from convertkit.quantization.prepare.prepare import prepare

    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(0, 1, (4, 3, 3, 3)), "s": rng.uniform(0.5, 2, 4), "b": rng.normal(0, 1, 4),
        "m": rng.normal(0, 1, 4), "v": rng.uniform(0.5, 2, 4), "g": rng.normal(0, 1, (4, 6)),
        "h": rng.normal(0, 1, (1, 6)), "shift": rng.normal(0, 1, (1, 4, 1, 1)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "norm"),
        helper.make_node("Add", ["n", "shift"], ["a"], "shift"),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Relu", ["p"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["q"], "mean"),
        helper.make_node("Flatten", ["q"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "g", "h"], ["y"], "gemm", alpha=0.5, beta=2.0),
    ]
    proto = model_of(nodes, {k: v.astype("f4") for k, v in constants.items()}, {"x": [1, 3, 12, 12]}, {"y": [1, 6]})
    before = artifact_of(proto, tmp_path)
    model = load_model(before.path)
    prepare(model)
    after = save_model(model, tmp_path / "prepared.onnx", "test")
    kinds = [node.op_type for node in ir.load(after.path).graph]
    assert kinds[:3] == ["Conv", "Relu", "MaxPool"]
    assert "BatchNormalization" not in kinds
    with OnnxRunner(before) as one, OnnxRunner(after) as other:
        for x in DATA[:5]:
            np.testing.assert_allclose(one.run({"x": x[None]})["y"], other.run({"x": x[None]})["y"], atol=1e-4)


@pytest.mark.parametrize(("precision", "kept"), [("w8", {(16, 3, 3, 3)}), ("w4", set())])
def test_small_weights_stay_float_at_8_bits(quantized, precision: str, kept: set[tuple[int, ...]]) -> None:
    """They are a few bytes, and most of the noise."""
    rng = np.random.default_rng(0)
    constants = {
        "small": rng.normal(0, 0.2, (16, 3, 3, 3)).astype("f4"),
        "large": rng.normal(0, 0.2, (16, 16, 3, 3)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "small"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Conv", ["a", "large"], ["y"], "second", pads=[1] * 4),
    ]
    result = quantized(model_of(nodes, constants, {"x": [1, 3, 12, 12]}, {"y": [1, 16, 12, 12]}), None, precision)
    assert {a.shape for a in result.constants().values() if a.dtype.kind == "f" and a.ndim == 4} == kept


@pytest.mark.parametrize(("beside", "stay"), [(4, False), (4000, True)])
def test_small_weights_are_integers_where_they_are_most_of_the_model(quantized, beside: int, stay: bool) -> None:
    """Else --w8 of a network of small layers would change nothing: six weights of 256 entries beside one constant."""
    rng = np.random.default_rng(0)
    constants = {f"w{i}": rng.normal(0, 0.2, (16, 16, 1, 1)).astype("f4") for i in range(6)}
    constants["shift"] = rng.normal(0, 1, (1, 1, 1, beside)).astype("f4")
    names = ["x", *(f"x{i}" for i in range(1, 7))]
    nodes = [helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], f"conv{i}") for i in range(6)]
    nodes.append(helper.make_node("Add", [names[-1], "shift"], ["y"], "add"))
    size: list[int | str] = [1, 16, 1, beside]
    result = quantized(model_of(nodes, constants, {"x": size}, {"y": size}), None, "w8")
    stored = [array for array in result.constants().values() if array.dtype == np.int8 and array.ndim == 4]
    assert len(stored) == (0 if stay else 6)
