"""The IR: what it computes, that its bytes depend on the model alone, that integers run as integers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import MissingFramework, ToolError, Unsupported
from convertkit.quantization.graph.kinds import node_kinds
from convertkit.recipe import ExportOptions
from convertkit.targets.openvino import stage as openvino_stage
from convertkit.targets.openvino.profile import profile
from convertkit.targets.openvino.rules import apply_rules
from convertkit.targets.openvino.runner import OpenVinoRunner
from convertkit.targets.openvino.stage import WriteIr

RNG = np.random.default_rng(0)
SHAPE = (4, 16, 14, 14)
IMAGES = RNG.standard_normal(SHAPE).astype(np.float32)
IN, MIDDLE, OUT = 0.030013, 0.0417, 0.05017
"""Scales whose ratios are no simple fractions, so that no result lies on a tie."""


class Layers:
    """A quantized graph in the making: values by name, int8 activations with zero points."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}_{name}", **attributes))
        return name

    def constant(self, value: object) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def pair(self, value: str, scale: float, zero_point: int) -> str:
        parameters = self.constant(np.float32(scale)), self.constant(np.int8(zero_point))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", value, *parameters), *parameters)

    def weight(self, *shape: int, axis: int = 0) -> str:
        """Seven bits, one scale for each slice along ``axis``."""
        real = RNG.standard_normal(shape) * 0.1
        others = tuple(each for each in range(len(shape)) if each != axis)
        scales = np.abs(real).max(others, keepdims=True) / 64
        integers = np.rint(real / scales).astype(np.int8)
        stored = self.constant(integers), self.constant(scales.reshape(-1).astype(np.float32))
        return self.add("DequantizeLinear", *stored, axis=axis)

    def model(self, result: str) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *SHAPE[1:]])]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", ports, results, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made)


def convolution(b: Layers, x: str) -> str:
    bias = b.constant(RNG.standard_normal(32).astype(np.float32))
    return b.add("Relu", b.add("Conv", x, b.weight(32, 16, 3, 3), bias, pads=[1, 1, 1, 1]))


def depthwise(b: Layers, x: str) -> str:
    limits = b.constant(np.float32(0)), b.constant(np.float32(6))
    return b.add("Clip", b.add("Conv", x, b.weight(16, 1, 3, 3), group=16), *limits)


def joined(b: Layers, x: str) -> str:
    both = b.add("Concat", x, b.pair(b.add("Neg", x), MIDDLE, -5), axis=1)
    return b.add("Conv", b.pair(both, MIDDLE, -5), b.weight(16, 32, 3, 3), pads=[1, 1, 1, 1])


def residual(b: Layers, x: str) -> str:
    return b.add("Add", b.pair(b.add("Conv", x, b.weight(16, 16, 1, 1)), MIDDLE, 5), x)


def padded_average(b: Layers, x: str) -> str:
    return b.add("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)


def average_behind_pad(b: Layers, x: str) -> str:
    padded = b.add("Pad", x, b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
    return b.add("AveragePool", padded, kernel_shape=[3, 3], strides=[2, 2])


def average(b: Layers, x: str) -> str:
    return b.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])


def transposed(b: Layers, x: str) -> str:
    """Of values from 0 on, whose unsigned integers have the zero point 0."""
    positive = b.pair(b.add("Relu", x), MIDDLE, -128)
    bias = b.constant(RNG.standard_normal(12).astype(np.float32))
    return b.add("ConvTranspose", positive, b.weight(16, 12, 3, 3, axis=1), bias, strides=[2, 2])


def dense(b: Layers, x: str) -> str:
    rows = b.add("Reshape", x, b.constant(np.array([-1, 16 * 14 * 14])))
    return b.add(
        "Gemm", rows, b.weight(16 * 14 * 14, 10, axis=1), b.constant(RNG.standard_normal(10).astype(np.float32))
    )


def product(b: Layers, x: str) -> str:
    return b.add("Add", b.add("MatMul", x, b.weight(14, 24, axis=1)), b.constant(np.full(24, 0.3, np.float32)))


def attended(b: Layers, x: str) -> str:
    """Queries and keys, which have no zero point, of 7 bits: products of 8 overflow without VNNI."""
    queries = b.pair(b.add("Neg", x), 0.0817, 0)
    keys = b.add("Transpose", b.pair(b.add("Tanh", x), 0.0171, 0), perm=[0, 1, 3, 2])
    return b.add("MatMul", queries, keys)


