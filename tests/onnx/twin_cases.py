"""Small models of one or a few operators, for the twin: each with numbers on which float32 is well-conditioned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper


@dataclass(frozen=True)
class Case:
    """A graph with its operands; opset 20 unless it says otherwise."""

    nodes: list[onnx.NodeProto]
    feed: dict[str, np.ndarray]
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    opset: int = 20

    def __str__(self) -> str:
        return "-".join(node.op_type for node in self.nodes)


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one(op: str, *operands: np.ndarray, outputs: str = "y", opset: int = 20, **attributes) -> Case:
    """The first operand is fed, the others are constants; None is an operand that is not given."""
    names = [f"x{i}" if each is not None else "" for i, each in enumerate(operands)]
    constants = {name: each for name, each in zip(names[1:], operands[1:]) if name}
    made = helper.make_node(op, names, outputs.split(), **attributes)
    return Case([made], {"x0": operands[0]}, constants, tuple(outputs.split()), opset)


def _subgraph(name: str, nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> onnx.GraphProto:
    shapes: dict[str, list[int]] = {"i": [], "c": [], "s": [3], "t": [3]}
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    infos = [
        [
            helper.make_tensor_value_info(each, kinds.get(each[0], TensorProto.FLOAT), shapes.get(each[0]))
            for each in names
        ]
        for names in (inputs, outputs)
    ]
    return helper.make_graph(nodes, name, *infos)


def _loop() -> Case:
    body = _subgraph(
        "body",
        [helper.make_node("Mul", ["s", "factor"], ["t"]), helper.make_node("Identity", ["c"], ["c_out"])],
        ["i", "c", "s"],
        ["c_out", "t", "t"],
    )
    loop = helper.make_node("Loop", ["trips", "", "x0"], ["y", "all"], body=body)
    constants = {"trips": np.array(5), "factor": np.float32(1.7)}
    return Case([loop], {"x0": f32(3)}, constants, ("y", "all"))


POSITIVE = np.abs(f32(4, 6)) + np.float32(0.5)
UNIT = np.clip(f32(4, 6), -2, 2) / np.float32(2.5)
IMAGE = f32(2, 4, 7, 6)
STATISTICS = [POSITIVE[0, :4], f32(4, seed=5), f32(4, seed=6), POSITIVE[1, :4]]
SEQUENCE = f32(5, 2, 3)
UNARY = ("Abs", "Atan", "Asinh", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
         "LeakyRelu", "Mish", "Neg", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
         "Tanh", "ThresholdedRelu", "Cosh", "Celu", "Shrink", "Identity")  # fmt: skip

REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
              "ReduceProd", "ReduceSum", "ReduceSumSquare")  # fmt: skip


def gated(op: str, gates: int, *, both: bool = False, **attributes) -> Case:
    ways = 2 if both else 1
    weights = [f32(ways, gates * 4, size, seed=size) / np.float32(2) for size in (3, 4)]
    if both:
        attributes["direction"] = "bidirectional"
    outputs = "y y_h y_c" if op == "LSTM" else "y y_h"
    return one(op, SEQUENCE, *weights, f32(ways, 2 * gates * 4), np.int32([5, 3]), outputs=outputs,
               hidden_size=4, **attributes)  # fmt: skip


CASES = [
    *(one(op, f32(4, 6)) for op in UNARY),
    *(one(op, UNIT) for op in ("Acos", "Asin", "Atanh")),
    *(one(op, POSITIVE) for op in ("Log", "Sqrt", "Reciprocal")),
    one("Acosh", POSITIVE + 1),
    one("Pow", POSITIVE, f32(4, 6)),
    one("Div", f32(4, 6), POSITIVE),
    one("PRelu", f32(4, 6), f32(6)),
    one("Mod", f32(4, 6), POSITIVE, fmod=1),
    one("Sum", f32(4, 6), f32(6), f32(4, 1)),
    one("Mean", f32(4, 6), f32(6), f32(4, 1)),
    one("Softmax", 3 * f32(4, 6), axis=0),
    one("LogSoftmax", 3 * f32(4, 6)),
    one("Hardmax", f32(4, 6)),
    one("MatMul", f32(2, 3, 70), f32(70, 5, seed=1)),
    one("Gemm", f32(70, 3), f32(5, 70, seed=1), f32(5), transA=1, transB=1, alpha=0.7, beta=1.3),
    one("Einsum", f32(2, 3, 4), f32(2, 4, 5, seed=1), equation="bij,bjk->bik"),
    one("CumSum", f32(4, 6), np.array(1), exclusive=1, reverse=1),
    one("Det", f32(3, 4, 4)),
    *(one(op, POSITIVE, np.array([1])) for op in REDUCTIONS),
    one("ReduceMean", POSITIVE, axes=[0], keepdims=0, opset=13),
    one("ReduceSum", POSITIVE, noop_with_empty_axes=1),
    one("Conv", IMAGE, f32(6, 4, 3, 3, seed=1), f32(6), strides=[2, 1], pads=[1, 0, 1, 2]),
    one("Conv", IMAGE, f32(8, 1, 3, 3, seed=1), group=4, auto_pad="SAME_LOWER", strides=[2, 2]),
    one("Conv", IMAGE, f32(6, 2, 3, 2, seed=1), group=2, dilations=[2, 3]),
    one("Conv", f32(1, 3, 9), f32(5, 3, 1, seed=1)),
    one("Conv", f32(1, 2, 4, 5, 4), f32(3, 2, 2, 3, 2, seed=1), strides=[1, 2, 1]),
    one("ConvTranspose", IMAGE, f32(4, 3, 3, 2, seed=1), f32(3), strides=[2, 3], output_padding=[1, 0],
        pads=[1, 0, 0, 1]),
    one("ConvTranspose", IMAGE, f32(4, 2, 3, 3, seed=1), group=2, auto_pad="SAME_UPPER", strides=[2, 2]),
    one("ConvTranspose", IMAGE, f32(4, 3, 3, 3, seed=1), output_shape=[14, 13], strides=[2, 2]),
    one("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1),
    one("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    one("AveragePool", IMAGE, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    one("LpPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1]),
    one("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 0]),
    one("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 1, 0], opset=7),
    *(one(op, IMAGE) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    one("BatchNormalization", IMAGE, *STATISTICS),
    one("BatchNormalization", IMAGE, *STATISTICS, outputs="y mean variance", training_mode=1, momentum=0.7),
    one("InstanceNormalization", IMAGE, *STATISTICS[:2]),
    one("LayerNormalization", IMAGE, f32(7, 6), f32(6), axis=2),
    one("GroupNormalization", IMAGE, *STATISTICS[:2], num_groups=2, opset=21),
    one("MeanVarianceNormalization", IMAGE),
    one("LRN", IMAGE, size=3, alpha=0.3, beta=0.6, bias=1.5),
    one("LpNormalization", f32(4, 6), axis=0),
    gated("LSTM", 4, both=True),
    gated("LSTM", 4, direction="reverse", clip=0.5, input_forget=1),
    gated("GRU", 3, both=True),
    gated("GRU", 3, linear_before_reset=1),
    gated("RNN", 1, both=True, activations=["LeakyRelu", "Affine"], activation_alpha=[0.3, 0.9], activation_beta=[0.1]),
    one("Resize", IMAGE, None, np.float32([1, 1, 1.7, 0.6]), mode="linear"),
    one("Resize", IMAGE, None, None, np.array([2, 4, 5, 11]), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
    one("Resize", IMAGE, None, np.float32([1, 1, 2, 3]), mode="nearest", nearest_mode="ceil",
        coordinate_transformation_mode="asymmetric"),
    one("Resize", IMAGE, None, None, np.array([9, 4]), axes=[2, 3], mode="linear",
        coordinate_transformation_mode="align_corners"),
    one("Resize", IMAGE, np.float32([0, 0, 0.1, 0.2, 1, 1, 1.3, 0.9]), None, np.array([2, 4, 9, 5]), mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=0.3),
    one("Resize", IMAGE, None, np.float32([1, 1, 0.6, 0.6]), mode="linear", antialias=1),
    one("Upsample", IMAGE, np.float32([1, 1, 2, 3]), mode="linear", opset=9),
    one("GridSample", IMAGE, np.clip(f32(2, 3, 4, 2), -1, 1)),
    one("GridSample", IMAGE, np.clip(f32(2, 3, 4, 2), -1, 1), mode="bilinear", align_corners=1, opset=16),
    one("GridSample", IMAGE, f32(2, 3, 4, 2, seed=2), mode="bicubic", padding_mode="border", opset=18),
    one("GridSample", f32(1, 2, 9, 24), np.clip(f32(1, 3, 4, 2), -1, 1), mode="bilinear", opset=16),
    one("DFT", f32(2, 12, 1), None, np.array(1), onesided=1),
    one("STFT", f32(1, 40, 1), np.array(8), np.hanning(16).astype(np.float32)),
    one("QuantizeLinear", f32(4, 6), np.float32([0.1, 0.2, 0.3, 0.4]), np.int8([3, 0, -5, 9]), axis=0),
    one("DequantizeLinear", np.uint8([[3, 200], [128, 0]]), np.float32([0.1, 0.2]), np.uint8([128, 3]), axis=1),
    one("TopK", f32(4, 6), np.array([2]), outputs="y at"),
    one("ScatterND", f32(4, 6), np.array([[1], [3]]), f32(2, 6, seed=2), reduction="add"),
    one("OneHot", np.array([1, -1, 2]), np.array(4), np.float32([0.1, 0.7])),
    one("Range", np.array(0.1, np.float32), np.array(2, np.float32), np.array(0.3, np.float32)),
    one("Cast", f32(4, 6) * 9, to=TensorProto.INT32),
    _loop(),
]  # fmt: skip
