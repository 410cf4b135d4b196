"""Programs of ExecuTorch: the graph as PyTorch computes it, the file as its runtime executes it, what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import FeedError, ToolError, Unsupported
from convertkit.onnx.load import load_own
from convertkit.report.schema import schema
from convertkit.result import Result
from convertkit.targets.executorch.forms import LINEAR, prepare
from convertkit.targets.executorch.runner import ExecuTorchRunner
from convertkit.targets.executorch.stage import WriteProgram
from tests import installed
from tests.command_line import apart

installed.needs("executorch")
from convertkit.targets.executorch.module import Program  # noqa: E402 - it imports ExecuTorch

RNG = np.random.default_rng(7)
NETWORK, CALIBRATION, TEST = (f"fixtures/digits/{name}" for name in ("model.pt", "calib.npz", "test.npz"))
IMAGE, ROWS = (2, 3, 9, 8), (4, 6)


class Layers:
    """A graph in the making: nodes in order, constants by name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"v{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"{kind}_{len(self.nodes)}", **attributes))
        return names[0]

    def constant(self, value: object) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"k{len(self.constants)}"))
        return self.constants[-1].name

    def real(self, *shape: int) -> str:
        return self.constant(RNG.standard_normal(shape).astype(np.float32))

    def pair(self, value: str, scale: float, zero: int, kind: type = np.int8) -> str:
        parameters = self.constant(np.float32(scale)), self.constant(kind(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", value, *parameters), *parameters)

    def stored(self, *shape: int, axis: int) -> str:
        """An int8 weight with a scale for each slice along ``axis``."""
        integers = self.constant(RNG.integers(-127, 128, shape).astype(np.int8))
        scales = self.constant(RNG.uniform(0.004, 0.02, shape[axis]).astype(np.float32))
        return self.add("DequantizeLinear", integers, scales, axis=axis)

    def model(self, result: str, shape: tuple[int, ...]) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", ports, results, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made, strict_mode=True)


Layer = Callable[[Layers, str], str]


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def quantized(b: Layers, x: str) -> str:
    """Two readers of one pair, a stored int32 bias, and a dense layer whose weight lies the other way around."""
    entry = b.pair(x, 0.031, 17)
    bias = b.constant(RNG.integers(-900, 900, 4).astype(np.int32)), b.constant(np.full(4, 3e-4, np.float32))
    made = b.add(
        "Conv", entry, b.stored(4, 3, 3, 3, axis=0), b.add("DequantizeLinear", *bias, axis=0), pads=[0, 1, 1, 1]
    )
    left = b.pair(b.add("Relu", made), 0.043, -128)
    right = b.pair(b.add("Conv", entry, b.stored(4, 3, 2, 3, axis=0), b.real(4), pads=[0, 1, 0, 1]), 0.037, 3)
    total = b.pair(b.add("Add", left, right), 0.059, -21)
    rows = b.pair(b.add("Reshape", total, b.constant(integers(2, -1))), 0.059, -21)
    return b.pair(b.add("Add", b.add("MatMul", rows, b.stored(4 * 8 * 8, 5, axis=1)), b.real(5)), 0.29, 5)


def cut(b: Layers, x: str) -> str:
    """Without the last row and column where their number is odd."""
    return b.add("Slice", x, *(b.constant(integers(*v)) for v in ((0, 0), (8, 8), (2, 3))))


def deep(b: Layers, x: str) -> str:
    """Of 8 channels."""
    return b.add("Conv", x, b.real(8, 3, 1, 1))


def resized(b: Layers, x: str, size: list[float], mode: str, coordinates: str) -> str:
    """To whole sizes, or by factors."""
    sizes = isinstance(size[0], int)
    known = ("", b.constant(integers(*size))) if sizes else (b.constant(np.array(size, np.float32)),)
    return b.add("Resize", x, "", *known, mode=mode, coordinate_transformation_mode=coordinates)


ROWS_OF_IMAGES: dict[str, Layer] = {
    "Conv": lambda b, x: b.add("Conv", x, b.real(4, 3, 3, 3), b.real(4), pads=[1, 1, 1, 1], strides=[2, 1]),
    "Conv, uneven": lambda b, x: b.add("Conv", x, b.real(6, 1, 3, 2), group=3, pads=[0, 1, 1, 0], dilations=[2, 1]),
    "ConvTranspose": lambda b, x: b.add(
        "ConvTranspose", x, b.real(3, 2, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 0]
    ),
    "ConvTranspose, uneven": lambda b, x: b.add("ConvTranspose", x, b.real(3, 2, 3, 3), pads=[0, 1, 1, 0]),
    "MaxPool": lambda b, x: b.add("MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1),
    "MaxPool, uneven": lambda b, x: b.add("MaxPool", x, kernel_shape=[3, 3], pads=[0, 1, 2, 0]),
    "AveragePool": lambda b, x: b.add("AveragePool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 1]),
    "AveragePool, padding counts": lambda b, x: b.add(
        "AveragePool", x, kernel_shape=[3, 2], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    **{f"AveragePool, rounded up, {counts}": lambda b, x, counts=counts: b.add(
        "AveragePool", x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1, count_include_pad=counts
    ) for counts in (0, 1)},
    "AveragePool, uneven": lambda b, x: b.add("AveragePool", x, kernel_shape=[2, 2], pads=[0, 0, 1, 1]),
    "GlobalAveragePool": lambda b, x: b.add("GlobalAveragePool", x),
    "Slice": lambda b, x: b.add("Slice", x, *(b.constant(integers(*v)) for v in ((1, -5), (9, -1), (2, -1), (1, 1)))),
    "Slice backwards": lambda b, x: b.add(
        "Slice", x, *(b.constant(integers(*v)) for v in ((-1, 8), (-100, 0), (2, 3), (-2, -3)))
    ),
    "Split": lambda b, x: b.add("Split", x, b.constant(integers(2, 5, 2)), axis=2, outputs=3),
    "Split, by number": lambda b, x: b.add("Split", x, axis=-1, num_outputs=3, outputs=3),
    "Squeeze": lambda b, x: b.add("Squeeze", b.add("GlobalMaxPool", x), b.constant(integers(-1, 2))),
    "Unsqueeze": lambda b, x: b.add("Unsqueeze", x, b.constant(integers(-1, 1))),
    "Clip": lambda b, x: b.add("Clip", x, b.constant(np.float32(-0.3)), b.constant(np.float32(0.7))),
    "Clip, above": lambda b, x: b.add("Clip", x, "", b.constant(np.float32(0.2))),
    "ReduceMean": lambda b, x: b.add("ReduceMean", x, b.constant(integers(-1, 1)), keepdims=0),
    "Pad": lambda b, x: b.add(
        "Pad", x, b.constant(integers(1, 2)), b.constant(np.float32(0.5)), b.constant(integers(-1))
    ),
    "LRN": lambda b, x: b.add("LRN", x, size=3, alpha=0.3, beta=0.6, bias=1.5),
    "LpPool": lambda b, x: b.add("LpPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1], p=3),
    "LpNormalization": lambda b, x: b.add("LpNormalization", b.add("Relu", x), axis=2, p=2),
    "LpNormalization, of absolutes": lambda b, x: b.add("LpNormalization", x, axis=1, p=1),
    "SpaceToDepth": lambda b, x: b.add("SpaceToDepth", cut(b, x), blocksize=2),
    "DepthToSpace": lambda b, x: b.add("DepthToSpace", deep(b, x), blocksize=2),
    "DepthToSpace, by rows": lambda b, x: b.add("DepthToSpace", deep(b, x), blocksize=2, mode="CRD"),
    **{f"Resize, {name}": lambda b, x, how=how: resized(b, x, *how) for name, how in {
        "bilinear": ([2, 3, 13, 5], "linear", "half_pixel"),
        "bilinear, by factors": ([1.0, 1.0, 2.0, 3.0], "linear", "pytorch_half_pixel"),
        "bilinear, by factors of no whole size": ([1.0, 1.0, 1.7, 0.6], "linear", "half_pixel"),
        "bilinear, corners": ([2, 3, 20, 1], "linear", "align_corners"),
        "bilinear, asymmetric": ([2, 3, 18, 16], "linear", "asymmetric"),
        "cubic": ([2, 3, 13, 5], "cubic", "half_pixel"),
        "nearest": ([1.0, 1.0, 2.0, 2.0], "nearest", "asymmetric"),
        "nearest, of channels": ([2, 7, 5, 11], "nearest", "half_pixel"),
    }.items()},
    "MeanVarianceNormalization": lambda b, x: b.add("MeanVarianceNormalization", x, axes=[0, 2, 3]),
    "quantized": quantized,
}  # fmt: skip


def times(b: Layers, x: str) -> str:
    """Of a size at which whole numbers differ."""
    return b.add("Mul", x, b.constant(np.float32(40)))


def whole(b: Layers, kind: str, *inputs: str, **attributes: object) -> str:
    """Whole numbers as the floats that they are compared as."""
    return b.add("Cast", b.add(kind, *inputs, **attributes), to=1)


ROWS_OF_ROWS: dict[str, Layer] = {
    "Gemm": lambda b, x: b.add("Gemm", x, b.real(6, 5), b.real(5)),
    "Gemm, turned": lambda b, x: b.add("Gemm", x, b.real(5, 6), transB=1),
    "Gemm, scaled": lambda b, x: b.add("Gemm", x, b.real(6, 5), b.real(5), alpha=0.5, beta=2.0),
    "MatMul and Add": lambda b, x: b.add("Add", b.real(5), b.add("MatMul", x, b.real(6, 5))),
    "MatMul and another Add": lambda b, x: b.add("Add", b.add("MatMul", x, b.real(6, 5)), b.real(4, 1)),
    "MatMul of stored integers": lambda b, x: b.add("MatMul", b.pair(x, 0.02, 3), b.stored(6, 5, axis=1)),
    "LogSoftmax": lambda b, x: b.add("LogSoftmax", x, axis=0),
    "Tile": lambda b, x: b.add("Tile", x, b.constant(integers(2, 3))),
    "uint8": lambda b, x: b.pair(x, 0.03, 130, np.uint8),
    **{kind: lambda b, x, kind=kind: b.add(kind, b.add("Tanh", x)) for kind in (
        "Acos", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan",
    )},
    "Acosh": lambda b, x: b.add("Acosh", b.add("Exp", b.add("Abs", x))),
    "Celu": lambda b, x: b.add("Celu", x, alpha=0.7),
    "Mod": lambda b, x: b.add("Mod", x, b.real(4, 6), fmod=1),
    "Mod of integers": lambda b, x: whole(b, "Mod", b.add("Cast", times(b, x), to=7), b.constant(np.int64(-5))),
    "Mean": lambda b, x: b.add("Mean", x, b.real(4, 1), b.real(6)),
    "Sum": lambda b, x: b.add("Sum", x, b.real(4, 1), b.real(6)),
    "GatherElements": lambda b, x: b.add("GatherElements", x, b.constant(np.array([[5, -1, 0]] * 4)), axis=1),
    "Gather of a line": lambda b, x: b.add(
        "Gather", b.add("Reshape", x, b.constant(integers(-1))), b.constant(np.array([[5, -1], [0, 23]]))
    ),
    "ArgMin": lambda b, x: whole(b, "ArgMin", x, axis=1),
    "ArgMax, the last": lambda b, x: whole(b, "ArgMax", b.add("Sign", x), axis=0, keepdims=0, select_last_index=1),
    **{kind: lambda b, x, kind=kind: whole(
        b, kind, b.add("Cast", times(b, x), to=6), b.constant(np.array([3, 5, -7, 0, 1, 90], np.int32))
    ) for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "BitwiseNot": lambda b, x: whole(b, "BitwiseNot", b.add("Cast", times(b, x), to=6)),
    **{f"BitShift {way}": lambda b, x, way=way: whole(
        b, "BitShift", b.add("Cast", b.add("Abs", times(b, x)), to=2),
        b.constant(np.array([0, 1, 3, 7, 8, 200], np.uint8)), direction=way,
    ) for way in ("LEFT", "RIGHT")},
    **{kind: lambda b, x, kind=kind: b.add(kind, x, b.real(4, 1), b.real(6)) for kind in ("Max", "Min")},
    "Hardmax": lambda b, x: b.add("Hardmax", b.add("Relu", x), axis=0),
    "CumSum": lambda b, x: b.add("CumSum", x, b.constant(np.int64(1)), exclusive=1, reverse=1),
    "CumSum, exclusive of infinities": lambda b, x: b.add(
        "CumSum", b.add("Reciprocal", b.add("Relu", x)), b.constant(np.int64(0)), exclusive=1
    ),
    "ReduceProd of int32": lambda b, x: whole(
        b, "ReduceProd", b.add("Cast", times(b, x), to=6), b.constant(integers(0))
    ),
    "Trilu": lambda b, x: b.add("Trilu", x, b.constant(np.int64(-1)), upper=0),
    "ScatterElements": lambda b, x: b.add(
        "ScatterElements", x, b.constant(np.array([[5, -4, 0]] * 4)), b.real(4, 3), axis=1
    ),
    "ScatterElements that adds": lambda b, x: b.add(
        "ScatterElements", x, b.constant(np.array([[5, -1, 0]] * 4)), b.real(4, 3), axis=1, reduction="add"
    ),
    **{f"ScatterND, {kind}": lambda b, x, kind=kind: b.add(
        "ScatterND", x, b.constant(np.array([[3], [-4]])), b.real(2, 6), reduction=kind
    ) for kind in ("none", "add")},
    "ScatterND that adds to one place": lambda b, x: b.add(
        "ScatterND", x, b.constant(np.array([[3, 1], [3, 1], [-1, -5]])), b.real(3), reduction="add"
    ),
    **{f"IsInf {below}{above}": lambda b, x, below=below, above=above: whole(
        b, "IsInf", b.add("Reciprocal", b.add("Round", x)), detect_negative=below, detect_positive=above
    ) for below in (0, 1) for above in (0, 1)},
    "GatherND": lambda b, x: b.add("GatherND", x, b.constant(np.array([[0, 5], [-1, -6], [2, 0]]))),
    "GatherND of rows": lambda b, x: b.add("GatherND", x, b.constant(np.array([[[-1]], [[0]]]))),
    "GatherND in a batch": lambda b, x: b.add(
        "GatherND", x, b.constant(np.array([[[5]], [[-6]], [[0]], [[2]]])), batch_dims=1
    ),
    "IsNaN": lambda b, x: whole(b, "IsNaN", b.add("Log", x)),
    "ReduceProd": lambda b, x: b.add("ReduceProd", x, b.constant(integers(-1)), keepdims=0),
    "Gelu of tanh": lambda b, x: b.add("Gelu", x, approximate="tanh"),
    "ReduceLogSumExp": lambda b, x: b.add("ReduceLogSumExp", x, b.constant(integers(0))),
    "GRU": lambda b, x: b.add(
        "GRU", b.add("Reshape", x, b.constant(integers(4, 2, 3))), b.real(1, 15, 3), b.real(1, 15, 5), b.real(1, 30),
        hidden_size=5, outputs=2,
    ),
}  # fmt: skip
CASES = [*((name, layer, IMAGE) for name, layer in ROWS_OF_IMAGES.items())]
CASES += [(name, layer, ROWS) for name, layer in ROWS_OF_ROWS.items()]


def built(layer: Layer, shape: tuple[int, ...], folder: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """The file, an input, and what ONNX Runtime gives for it without optimisations."""
    graph = Layers()
    path = folder / "source.onnx"
    onnx.save(graph.model(layer(graph, "x"), shape), path)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return path, x, session.run(None, {"x": x})[0]


@pytest.mark.parametrize(("layer", "shape"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_module_computes_what_the_graph_says(layer, shape, tmp_path):
    path, x, wanted = built(layer, shape, tmp_path)
    with torch.no_grad():
        (found,) = Program(load_own(path))(torch.from_numpy(x))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=2e-6)


def test_the_graph_gets_the_forms_that_the_partitioner_looks_for(tmp_path):
    model = load_own(built(quantized, IMAGE, tmp_path)[0])
    before = sum(node.op_type == "DequantizeLinear" for node in model.graph)
    prepare(model)
    read = [node for node in model.graph if node.op_type == "DequantizeLinear"]
    assert len(read) == before, "the pair in front of two convolutions is there twice, the bias's is gone"
    assert {len(node.outputs[0].uses()) for node in read} == {1}
    (linear,) = [node for node in model.graph if node.op_type == LINEAR]
    assert linear.inputs[1].producer().attributes.get_int("axis") == 0
    assert [value.shape.numpy() for value in linear.inputs[1:]] == [(5, 256), (5,)]
    assert not [node for node in model.graph if node.op_type in ("MatMul", "Gemm")]


def test_a_product_that_is_not_quantized_has_real_weights(tmp_path):
    """XNNPACK computes such a one in float, and no kernel makes weights per channel real when the program runs."""

    def layer(b: Layers, x: str) -> str:
        entry = b.pair(x, 0.031, 17)
        whole = b.pair(b.add("Relu", b.add("Conv", entry, b.stored(3, 3, 1, 1, axis=0))), 0.04, -128)
        return b.pair(b.add("Add", b.add("Conv", entry, b.stored(3, 3, 1, 1, axis=0)), whole), 0.05, 0)

    model = load_own(built(layer, IMAGE, tmp_path)[0])
    prepare(model)
    first, last = (node.inputs[1] for node in model.graph if node.op_type == "Conv")
    assert first.producer().op_type == "DequantizeLinear"
    assert last.const_value.dtype == ir.DataType.FLOAT


def written(
    layer: Layer, shape: tuple[int, ...], folder: Path
) -> tuple[Artifact, WriteProgram, np.ndarray, np.ndarray]:
    path, x, wanted = built(layer, shape, folder)
    ports = TensorSpec("x", shape, "float32"), TensorSpec("y", wanted.shape, "float32")
    place, step = folder / "made", WriteProgram("int8")
    place.mkdir()
    return step.run(Artifact(path, "onnx", ports[:1], ports[1:], ""), place), step, x, wanted


def test_integers_run_in_xnnpack(tmp_path):
    artifact, step, x, wanted = written(quantized, IMAGE, tmp_path)
    assert step.diagnosis == {"delegates": 1, "kernels": {}}
    with ExecuTorchRunner(artifact) as runner:
        found = runner.run({"x": x})["y"]
        again = runner.invocation({"x": x})
        again()
        with pytest.raises(FeedError, match=r"input x has the shape \(1, 3, 9, 8\)"):
            runner.run({"x": x[:1]})
        with pytest.raises(FeedError, match="no array for input x"):
            runner.run({})
    assert np.abs(found - wanted).max() <= 0.29 * 1.001, "at most one step of the output"
    assert np.mean(np.abs(found - wanted) > 0.1) <= 0.2
    check_tampered(artifact, tmp_path)


def test_images_are_enlarged_in_xnnpack(tmp_path):
    def layer(b: Layers, x: str) -> str:
        return resized(b, b.add("Conv", x, b.real(4, 3, 3, 3)), [1.0, 1.0, 2.0, 2.0], "linear", "half_pixel")

    artifact, step, x, wanted = written(layer, IMAGE, tmp_path)
    assert step.diagnosis == {"delegates": 1, "kernels": {}}
    with ExecuTorchRunner(artifact) as runner:
        np.testing.assert_allclose(runner.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)


def check_tampered(artifact: Artifact, folder: Path) -> None:
    """A file that is not a program, and one that is cut short."""
    whole = artifact.path.read_bytes()
    for content, said in ((b"PK\3\4" + whole[4:8][::-1] + whole[8:], "does not begin as one"), (whole[:900], "load")):
        path = folder / "model.pte"
        path.write_bytes(content)
        with pytest.raises(ToolError, match=said), ExecuTorchRunner(replace(artifact, path=path)):
            pass


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    place = tmp_path_factory.mktemp("made")
    return convertkit.export(NETWORK, "executorch", int8=True, calib=CALIBRATION, eval=TEST, output=place / "out")


@pytest.mark.nightly
def test_the_delivered_program_is_executed(made):
    jsonschema.validate(made.report, schema())
    assert made.report["execution"] == "here"
    assert made.report["steps"][-1]["artifact"]["runtime"].startswith("ExecuTorch 1.5")
    assert float(made.report["quality"]["snr_db"]) > 35
    assert made.report["evaluation"]["drop"] <= 0.3
    assert made.artifact.size_bytes < 140_000, "of 452 kB"
    assert {path.name for path in made.path.iterdir()} == {
        "model.pte", "README.md", "manifest.json", "report.json", "report.html"
    }  # fmt: skip
    assert "| 0 | input | 1 × 1 × 8 × 8 | float32 |" in (made.path / "README.md").read_text()


@pytest.mark.nightly
def test_two_processes_write_the_same_bytes(made, tmp_path):
    flags = ("--target", "executorch", "--int8", "--calib", CALIBRATION, "-o", tmp_path / "out")
    for seed in ("1", "2"):
        said = apart("export", NETWORK, *flags, "--force", env={**os.environ, "PYTHONHASHSEED": seed})
        assert said.code == 0, said.err
        assert (tmp_path / "out" / "model.pte").read_bytes() == made.artifact.path.read_bytes()


@pytest.mark.nightly
@pytest.mark.case
def test_spoken_words_are_known_as_well_in_integers(cases, tmp_path):
    data = np.load(cases / "mlperf-kws" / "kws01.npz")
    sounds = (data["mfcc_int8"].astype(np.float32) - 83) * np.float32(0.5847029)
    how = {"calib": {"input_1": sounds[:100]}, "eval": {"input_1": sounds[100:], "label": data["label"][100:]}}
    source = cases / "mlperf-kws" / "saved_model"
    made = convertkit.export(source, "executorch", int8=True, output=tmp_path / "out", **how)
    assert made.report["evaluation"]["drop"] <= 0.3


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (lambda b, x: b.add("Det", b.add("Reshape", x, b.constant(integers(6, 2, 2)))), r"Det_1 \(Det\)"),
        (lambda b, x: b.add("Expand", x, b.add("Shape", x)), "its argument v0_0 is computed"),
        (lambda b, x: b.add("Cast", b.add("Cast", b.add("Abs", x), to=12), to=1), "no tensors of that type"),
        (
            lambda b, x: b.add("ScatterND", x, b.constant(np.array([[3]])), b.real(1, 6), reduction="max"),
            "reduction max: ExecuTorch's scatters overwrite or add",
        ),
        (lambda b, x: b.add("Gelu", x, approximate="tanh"), None),
    ],
    ids=["unknown", "computed", "type", "reduction", "known"],
)
def test_what_it_cannot_say_is_refused(layer, said, tmp_path):
    graph = Layers()
    model = ir.from_proto(graph.model(layer(graph, "x"), ROWS))
    if said is None:
        assert Program(model)(torch.ones(ROWS))[0].shape == ROWS
        return
    with pytest.raises(Unsupported, match=said):
        Program(model)


def test_blocks_and_four_bits_are_refused():
    graph = Layers()
    weight = graph.constant(np.ones((6, 4), np.int8))
    real = graph.add("DequantizeLinear", weight, graph.constant(np.ones((3, 4), np.float32)), axis=0, block_size=2)
    model = ir.from_proto(graph.model(graph.add("MatMul", "x", real), ROWS))
    with pytest.raises(Unsupported, match="ExecuTorch has no such form of it"):
        Program(model)