def enlarged(b: Layers, x: str) -> str:
    """Its pair repeats that of ``x``, and is left out."""
    twice = b.constant(np.array([1, 1, 2, 2], np.float32))
    return b.add("Conv", b.pair(b.add("Resize", x, "", twice), IN, 17), b.weight(8, 16, 3, 3))


def gated(b: Layers, x: str) -> str:
    """A value times its own sigmoid is rounded once, behind both."""
    sums = b.add("Conv", x, b.weight(16, 16, 1, 1))
    return b.add("Conv", b.pair(b.add("Mul", sums, b.add("Sigmoid", sums)), MIDDLE, -100), b.weight(8, 16, 3, 3))


EXACT = {
    convolution: "Convolution u8", depthwise: "Convolution u8", joined: "Convolution u8", residual: "Convolution u8",
    padded_average: "", average_behind_pad: "", average: "Pooling u8", dense: "FullyConnected u8",
    transposed: "Deconvolution [ui]8", product: "FullyConnected u8",
    attended: "MatMul i8", enlarged: "Convolution u8", gated: "Convolution u8",
}  # fmt: skip
"""The kernels, as patterns: a transposed convolution's is told as i8 on processors without VNNI."""


def made(layer: Callable[[Layers, str], str], folder: Path) -> tuple[onnx.ModelProto, Artifact, WriteIr]:
    graph = Layers()
    model = graph.model(graph.pair(layer(graph, graph.pair("x", IN, 17)), OUT, 3))
    return model, *written(model, folder)


def written(model: onnx.ModelProto, folder: Path) -> tuple[Artifact, WriteIr]:
    path = folder / "source.onnx"
    onnx.save(model, path)
    step = WriteIr("int8")
    ports = TensorSpec("x", ("N", *SHAPE[1:]), "float32"), TensorSpec("y", (), "float32")
    place = folder / "ir"
    place.mkdir()
    return step.run(Artifact(path, "onnx", ports[:1], ports[1:], ""), place), step


