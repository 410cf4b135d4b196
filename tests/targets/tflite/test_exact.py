"""int8 end to end: LiteRT's XNNPACK and both of ONNX Runtime's ways give the very same integers."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.artifact import TensorSpec
from convertkit.data.feeds import load_feeds
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.profile import OpCost, QuantProfile
from convertkit.progress import Silent
from convertkit.quantization.integers import Integers
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.onnx_models import uncut
from tests.targets.tflite.compiled import Case, compiled

OPTIONS = ExportOptions(source="x", precision="int8")
SIZE = 24


class Net:
    """Writes a network with seeded weights; every helper returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(5)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], f"node_{name}", **attributes))
        return name

    def constant(self, array: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self.rng.normal(0, scale, shape).astype(np.float32))

    def conv(self, x: str, inner: int, outer: int, kernel: int = 1, group: int = 1) -> str:
        weight = self.normal(outer, inner // group, kernel, kernel, scale=(2 / (inner // group * kernel**2)) ** 0.5)
        return self.node("Conv", x, weight, self.normal(outer, scale=0.2), pads=[kernel // 2] * 4, group=group)

    def model(self, y: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def network() -> onnx.ModelProto:
    """Sums of sums, depthwise, SiLU, squeeze and excite, linear Resize, AveragePool, Concat, constants, Gemm."""
    net = Net()
    x = net.node("Relu", net.conv("x", 3, 16, 3))
    for _ in range(3):
        inner = net.conv(net.node("Clip", net.conv(x, 16, 32), *map(net.constant, np.float32([0, 6]))), 32, 32, 3, 32)
        silu = net.node("Mul", inner, net.node("Sigmoid", inner))
        mean = net.node("ReduceMean", silu, net.constant(np.array([2, 3])), keepdims=1)
        gate = net.node("Sigmoid", net.conv(net.node("Relu", net.conv(mean, 32, 8)), 8, 32))
        x = net.node("Add", x, net.conv(net.node("Mul", silu, gate), 32, 16))
    small = net.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    scales = net.constant(np.float32([1, 1, 2, 2]))
    large = net.node("Resize", net.conv(small, 16, 16), "", scales, mode="linear")
    x = net.node("Sub", net.node("Mul", net.conv(large, 16, 16), net.normal(1, 16, 1, 1)), x)
    x = net.conv(net.node("Concat", net.node("Add", x, net.normal(1, 16, 1, 1)), large, axis=1), 32, 16, 3)
    flat = net.node("Flatten", net.node("GlobalAveragePool", net.node("Relu", x)))
    return net.model(net.node("Gemm", flat, net.normal(40, 16), net.normal(40), transB=1))


def photographs(count: int, seed: int) -> np.ndarray:
    """Smooth images with noise."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (count, 3, 6, 6)).repeat(4, 2).repeat(4, 3)
    return (coarse + rng.normal(0, 0.3, coarse.shape)).astype(np.float32)


def as_if_large() -> QuantProfile:
    """TFLite's rules, at the costs of large tensors: so small a network would be float by its own.

    Without products that quantize on the fly, as the end of a classifier does: those round in each runtime's own way.
    """
    rules = profile(OPTIONS)
    costs = {kind: replace(cost, near=0.0) for kind, cost in rules.costs.items()}
    return replace(rules, costs=costs, kernel_costs=None, machines=(), dynamic=frozenset())


def quantized(*, tie_free: bool) -> Case:
    """The network as the TFLite profile quantizes it, compiled."""
    rules = replace(as_if_large(), tie_free=tie_free)
    return quantized_by(rules, canonicalize(ir.from_proto(network())), photographs(32, 1))


def quantized_by(rules: QuantProfile, model: ir.Model, data: np.ndarray) -> Case:
    shape = (1, *data.shape[1:])
    feeds = load_feeds(data, (TensorSpec(str(model.graph.inputs[0].name), shape, "float32"),))
    return compiled(ir.to_proto(Integers(model, rules, OPTIONS, feeds, {}, Silent()).quantized()))


def departures(case: Case, feeds: list[dict[str, np.ndarray]]) -> tuple[int, int]:
    """Outputs of LiteRT, and of ONNX Runtime's integer kernels, that are not those of the QDQ graph in floats."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(uncut(case.proto), options, providers=["CPUExecutionProvider"])
    found = [0, 0]
    for feed, (expected, lite) in zip(feeds, case.both(feeds), strict=True):
        integer = session.run(None, feed)
        for again, (name, want) in zip(integer, expected.items(), strict=True):
            found[0] += int((lite[name] != want).sum())
            found[1] += int((again != want).sum())
    return found[0], found[1]


@pytest.fixture(scope="module")
def samples() -> list[dict[str, np.ndarray]]:
    return [{"x": image[None]} for image in photographs(60, 2)]


def test_every_runtime_computes_the_same_integers(samples: list[dict[str, np.ndarray]]) -> None:
    assert departures(quantized(tie_free=True), samples) == (0, 0)


def test_float_kernels_compute_the_same_integers(samples: list[dict[str, np.ndarray]]) -> None:
    """Between integers, and at the input, where the cost table holds float for the faster one."""
    rules = as_if_large()
    rules = replace(
        rules, costs={**rules.costs, "Conv": OpCost(1e-3, 9.0), "Conv.depthwise": OpCost(1e-3, 9.0)}, least_gain=0.0
    )
    case = quantized_by(rules, canonicalize(ir.from_proto(network())), photographs(32, 1))
    kernels = [op for op in case.compiled.program.subgraphs[0].operations if "CONV_2D" in op.code]
    real = [op.code for op in kernels if op.outputs[0].dtype == "float32"]
    assert real.count("DEPTHWISE_CONV_2D") == 3
    assert kernels[0].code in real
    assert departures(case, samples) == (0, 0)


def test_the_samples_tell_scales_apart(samples: list[dict[str, np.ndarray]]) -> None:
    """Power: with the scales as calibrated, the same samples do find differences."""
    assert sum(departures(quantized(tie_free=False), samples)) > 0


@pytest.mark.case
@pytest.mark.parametrize("name", ["cnn_mnist_pytorch.onnx", "mnist.onnx"])
def test_trained_classifiers_decide_alike(cases: Path, name: str) -> None:
    folder = cases / "mnist"
    pixels = np.frombuffer(gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8)
    images = pixels.reshape(-1, 1, 28, 28).astype(np.float32)
    model = canonicalize(load_model(folder / name))
    feeds = [{str(model.graph.inputs[0].name): image[None]} for image in images[1000:1500]]
    assert departures(quantized_by(as_if_large(), model, images[:200]), feeds) == (0, 0)
    # As the cost table wants it, a last dense layer is float: its scores are not rounded, the decisions stay the same.
    for expected, lite in quantized_by(profile(OPTIONS), model, images[:200]).both(feeds):
        (scores,), (others,) = expected.values(), lite.values()
        assert scores.argmax() == others.argmax()
