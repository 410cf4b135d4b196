"""Each operator as layers of ncnn: which they are, and what ncnn computes with them against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from convertkit.errors import Unsupported
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.compile import compile_model
from convertkit.targets.ncnn.handlers import NCNN
from convertkit.targets.ncnn.layers import stored, written
from convertkit.targets.ncnn.runtime import SERVICE
from convertkit.targets.ncnn.tensor import constant
from convertkit.workers.process import Worker
from tests import installed

RNG = np.random.default_rng(11)
IMAGE, SIGNAL, VOLUME, ROWS, MATRIX = (1, 4, 7, 9), (1, 6, 11), (1, 2, 5, 6, 7), (1, 5, 6), (3, 6)
CLOSE = 2e-5


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """``stored`` are the inputs behind the first, None for one that is left out; ``layers`` what is made of it."""

    op: str
    shape: tuple[int, ...]
    layers: str = ""
    stored: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    refuses: str = ""
    positive: bool = False
    outputs: int = 1
    last: bool = False
    opset: int = 21

    def __str__(self) -> str:
        return f"{self.op}-{'x'.join(map(str, self.shape))}-{self.layers or self.refuses[:20]}"


def case(op: str, shape: tuple[int, ...], layers: str = "", *stored: Any, refuses: str = "", positive: bool = False,
         outputs: int = 1, last: bool = False, opset: int = 21, **attributes: Any) -> Case:  # fmt: skip
    return Case(op, shape, layers, stored, attributes, refuses, positive, outputs, last, opset)


PLAIN = {
    "Abs": "UnaryOp", "Neg": "UnaryOp", "Floor": "UnaryOp", "Ceil": "UnaryOp", "Exp": "UnaryOp", "Sin": "UnaryOp",
    "Cos": "UnaryOp", "Atan": "UnaryOp", "Reciprocal": "UnaryOp", "Round": "UnaryOp", "Sigmoid": "Sigmoid",
    "Tanh": "TanH", "Mish": "Mish", "Erf": "Erf", "Relu": "ReLU", "HardSwish": "HardSwish",
    "Elu": "ELU", "Selu": "SELU", "LeakyRelu": "ReLU", "HardSigmoid": "HardSigmoid", "Gelu": "GELU",
}  # fmt: skip
LOG_SUM_EXP = "Split Reduction Split BinaryOp UnaryOp Reduction UnaryOp BinaryOp"
SMALL = ("Asin", "Acos", "Tan")
"""Operators whose inputs are brought into their range."""
REDUCED = ("Sum", "SumSquare", "Mean", "Max", "Min", "Prod", "L1", "L2")
CASES = [
    *(case(op, IMAGE, layers) for op, layers in PLAIN.items()),
    *(case(op, ROWS, "UnaryOp", positive=True) for op in ("Sqrt", "Log")),
    *(case(op, (1, 7), "BinaryOp UnaryOp") for op in SMALL),
    case("LeakyRelu", ROWS, "ReLU", alpha=0.3),
    case("Elu", ROWS, "ELU", alpha=0.7),
    case("HardSigmoid", ROWS, "HardSigmoid", alpha=0.3, beta=0.4),
    case("Gelu", ROWS, "GELU", approximate="tanh"),
    case("PRelu", IMAGE, "PReLU", real(4, 1, 1)),
    case("PRelu", ROWS, "PReLU", real(1)),
    case("PRelu", IMAGE, "", real(7, 9), refuses="slopes of sizes"),
    case("PRelu", (2, 4, 7, 9), "PReLU", real(1)),
    case("PRelu", (2, 4, 7, 9), "", real(4, 1, 1), refuses="a batch of 2"),
    case("PRelu", MATRIX, "", real(6), refuses="a batch of 3"),
    case("Clip", IMAGE, "Clip", np.float32(-0.3), np.float32(0.8)),
    case("Clip", IMAGE, "Clip", None, np.float32(0.8)),
    case("Clip", IMAGE, "Clip", np.float32(0)),
    case("Clip", IMAGE, "", np.float32(0.8), np.float32(-0.3), refuses="a least value of 0.8"),
    case("Softmax", IMAGE, "Softmax", axis=1),
    case("Softmax", ROWS, "Softmax"),
    case("Softmax", MATRIX, "Softmax", axis=0),
    case("Add", IMAGE, "BinaryOp", real(4, 1, 1)),
    case("Add", IMAGE, "BinaryOp", np.float32(0.7)),
    case("Sub", IMAGE, "BinaryOp", real(9)),
    case("Sub", IMAGE, "BinaryOp", np.float32(0.7), last=True),
    case("Mul", ROWS, "BinaryOp", real(5, 1)),
    case("Mul", (1, 5, 1), "BinaryOp", real(1, 1, 6)),
    case("Div", ROWS, "BinaryOp", np.float32(0.3), last=True),
    case("Div", IMAGE, "BinaryOp", real(1, 4, 7, 1)),
    case("Pow", ROWS, "UnaryOp", np.float32(2)),
    case("Pow", ROWS, "BinaryOp", np.float32(0.5), positive=True),
    case("Pow", ROWS, "BinaryOp", np.float32(1.5), last=True),
    case("Max", IMAGE, "BinaryOp BinaryOp", real(4, 1, 1), np.float32(0.2)),
    case("Min", IMAGE, "BinaryOp", np.float32(0.2)),
    case("Sum", IMAGE, "BinaryOp BinaryOp", real(9), real(7, 1)),
    case("Mean", IMAGE, "BinaryOp BinaryOp BinaryOp", real(9), real(7, 1)),
    case("Add", IMAGE, "", np.float32(np.inf), refuses="the number inf"),
    case("Conv", IMAGE, "Convolution", real(5, 4, 3, 2), real(5), pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    case("Conv", IMAGE, "ConvolutionDepthWise", real(8, 2, 3, 3), group=2, auto_pad="SAME_UPPER", strides=[2, 2]),
    case("Conv", IMAGE, "ConvolutionDepthWise", real(4, 1, 3, 3), real(4), group=4),
    case("Conv", SIGNAL, "Convolution1D", real(5, 6, 3), real(5), pads=[2, 1], strides=[2]),
    case("Conv", SIGNAL, "ConvolutionDepthWise1D", real(6, 1, 3), group=6),
    case("Conv", VOLUME, "Convolution3D", real(3, 2, 2, 3, 2), real(3), pads=[0, 1, 0, 1, 0, 1]),
    case("Conv", (2, 4, 5, 5), "", real(5, 4, 3, 3), refuses="a batch of 2"),
    case("ConvTranspose", IMAGE, "Deconvolution", real(4, 5, 3, 2), real(5), strides=[2, 3], pads=[1, 0, 0, 1]),
    case("ConvTranspose", IMAGE, "DeconvolutionDepthWise", real(4, 3, 3, 3), group=2, strides=[2, 2],
         output_padding=[1, 0]),
    case("ConvTranspose", SIGNAL, "Deconvolution1D", real(6, 2, 3), real(2), strides=[2]),
    case("ConvTranspose", IMAGE, "Deconvolution", real(4, 5, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    case("ConvTranspose", IMAGE, "Deconvolution", real(4, 5, 3, 3), output_shape=[14, 18], strides=[2, 2]),
    case("MaxPool", IMAGE, "Pooling", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    case("MaxPool", SIGNAL, "Pooling1D", kernel_shape=[3], strides=[2]),
    case("MaxPool", VOLUME, "Pooling3D", kernel_shape=[2, 2, 3]),
    case("MaxPool", IMAGE, "", kernel_shape=[2, 2], dilations=[2, 1], refuses="dilations"),
    case("MaxPool", IMAGE, "Pooling", kernel_shape=[3, 2], strides=[3, 2], ceil_mode=1),
    case("AveragePool", IMAGE, "Pooling", kernel_shape=[3, 2], strides=[3, 2], ceil_mode=1, pads=[1, 0, 1, 0]),
    case("AveragePool", IMAGE, "", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1,
         refuses="ceil_mode with count_include_pad"),
    case("AveragePool", IMAGE, "Pooling", kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
    case("AveragePool", IMAGE, "Pooling", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, strides=[2, 2]),
    case("AveragePool", SIGNAL, "Pooling1D", kernel_shape=[4], strides=[3]),
    case("AveragePool", IMAGE, "", kernel_shape=[2, 2], dilations=[1, 2], refuses="dilations"),
    case("GlobalAveragePool", IMAGE, "Pooling"),
    case("GlobalMaxPool", IMAGE, "Pooling"),
    case("GlobalAveragePool", SIGNAL, "Reduction"),
    case("GlobalAveragePool", (2, 4, 7, 9), "Reduction"),
    *(case(f"Reduce{kind}", IMAGE, "Reduction", whole(1, 3)) for kind in REDUCED),
    *(case(f"Reduce{kind}", ROWS, "Reduction", whole(-1), keepdims=0) for kind in REDUCED),
    case("ReduceLogSum", ROWS, "Reduction", whole(1), positive=True),
    case("ReduceLogSumExp", ROWS, LOG_SUM_EXP, whole(1)),
    case("ReduceLogSumExp", IMAGE, LOG_SUM_EXP, whole(-1, 1), keepdims=0),
    case("ReduceLogSumExp", MATRIX, LOG_SUM_EXP, keepdims=0),
    case("ReduceMax", MATRIX, "Reduction", whole(0)),
    case("ReduceMean", ROWS, "Reduction", None, keepdims=0),
    case("ReduceSum", ROWS, "Noop", noop_with_empty_axes=1),
    case("Gemm", MATRIX, "InnerProduct", real(6, 5), real(5)),
    case("Gemm", MATRIX, "InnerProduct", real(5, 6), real(1, 5), transB=1),
    case("Gemm", (1, 6), "InnerProduct", real(5, 6), transB=1),
    case("Gemm", MATRIX, "InnerProduct BinaryOp", real(6, 5), real(5), beta=2.0),
    case("Gemm", MATRIX, "Permute InnerProduct BinaryOp", real(3, 5), real(6, 1), transA=1),
    case("Gemm", MATRIX, "MatMul BinaryOp BinaryOp", real(6, 5), real(5), alpha=0.5, beta=2.0),
    case("MatMul", ROWS, "InnerProduct", real(6, 4)),
    case("MatMul", (2, 3, 5, 6), "InnerProduct", real(6, 4)),
    case("MatMul", (1, 3, 5, 6), "MatMul", real(3, 6, 4)),
    case("MatMul", (6,), "InnerProduct", real(6, 4)),
    case("MatMul", ROWS, "InnerProduct", real(6)),
    case("Transpose", IMAGE, "Permute", perm=[0, 2, 3, 1]),
    case("Transpose", IMAGE, "Permute", perm=[0, 1, 3, 2]),
    case("Transpose", (2, 3, 4, 5), "Permute", perm=[3, 1, 0, 2]),
    case("Transpose", (1, 3, 1, 5), "Noop", perm=[1, 0, 2, 3]),
    case("Reshape", IMAGE, "Noop", whole(1, -1, 9)),
    case("Flatten", IMAGE, "Noop", axis=2),
    case("Squeeze", (1, 3, 1, 5), "Noop", whole(2)),
    case("Unsqueeze", MATRIX, "Noop", whole(0, -1)),
    case("Identity", IMAGE, "Noop"),
    case("Dropout", IMAGE, "Noop"),
    case("Dropout", IMAGE, "", np.float32(0.5), np.bool_(True), refuses="training_mode"),
    case("Cast", IMAGE, "Noop", to=1),
    case("Cast", IMAGE, "", to=7, refuses="int64 results"),
    case("Concat", IMAGE, "Concat", real(1, 2, 7, 9), axis=1),
    case("Concat", IMAGE, "Concat", real(1, 4, 7, 2), axis=-1),
    case("Concat", MATRIX, "Concat", real(2, 6), axis=0),
    case("Expand", (1, 4, 1, 9), "Tile", whole(1, 4, 7, 9)),
    case("Tile", MATRIX, "Tile Tile", whole(2, 3)),
    case("Tile", IMAGE, "Tile", whole(1, 1, 2, 1)),
    case("DepthToSpace", (1, 8, 3, 5), "PixelShuffle", blocksize=2),
    case("DepthToSpace", (1, 8, 3, 5), "PixelShuffle", blocksize=2, mode="CRD"),
    case("SpaceToDepth", (1, 3, 4, 6), "Reorg", blocksize=2),
    case("BatchNormalization", IMAGE, "BatchNorm", real(4), real(4), real(4), abs(real(4)) + 0.1, epsilon=1e-3),
    case("BatchNormalization", (1, 6), "BatchNorm", real(6), real(6), real(6), abs(real(6)) + 0.1),
    case("BatchNormalization", (2, 6), "BinaryOp BinaryOp", real(6), real(6), real(6), abs(real(6)) + 0.1),
    case("BatchNormalization", (2, 4, 5), "BinaryOp BinaryOp", real(4), real(4), real(4), abs(real(4)) + 0.1),
    case("BatchNormalization", (2, 3), "BinaryOp BinaryOp", real(3), real(3), real(3), real(3) * 0, epsilon=0.25),
    case("InstanceNormalization", IMAGE, "InstanceNorm", real(4), real(4), epsilon=1e-3),
    case("InstanceNormalization", SIGNAL, "InstanceNorm", real(6), real(6)),
    case("GroupNormalization", IMAGE, "GroupNorm", real(4), real(4), num_groups=2),
    case("LayerNormalization", ROWS, "LayerNorm", real(6), real(6), epsilon=1e-3),
    case("LayerNormalization", IMAGE, "LayerNorm", real(7, 9), axis=2),
    case("LRN", (1, 9, 4, 5), "LRN", size=3, alpha=0.1, beta=0.5, bias=2.0),
    case("LRN", IMAGE, "", size=4, refuses="an odd number"),
    case("Resize", IMAGE, "Interp", None, None, whole(1, 4, 14, 27), mode="nearest"),
    case("Resize", IMAGE, "Interp", None, None, whole(1, 4, 5, 13), mode="nearest", nearest_mode="floor",
         coordinate_transformation_mode="asymmetric"),
    case("Resize", IMAGE, "Interp", None, None, whole(1, 4, 12, 5), mode="linear"),
    case("Resize", IMAGE, "Interp", None, None, whole(1, 4, 12, 15), mode="linear",
         coordinate_transformation_mode="align_corners"),
    case("Resize", IMAGE, "Interp", None, np.float32([1, 1, 2, 2]), mode="cubic"),
    case("Resize", SIGNAL, "Interp", None, None, whole(1, 6, 20), mode="linear"),
    case("Resize", IMAGE, "", None, None, whole(1, 4, 5, 13), mode="nearest", refuses="cuts places off"),
    case("Resize", IMAGE, "", None, None, whole(1, 4, 3, 5), mode="linear", antialias=1, refuses="antialias"),
    case("Resize", IMAGE, "", None, None, whole(1, 4, 3, 5), mode="cubic", cubic_coeff_a=-0.5, refuses="another cubic"),
    case("Resize", IMAGE, "", None, None, whole(1, 4, 3, 5), mode="cubic", exclude_outside=1, refuses="exclude_"),
    case("Resize", IMAGE, "", None, None, whole(1, 4, 1, 5), mode="linear",
         coordinate_transformation_mode="pytorch_half_pixel", refuses="linear with pytorch_half_pixel"),
    case("Resize", IMAGE, "", None, None, whole(1, 8, 7, 9), mode="linear", refuses="other axes"),
    case("Resize", IMAGE, "", None, np.float32([1, 1, 1.3, 1.3]), mode="linear", refuses="whole sizes"),
    case("Slice", IMAGE, "Crop Crop", whole(1, 2), whole(3, -1), whole(1, 3)),
    case("Slice", MATRIX, "Crop", whole(0), whole(2), whole(0)),
    case("Slice", IMAGE, "", whole(0), whole(9), whole(3), whole(2), refuses="steps of 2"),
    case("Slice", IMAGE, "Crop", whole(0), whole(9), whole(3), whole(3)),
    case("Slice", IMAGE, "Crop Crop", whole(1), whole(7), whole(2), whole(2)),
    case("Slice", MATRIX, "Crop", whole(1), whole(9), whole(-1), whole(2)),
    case("Slice", MATRIX, "Crop Crop", whole(2), whole(9), whole(-1), whole(2)),
    case("Slice", SIGNAL, "Crop Crop", whole(1), whole(99), whole(-1), whole(2)),
    case("Slice", (6, 3), "Crop", whole(0), whole(9), whole(0), whole(2)),
    case("Slice", IMAGE, "Flip", whole(-1), whole(-99), whole(3), whole(-1)),
    case("Slice", IMAGE, "Crop Flip Flip", whole(5, -1), whole(1, -99), whole(2, 1), whole(-1, -1)),
    case("Slice", MATRIX, "Flip", whole(-1), whole(-99), whole(0), whole(-1)),
    case("Slice", (2, 3, 2, 5), "Flip", whole(-1), whole(-99), whole(1), whole(-1)),
    case("Slice", IMAGE, "", whole(8), whole(0), whole(3), whole(-2), refuses="steps of -2"),
    case("Split", IMAGE, "Slice", whole(1, 3), axis=1, outputs=2),
    case("Split", ROWS, "Slice", axis=-1, num_outputs=3, outputs=3),
    case("Split", ROWS, "Slice", axis=1, num_outputs=2, outputs=2),
    case("Gather", ROWS, "Crop", np.int64(2), axis=1),
    case("Gather", ROWS, "Split Crop Crop Concat", whole(3, 0, 1), axis=1),
    case("Gather", ROWS, "Crop", whole(-3, -2), axis=-1),
    case("Gather", (1, 130), "", whole(*range(0, 130, 2)), axis=1, refuses="65 parts"),
    case("Pad", IMAGE, "Padding", whole(0, 0, 1, 2, 0, 0, 3, 0), np.float32(0.5)),
    case("Pad", IMAGE, "Padding", whole(0, 1, 0, 0, 0, 2, 0, 1)),
    case("Pad", IMAGE, "Padding", whole(0, 0, 1, 2, 0, 0, 3, 0), mode="reflect"),
    case("Pad", SIGNAL, "Padding", whole(0, 0, 1, 0, 0, 4), mode="edge"),
    case("Pad", IMAGE, "", whole(0, 1, 0, 0, 0, 1, 0, 0), mode="edge", refuses="channels by what is there"),
    case("Pad", IMAGE, "", whole(0, 0, -1, 0, 0, 0, 0, 0), refuses="negative padding"),
    case("LSTM", (5, 1, 6), "LSTM", real(1, 16, 6), real(1, 16, 4), real(1, 32), hidden_size=4),
    case("LSTM", (5, 1, 6), "LSTM", real(2, 16, 6), real(2, 16, 4), hidden_size=4, direction="bidirectional"),
    case("LSTM", (5, 2, 6), "", real(1, 16, 6), real(1, 16, 4), hidden_size=4, refuses="one sequence at a time"),
    case("LSTM", (5, 1, 6), "", real(1, 16, 6), real(1, 16, 4), None, None, real(1, 1, 4), hidden_size=4,
         refuses="a state that is given"),
    case("LSTM", (5, 1, 6), "", real(1, 16, 6), real(1, 16, 4), None, None, None, real(1, 1, 4), hidden_size=4,
         refuses="a state that is given"),
    case("LSTM", (1, 1, 4), "", real(5, 1, 6), real(1, 16, 6), real(1, 16, 4), None, None, hidden_size=4, last=True,
         refuses="a state that is given"),
    case("LSTM", (5, 1, 6), "", real(1, 16, 6), real(1, 16, 4), hidden_size=4, input_forget=1, refuses="coupled gates"),
    case("LSTM", (5, 1, 6), "LSTM Split Crop Crop Crop Crop Concat", real(2, 16, 6), real(2, 16, 4), hidden_size=4,
         direction="bidirectional", outputs=2),
    case("GRU", (5, 1, 6), "GRU", real(1, 12, 6), real(1, 12, 4), real(1, 24), hidden_size=4, linear_before_reset=1),
    case("GRU", (5, 1, 6), "", real(1, 12, 6), real(1, 12, 4), hidden_size=4, refuses="linear_before_reset 0"),
    case("RNN", (5, 1, 6), "RNN", real(1, 4, 6), real(1, 4, 4), real(1, 8), hidden_size=4, direction="reverse"),
    case("RNN", (5, 1, 6), "RNN Split Crop", real(1, 4, 6), real(1, 4, 4), hidden_size=4, direction="reverse",
         outputs=2),
    case("RNN", (5, 1, 6), "", real(1, 4, 6), real(1, 4, 4), hidden_size=4, activations=["Relu"],
         refuses="activations"),
]  # fmt: skip


def model_of(row: Case) -> onnx.ModelProto:
    """One node from x to y, y1, …."""
    names = [] if row.last else ["x"]
    constants = []
    for place, value in enumerate(row.stored):
        names.append("" if value is None else f"k{place}")
        if value is not None:
            constants.append(numpy_helper.from_array(np.asarray(value), f"k{place}"))
    nodes = []
    if row.op in SMALL:
        constants.append(numpy_helper.from_array(np.float32(0.2), "scale"))
        nodes, names = [helper.make_node("Mul", ["x", "scale"], ["s"])], ["s"]
    elif row.last:
        names.append("x")
    results = ["y", *(f"y{place}" for place in range(1, row.outputs))]
    nodes.append(helper.make_node(row.op, names, results, "node", **row.attributes))
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, row.shape)]
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph(nodes, "g", ports, made, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", row.opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


@pytest.fixture(scope="module")
def ncnn() -> Iterator[Worker]:
    installed.needs("ncnn")
    with Worker(SERVICE) as worker:
        yield worker


@pytest.mark.parametrize("row", [row for row in CASES if not row.refuses], ids=str)
def test_ncnn_computes_what_onnx_says(ncnn, tmp_path, row):
    proto = model_of(row)
    compiled = compile_model(ir.from_proto(proto))
    assert " ".join(each.kind for each in compiled.layers if each.kind not in HIDDEN) == row.layers
    x = real(*row.shape)
    x = np.abs(x) + np.float32(0.1) if row.positive else x
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = computed(ncnn, tmp_path, compiled, {"x": x}, [each.shape for each in wanted])
    for one, other in zip(found, wanted, strict=True):
        assert np.abs(one - other).max() <= CLOSE * max(np.abs(other).max(), 1)


HIDDEN = ("Input", "MemoryData", "Reshape")


def computed(worker: Worker, place: Path, compiled: Any, feed: dict[str, np.ndarray], shapes: list[Any]) -> list[Any]:
    """The outputs of ncnn, of a model in a folder."""
    (place / "m.param").write_text(written(compiled.layers))
    (place / "m.bin").write_bytes(stored(compiled.layers, compact=False))
    ports = {
        "inputs": [[each.blob, each.sizes, each.whole] for each in compiled.inputs],
        "outputs": [[each.blob, shape] for each, shape in zip(compiled.outputs, shapes, strict=True)],
    }
    worker.call("load", {"param": str(place / "m.param"), "bin": str(place / "m.bin"), **ports})
    made = worker.call("run", {"inputs": list(feed)}, feed).arrays
    return [made[str(number)] for number in range(len(shapes))]


def parsed(text: str, **stored: np.ndarray) -> onnx.ModelProto:
    """A graph in ONNX's own words."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items())
    return onnx.shape_inference.infer_shapes(proto, strict_mode=True)


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("l = Mul(x, k) y = ReduceLogSumExp(l, a)", {"k": np.float32(-300), "a": whole(1)}),
        ("z, y = LayerNormalization(x, w)", {"w": real(6)}),
    ],
)
def test_sums_of_large_exponentials_are_finite_and_statistics_are_given(ncnn, tmp_path, body, stored):
    proto, x = parsed(f"g (float[3,6] x) => (float[3,1] y) {{ {body} }}", **stored), real(*MATRIX)
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    (found,) = computed(ncnn, tmp_path, compile_model(ir.from_proto(proto)), {"x": x}, [wanted.shape])
    assert np.abs(found - wanted).max() <= CLOSE * max(np.abs(wanted).max(), 1)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("r = Reshape(x, s) y = MatMul(r, r)", r"MatMul-\d+\): stacks of matrices in more than two dimensions"),
        ("t = Reshape(x, n) y = Transpose<perm=[8,7,6,5,4,3,2,1,0]>(t)", r"Transpose-\d+\): 9 axes change places"),
    ],
)
def test_what_has_more_axes_than_a_blob_is_refused_with_the_node(node, said):
    proto = parsed(f"g (float[16,32] x) => (y) {{ {node} }}", s=whole(2, 4, 4, 4, 4), n=whole(*[2] * 9))
    with pytest.raises(Unsupported, match=said):
        compile_model(ir.from_proto(proto))