def differing(model: onnx.ModelProto, artifact: Artifact) -> float:
    """Share of the results that are another integer than the graph says."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": IMAGES})
    with OpenVinoRunner(artifact) as runner:
        found = runner.run({"x": IMAGES})["y"]
    return float(np.mean(np.abs(found - wanted) > OUT / 2))


@pytest.mark.parametrize("layer", EXACT, ids=lambda layer: layer.__name__)
def test_integer_kernels_compute_the_integers_of_the_graph(layer, tmp_path):
    model, artifact, step = made(layer, tmp_path)
    assert differing(model, artifact) <= 1e-3
    assert re.search(EXACT[layer], str(step.diagnosis))


@pytest.mark.parametrize(("layer", "pass_"), [(joined, "make_unsigned"), (padded_average, "write_as_convolutions")])
def test_without_our_passes_openvino_computes_other_integers(layer, pass_, tmp_path, monkeypatch):
    """With AMX its products of signed integers are exact: there the first pass changes nothing."""
    monkeypatch.setattr(openvino_stage, pass_, lambda model, **_: 0)
    model, artifact, _ = made(layer, tmp_path)
    exact = pass_ == "make_unsigned" and "amx_int8" in Path("/proc/cpuinfo").read_text()
    assert differing(model, artifact) <= 1e-3 if exact else differing(model, artifact) > 0.1


def test_no_zero_point_is_subtracted_before_a_dense_layer(tmp_path):
    graph = Layers()
    artifact, _ = written(graph.model(product(graph, graph.pair("x", IN, 17))), tmp_path)
    nodes = openvino.Core().read_model(artifact.path).get_ordered_ops()
    assert "Subtract" not in {node.get_type_name() for node in nodes}


def test_an_average_that_ends_outside_is_refused(tmp_path):
    def outside(b: Layers, x: str) -> str:
        return b.add("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1,
                     ceil_mode=1)  # fmt: skip

    with pytest.raises(Unsupported, match=r"AveragePool.*padding"):
        made(outside, tmp_path)


NETWORK = "fixtures/digits/model.pt"
CALIBRATION = "fixtures/digits/calib.npz"
ELEMENTS = {"fp16": "f16", "w8": "i8", "w4": "i4"}


@pytest.mark.parametrize("precision", ["float32", "fp16", "w8", "w4"])
def test_weights_are_stored_as_asked_and_sizes_stay_dynamic(precision, tmp_path):
    flags = {} if precision == "float32" else {precision: True}
    result = convertkit.export(NETWORK, target="openvino", output=tmp_path / "out", **flags)
    assert result.passed
    stored = [node for node in openvino.Core().read_model(result.artifact.path).get_ordered_ops()
              if node.get_type_name() == "Constant"]  # fmt: skip
    largest = max(stored, key=lambda node: np.prod(node.get_output_shape(0)))
    assert largest.get_output_element_type(0).get_type_name() == ELEMENTS.get(precision, "f32")
    for count in (1, 5):
        assert result.run({"input": np.zeros((count, 1, 8, 8), np.float32)})["output"].shape == (count, 10)
    assert result.artifact.size_bytes > (tmp_path / "out" / "model.bin").stat().st_size
    assert "INFERENCE_PRECISION_HINT" in (tmp_path / "out" / "README.md").read_text()


def test_int8_weights_have_eight_bits_and_run_as_integers(tmp_path):
    result = convertkit.export(NETWORK, target="openvino", int8=True, calib=CALIBRATION, output=tmp_path / "out")
    assert result.passed
    assert result.precision == "int8"
    nodes = openvino.Core().read_model(result.artifact.path).get_ordered_ops()
    constants = [node for node in nodes if node.get_type_name() == "Constant"]
    weights = [node.get_data() for node in constants if node.get_output_element_type(0).get_type_name() == "i8"]
    assert max(np.abs(each.astype(np.int16)).max() for each in weights if each.ndim > 1) == 127
    kernels = result.report["steps"][-1]["diagnosis"]["kernels"]
    assert kernels["Convolution u8"] == 6
    assert not [name for name in kernels if name.endswith(" f32") and name.startswith(("Conv", "Fully"))]


def test_sums_are_integers_behind_convolutions_alone():
    """Of tokens, they would make the normalisation behind them less exact and slower."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,4,4] x, float[3,3,1,1] k, float[4,4] w) => (float[1,3,4,4] y) {
        maps = Conv (x, k)  clipped = Relu (maps)  first = Add (clipped, x)
        scores = MatMul (first, w)  second = Add (scores, x)  y = ReduceMean <keepdims = 1> (second) }"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    known = profile(ExportOptions("m", precision="int8"), byte_sums=True)
    rules = {str(node.outputs[0].name): known.rule(node_kinds(node)) for node in graph}
    assert rules["first"] is not None
    assert rules["second"] is rules["y"] is None


