"""TensorRT's explicit quantization: what is delivered, its own parser takes; the rest is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorrt_rtx
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import Unsupported
from convertkit.targets.tensorrt.stage import DeliverExplicit


def network(seed: int = 0) -> onnx.ModelProto:
    """Conv with bias, Relu, a residual Add, an Add of a constant, pooling, Gemm, MatMul: all that has integers."""
    rng = np.random.default_rng(seed)
    c = {
        "w1": rng.normal(0, 0.3, (16, 3, 3, 3)), "b1": rng.normal(0, 0.2, 16), "w2": rng.normal(0, 0.3, (16, 16, 1, 1)),
        "shift": np.array(0.3), "w3": rng.normal(0, 0.3, (64, 16)), "b3": rng.normal(0, 0.2, 64),
        "w4": rng.normal(0, 0.1, (64, 32)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "pointwise"),
        helper.make_node("Add", ["c2", "r1"], ["s"], "residual"),
        helper.make_node("Add", ["s", "shift"], ["t"], "shift"),
        helper.make_node("MaxPool", ["t"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["h"], "hidden", transB=1),
        helper.make_node("MatMul", ["h", "w4"], ["y"], "head"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in c.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def save(model: onnx.ModelProto, path: Path) -> str:
    onnx.save(model, path)
    return str(path)


DATA = np.random.default_rng(1).normal(0, 1, (24, 3, 12, 12)).astype(np.float32)


class Log(tensorrt_rtx.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def log(self, severity, message) -> None:
        if severity <= tensorrt_rtx.ILogger.Severity.ERROR:
            self.errors.append(message)


def engine_bytes(path: Path) -> int:
    """Parse and build for one architecture, which needs no GPU."""
    log = LOG
    log.errors.clear()
    builder = tensorrt_rtx.Builder(log)
    definition = builder.create_network(0)
    parser = tensorrt_rtx.OnnxParser(definition, log)
    assert parser.parse_from_file(str(path)), [parser.get_error(i).desc() for i in range(parser.num_errors)]
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(tensorrt_rtx.ComputeCapability.SM89, 0)
    sizes = builder.create_optimization_profile()
    entry = definition.get_input(0)
    sizes.set_shape(entry.name, *[[1 if dim == -1 else dim for dim in entry.shape]] * 3)
    config.add_optimization_profile(sizes)
    engine = builder.build_serialized_network(definition, config)
    assert engine is not None, log.errors
    return int(engine.nbytes)


# Every builder shares the first logger that was registered.
LOG = Log()


@pytest.mark.parametrize("precision", ["int8", "w8", "w4", "fp8", "fp16", "bf16"])
def test_the_parser_takes_it_and_an_engine_is_built(tmp_path: Path, precision: str) -> None:
    source = save(network(), tmp_path / "float.onnx")
    result = convertkit.export(source, "tensorrt", output=str(tmp_path / "out"), calib=DATA, **{precision: True})
    assert result.report["latency"] is None
    kinds = [node.op_type for node in onnx.load(result.artifact.path).graph.node]
    assert ("QuantizeLinear" in kinds) == (precision in ("int8", "fp8"))
    assert engine_bytes(result.artifact.path) > 0


def test_what_tensorrt_lacks_in_bfloat16_stays_float32(tmp_path: Path) -> None:
    """TensorRT-RTX refuses each of these operators in bfloat16, as its parser or its builder says."""
    rng = np.random.default_rng(2)
    weights = {"w": rng.normal(0, 0.3, (8, 3, 3, 3)), "u": rng.normal(0, 0.3, (8, 6, 2, 2))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("HardSwish", ["a"], ["b"], "swish"),
        helper.make_node("ConvTranspose", ["b", "u"], ["c"], "up", strides=[2, 2]),
        helper.make_node("LpNormalization", ["c"], ["d"], "norm", axis=1),
        helper.make_node("Mish", ["d"], ["e"], "mish"),
        helper.make_node("Sigmoid", ["e"], ["y"], "gate"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6, 20, 20])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    made = convertkit.export(save(proto, tmp_path / "float.onnx"), "tensorrt", output=str(tmp_path / "out"), bf16=True)
    told = onnx.load(made.artifact.path).graph
    short = {each.name for each in told.value_info if each.type.tensor_type.elem_type == TensorProto.BFLOAT16}
    makers = {node.output[0]: node.op_type for node in told.node if node.op_type != "Cast"}
    assert {makers[name] for name in short & set(makers)} == {"Conv", "Sigmoid"}
    assert engine_bytes(made.artifact.path) > 0


def test_integers_are_symmetric_and_biases_float(tmp_path: Path) -> None:
    source = save(network(), tmp_path / "float.onnx")
    result = convertkit.export(source, "tensorrt", output=str(tmp_path / "out"), calib=DATA, int8=True)
    graph = onnx.load(result.artifact.path).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    zeros = [arrays[node.input[2]] for node in graph.node if node.op_type.endswith("tizeLinear")]
    assert zeros
    assert all(zero.dtype == np.int8 and not zero.any() for zero in zeros)
    assert not any(array.dtype == np.int32 for array in arrays.values())
    shift = next(node for node in graph.node if node.name == "shift")
    assert arrays[shift.input[1]].dtype == np.float32, "a scalar between DequantizeLinear and Add stops the builder"


def quantized_by_onnxruntime(tmp_path: Path, *, symmetric: bool) -> str:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter([{"x": x[None]} for x in DATA])

        def get_next(self) -> object:
            return next(self.rest, None)

    path = str(tmp_path / "quantized.onnx")
    quantize_static(
        save(network(), tmp_path / "float.onnx"), path, Reader(), per_channel=True,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        op_types_to_quantize=["Conv", "Gemm", "MatMul"],
        extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
    )  # fmt: skip
    return path


def test_integer_biases_of_a_quantized_source_become_float(tmp_path: Path) -> None:
    source = quantized_by_onnxruntime(tmp_path, symmetric=True)
    assert any(each.data_type == TensorProto.INT32 for each in onnx.load(source).graph.initializer)
    result = convertkit.export(source, "tensorrt", output=str(tmp_path / "out"))
    assert not any(each.data_type == TensorProto.INT32 for each in onnx.load(result.artifact.path).graph.initializer)
    assert engine_bytes(result.artifact.path) > 0


def test_zero_points_of_a_quantized_source_are_refused(tmp_path: Path) -> None:
    source = quantized_by_onnxruntime(tmp_path, symmetric=False)
    with pytest.raises(Unsupported, match="zero point other than 0"):
        convertkit.export(source, "tensorrt", output=str(tmp_path / "out"))


TEXT = {
    "axis 0": ("", "b = DequantizeLinear <axis: int = 0> (steps, scales) y = Add (x, b)"),
    "axis -1": ("", "b = DequantizeLinear <axis: int = -1> (steps, scales) y = Add (x, b)"),
    "blocks": ("", "b = DequantizeLinear <axis = 0, block_size = 2> (steps, blocks) y = Add (x, b)"),
    "one scale": ("", "b = DequantizeLinear (steps, first) y = Add (x, b)"),
    "a bias that is an output": ("", "y = DequantizeLinear <axis: int = 0> (steps, scales)"),
    "in a body": (
        ", bool c",
        """y = If (c) <
            then_branch = one () => (float[3,3] r) { b = DequantizeLinear <axis = 0> (steps, scales) r = Add (x, b) },
            else_branch = two () => (float[3,3] r) { r = Identity (x) }>""",
    ),
}


def integer_bias(inputs: str, body: str, dtype: type = np.float32) -> onnx.ModelProto:
    kind = {np.float32: "float", np.float16: "float16"}[dtype]
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[3,3] x{inputs}) => (float[3,3] y) {{ {body} }}'
    model = onnx.parser.parse_model(text.replace("float[", f"{kind}["))
    constants = {
        "steps": np.arange(-4, 5, dtype=np.int32).reshape(3, 3),
        "scales": np.array([0.5, 0.25, 3.0], dtype),
        "first": np.array(0.5, dtype),
        "blocks": np.array([[0.5, 0.25, 3.0], [2.0, 5.0, 7.0]], dtype),
    }
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def delivered(model: onnx.ModelProto, tmp_path: Path) -> Path:
    inputs = (TensorSpec("x", (3, 3), "float32"),)
    source = Artifact(Path(save(model, tmp_path / "int32.onnx")), "onnx", inputs, (), "")
    (tmp_path / "out").mkdir()
    return DeliverExplicit().run(source, tmp_path / "out").path


@pytest.mark.parametrize("name", TEXT)
def test_integer_biases_keep_the_numbers_that_they_stand_for(tmp_path: Path, name: str) -> None:
    model = integer_bias(*TEXT[name])
    made = delivered(model, tmp_path)
    feed = {"x": np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3), "c": np.array(True)}
    feed = {each.name: feed[each.name] for each in model.graph.input}
    (want,), (have,) = (
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
        for data in (model.SerializeToString(), str(made))
    )
    np.testing.assert_array_equal(have, want)
    assert "DequantizeLinear" not in onnx.printer.to_text(onnx.load(made))


def test_halves_stay_halves(tmp_path: Path) -> None:
    graph = onnx.load(delivered(integer_bias(*TEXT["axis 0"], np.float16), tmp_path)).graph
    (bias,) = (each for each in graph.initializer if each.name in graph.node[0].input)
    assert bias.data_type == TensorProto.FLOAT16


def test_integers_inside_a_body_are_checked_too(tmp_path: Path) -> None:
    body = """y = If (c) <
        then_branch = one () => (float[3,3] r) { q = QuantizeLinear (x, first) r = DequantizeLinear (q, first) },
        else_branch = two () => (float[3,3] r) { r = Identity (x) }>"""
    with pytest.raises(Unsupported, match="uint8 integers: TensorRT takes int8"):
        delivered(integer_bias(", bool c", body), tmp_path)


@pytest.mark.parametrize("precision", ["w8", "w4"])
def test_an_embedding_stays_float_beside_stored_weights(tmp_path: Path, precision: str) -> None:
    """TensorRT reads stored integers through DequantizeLinear alone, which no look-up is."""
    rng = np.random.default_rng(3)
    constants = {"words": rng.normal(0, 1, (80, 64)), "w": rng.normal(0, 0.2, (64, 64))}
    nodes = [helper.make_node("Gather", ["words", "ids"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6, 64])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    source, ids = save(model, tmp_path / "float.onnx"), rng.integers(0, 80, (24, 6))
    result = convertkit.export(source, "tensorrt", output=str(tmp_path / "out"), calib=ids, **{precision: True})
    stored = {each.name: each.data_type for each in onnx.load(result.artifact.path).graph.initializer}
    assert stored["words"] == TensorProto.FLOAT
    assert {TensorProto.INT8, TensorProto.INT4} & set(stored.values())
    assert engine_bytes(result.artifact.path) > 0


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        ("fp16", TensorProto.FLOAT16),
        ("bf16", TensorProto.BFLOAT16),
        ("w8", TensorProto.INT8),
        ("int8", TensorProto.FLOAT),
    ],
)
def test_a_layer_of_one_step_has_weights_of_fewer_bits_but_stays_float_in_int8(
    tmp_path: Path, flag: str, kind: int
) -> None:
    rng = np.random.default_rng(2)
    shapes = {"w": (1, 192, 40), "r": (1, 192, 64), "b": (1, 384)}
    nodes = [helper.make_node("GRU", ["x", "w", "r", "b", "", "h"], ["", "y"], "cell", hidden_size=64)]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": (1, 1, 40), "h": (1, 1, 64), "y": (1, 1, 64)}.items()
    ]
    stored = [numpy_helper.from_array(rng.normal(0, 0.3, s).astype(np.float32), n) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "g", infos[:2], infos[2:], stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    calib = {name: rng.normal(0, 1, (16, 1, size)).astype(np.float32) for name, size in (("x", 40), ("h", 64))}
    path = save(proto, tmp_path / "source.onnx")
    made = convertkit.export(path, "tensorrt", output=tmp_path / "out", calib=calib, **{flag: True})
    model = onnx.load(made.artifact.path)
    assert "GRU" not in {node.op_type for node in model.graph.node}
    matrices = [each for each in model.graph.initializer if len(each.dims) == 2 and each.dims[1] >= 40]
    assert {each.data_type for each in matrices} == {kind}
    assert engine_bytes(made.artifact.path)