@pytest.mark.parametrize(
    ("sizes", "order", "count"),
    [
        ((2, 3, 4, 5, 2), (0, 3, 1, 2, 4), 1),
        ((1, 3, 2, 4, 5, 2), (0, 2, 4, 3, 5, 1), 2),
        ((2, 3, 4, 5, 2), (4, 3, 2, 1, 0), 2),
        ((2, 3, 2, 2, 5, 2), (0, 4, 3, 2, 1, 5), 3),
    ],
)
def test_more_than_four_axes_change_places_in_steps(ncnn, tmp_path, sizes, order, count):
    """Windows of pictures (Swin, MaxViT) are cut so; blobs have four dimensions."""
    body = f"r = Reshape(x, s) t = Transpose<perm={list(order)}>(r) y = Reshape(t, e)"
    text = f"g (float[{np.prod(sizes)}] x) => (y) {{ {body} }}"
    proto, x = parsed(text, s=whole(*sizes), e=whole(-1)), real(int(np.prod(sizes)))
    compiled = compile_model(ir.from_proto(proto))
    assert [each.kind for each in compiled.layers].count("Permute") == count
    (found,) = computed(ncnn, tmp_path, compiled, {"x": x}, [x.shape])
    assert np.array_equal(found, x.reshape(sizes).transpose(order).reshape(-1))