@pytest.mark.parametrize(
    ("before", "whole"),
    [("Relu (x)", True), ("Sigmoid (x)", True), ("Clip (x, low)", True), ("Clip (x, x)", False), ("Neg (x)", False)],
)
def test_transposed_convolutions_are_integers_behind_what_is_never_negative(before, whole):
    """With a zero point other than 0 the plugin has no integer kernel for them."""
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,4,4] x, float[3,2,2,2] k) => (float[1,2,5,5] y) <float low = {{0.0}}> {{
        made = {before}  y = ConvTranspose (made, k) }}"""
    graph = ir.from_proto(onnx.parser.parse_model(text)).graph
    weight = graph.inputs[1]
    weight.const_value = ir.tensor(np.ones((3, 2, 2, 2), np.float32), name="k")
    graph.inputs.remove(weight)
    graph.initializers["k"] = weight
    rule = profile(ExportOptions("m", precision="int8"), byte_sums=False).rule(node_kinds(graph[1]))
    assert (rule is not None) is whole


SCRIPT = """
import sys, convertkit, openvino
openvino.op.Parameter  # each further node moves the counter that names hold
[openvino.opset13.relu(openvino.opset13.parameter([1])) for _ in range(int(sys.argv[3]))]
convertkit.export(sys.argv[1], target="openvino", output=sys.argv[2])
"""


def test_two_processes_write_the_same_bytes(tmp_path):
    for count in (0, 7):
        command = [sys.executable, "-c", SCRIPT, NETWORK, str(tmp_path / str(count)), str(count)]
        subprocess.run(command, check=True, capture_output=True)
    for name in ("model.xml", "model.bin", "README.md"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "7" / name).read_bytes()


def test_weights_of_another_model_are_refused(tmp_path):
    _, artifact, _ = made(convolution, tmp_path)
    weights = artifact.path.with_suffix(".bin")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(ToolError, match=r"model\.bin is not the file that was written with model\.xml"), \
            OpenVinoRunner(artifact):  # fmt: skip
        pass
    weights.unlink()
    with pytest.raises(ToolError, match="does not lie beside"), OpenVinoRunner(artifact):
        pass


def test_an_unknown_operator_is_refused_by_name(tmp_path):
    node = helper.make_node("Det", ["x"], ["y"], name="area")
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "det.onnx")
    with pytest.raises(Unsupported, match=r"area \(Det\).*No conversion rule"):
        convertkit.export(str(tmp_path / "det.onnx"), target="openvino", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wide_shifts_are_refused(tmp_path):
    ports = [helper.make_tensor_value_info(name, TensorProto.UINT32, [3]) for name in "abc"]
    node = helper.make_node("BitShift", ["a", "b"], ["c"], name="shift", direction="RIGHT")
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "shift.onnx")
    with pytest.raises(Unsupported, match=r"shift \(BitShift\).*float32"):
        convertkit.export(str(tmp_path / "shift.onnx"), target="openvino", output=tmp_path / "out")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_activations_that_recurrent_cells_lack_are_named(kind: str):
    stated = ["HardSigmoid", *["Tanh"] * {"LSTM": 2, "GRU": 1, "RNN": 0}[kind]]
    node = ir.node(kind, [], {"activations": stated, "hidden_size": 4}, name="cell")
    graph = ir.Graph([], [], nodes=[node], opset_imports={"": 18})
    with pytest.raises(Unsupported, match=rf"cell \({kind}\): .* Sigmoid, Tanh and Relu, not HardSigmoid"):
        apply_rules(ir.Model(graph, ir_version=9))


def test_float_remainders_are_refused(tmp_path):
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "abc"]
    node = helper.make_node("Mod", ["a", "b"], ["c"], name="rest", fmod=1)
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "rest.onnx")
    with pytest.raises(Unsupported, match=r"rest \(Mod\).*fmod"):
        convertkit.export(str(tmp_path / "rest.onnx"), target="openvino", output=tmp_path / "out")


def test_without_openvino_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.openvino.find_spec", lambda name: None)
    with pytest.raises(MissingFramework, match=r"convertkit-ml\[openvino\]"):
        convertkit.export(NETWORK, target="openvino", output=tmp_path / "out")


def test_values_inside_cannot_be_told():
    assert not hasattr(OpenVinoRunner, "probe")


def block(folder: Path) -> Path:
    """A convolution whose result is added to what it read before, as residual networks have it."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w0"], ["v0"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["v0"], ["v1"]),
            helper.make_node("Conv", ["v1", "w1"], ["v2"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["v2"], ["v3"]),
            helper.make_node("Conv", ["v3", "w2"], ["v4"], pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["v4", "v1"], ["v5"]),
            helper.make_node("Relu", ["v5"], ["v6"]),
            helper.make_node("Conv", ["v6", "w3"], ["v7"], pads=[1, 1, 1, 1]),
            helper.make_node("GlobalAveragePool", ["v7"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, 14, 14])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 16, 1, 1])],
        [
            numpy_helper.from_array((RNG.standard_normal((16, 16, 3, 3)) * 0.1).astype(np.float32), f"w{place}")
            for place in range(4)
        ],
    )
    path = folder / "block.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_a_convolution_adds_before_it_rounds(tmp_path):
    """OpenVINO fuses the sum into the convolution and rounds once; a graph that rounds twice is up to an LSB away."""
    source = block(tmp_path)
    result = convertkit.export(source, target="openvino", int8=True, calib={"x": IMAGES}, output=tmp_path / "out")
    assert result.passed
    step = result.report["steps"][-1]
    (compared,) = step["parity"]["versus_previous"]["tensors"]
    assert float(compared["snr_db"]) > 100
    assert step["diagnosis"]["kernels"]["Convolution u8"] >= 3