@pytest.mark.parametrize(
    ("node", "layers"),
    [
        ("Slice(r, one, two, one)", "Crop"),
        ("Gather<axis=2>(r, places)", "Split Crop Crop Concat"),
        ("Concat<axis=3>(r, r)", "Split Concat"),
        ("Softmax<axis=1>(r)", "Softmax"),
        ("Slice(r, last, first, one, last)", "Flip"),
    ],
)
def test_along_one_axis_of_more_than_four(ncnn, tmp_path, node, layers):
    """The others are one before it and one behind it."""
    numbers = {"one": whole(1), "two": whole(2), "last": whole(-1), "first": whole(-99), "places": whole(2, 0)}
    body = f"r = Reshape(x, sizes) v = {node} y = Reshape(v, last)"
    proto = parsed(f"g (float[720] x) => (y) {{ {body} }}", sizes=whole(2, 3, 4, 5, 6), **numbers)
    compiled, x = compile_model(ir.from_proto(proto)), real(720)
    assert " ".join(each.kind for each in compiled.layers if each.kind not in HIDDEN) == layers
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    (found,) = computed(ncnn, tmp_path, compiled, {"x": x}, [wanted.shape])
    assert np.abs(found - wanted).max() <= CLOSE * max(np.abs(wanted).max(), 1)


def test_negative_padding_is_refused():
    """ONNX's own shape inference does not let it through."""
    builder = Builder()
    with pytest.raises(Unsupported, match="negative padding"):
        NCNN.find("Conv", 11)(builder, builder.input("x", IMAGE), constant(real(5, 4, 3, 3)), None, pads=(-1, 0, 0, 0))


@pytest.mark.parametrize("row", [row for row in CASES if row.refuses], ids=str)
def test_what_a_layer_cannot_say_is_refused_with_the_node(row):
    with pytest.raises(Unsupported, match=rf"^node \({row.op}-\d+\): .*{row.refuses}"):
        compile_model(ir.from_proto(model_of(row)))


def test_every_handler_has_a_row_and_fits_its_schema():
    NCNN.check()
    assert {key.op for key in NCNN} == {row.op for row in CASES if not row.refuses}
