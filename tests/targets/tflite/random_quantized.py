"""Random QDQ graphs: one operator that computes, between any number of moves, so that one rounding separates kernels.

Whatever the parameters (per tensor or per channel, symmetric or not, 8 or 16 bits, fused clamps or none), the
integers of ONNX Runtime and LiteRT may then differ by one step of the output and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.targets.tflite.compiled import numbers
from tests.targets.tflite.random_graphs import FLOAT, Graph

KINDS = (np.int8, np.int8, np.uint8, np.uint8, np.int16, np.uint16)
SHAPES = [(1, 3, 5, 4), (2, 4, 4, 4), (2, 3, 4), (3, 5), (1, 8, 3, 3)]
COMPUTING = (
    *("Conv", "Conv", "Conv", "Depthwise", "MatMul", "Gemm", "Add", "Sub", "Mul", "Concat", "GlobalAveragePool"),
    *("AveragePool", "ReduceMean", "ReduceMax", "LeakyRelu", "Sigmoid", "Tanh", "Softmax", "HardSwish", "Max", "Min"),
    *("Relu", "Clip", "Resize", "Pad", "MaxPool", "Exp", "ConvTranspose", "AddScalar", "Div"),
)


@dataclass(frozen=True)
class Params:
    """How one tensor is quantized."""

    kind: type
    scale: float
    zero: int


@dataclass(frozen=True)
class Quantized:
    """A QDQ model, the step of its output, and the shape of its input as fed."""

    model: onnx.ModelProto
    step: float


def _params(draw, kind, reach: float) -> Params:
    ends = np.iinfo(kind)
    scale = float(np.float32(reach * draw(st.sampled_from([0.5, 1.0, 1.7])) / (ends.max - ends.min)))
    places = {"middle": (ends.max + ends.min + 1) // 2, "low": ends.min, "odd": ends.min + (ends.max - ends.min) // 3}
    zero = 0 if kind == np.int16 and draw(st.booleans()) else places[draw(st.sampled_from(sorted(places)))]
    return Params(kind, scale, int(zero))


def _rounded(graph: Graph, name: str, params: Params) -> str:
    """``name`` through QuantizeLinear and DequantizeLinear."""
    inputs = [graph.constant(np.float32(params.scale)), graph.constant(np.array(params.zero, params.kind))]
    integers = graph.add("QuantizeLinear", [name, *inputs], graph.shapes[name], TensorProto.INT8)
    return graph.add("DequantizeLinear", [integers, *inputs], graph.shapes[name], FLOAT)


def _weight(draw, graph: Graph, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray]:
    """An integer weight behind DequantizeLinear, and its scales."""
    kind = draw(st.sampled_from([np.int8, np.int8, np.uint8]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    middle = 0 if kind == np.int8 else 128
    count = shape[axis] if draw(st.booleans()) else 1
    scales = np.linspace(0.002, 0.004, count).astype(np.float32)
    shift = rng.integers(-5, 6, count) if draw(st.integers(0, 3)) == 0 else np.zeros(count, int)
    zeros = (middle + shift).astype(kind)
    integers = (rng.integers(-120, 121, shape) + middle).astype(kind)
    inputs = [graph.constant(integers), graph.constant(scales if count > 1 else scales.reshape(()))]
    inputs.append(graph.constant(zeros if count > 1 else zeros.reshape(())))
    options = {"axis": axis} if count > 1 else {}
    return graph.add("DequantizeLinear", inputs, shape, FLOAT, **options), scales


def _bias(draw, graph: Graph, count: int, scales: np.ndarray) -> list[str]:
    """Nothing, an int32 bias of the products' scale, or a float one."""
    form = draw(st.sampled_from(["none", "integer", "float"]))
    if form == "none":
        return []
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if form == "float":
        return [graph.constant(rng.normal(size=count).astype(np.float32))]
    integers = graph.constant(rng.integers(-900, 900, count).astype(np.int32))
    step = scales if len(scales) > 1 else scales.reshape(())
    return [graph.add("DequantizeLinear", [integers, graph.constant(step)], (count,), FLOAT,
                      **({"axis": 0} if len(scales) > 1 else {}))]  # fmt: skip


def _move(draw, graph: Graph, name: str) -> str:
    """Integers moved about: their pair follows."""
    shape = graph.shapes[name]
    op = draw(st.sampled_from(["Transpose", "Reshape", "Slice", "Unsqueeze"]))
    if op == "Transpose":
        perm = draw(st.permutations(range(len(shape))))
        return graph.add(op, [name], [shape[axis] for axis in perm], perm=perm)
    if op == "Slice" and shape[-1] > 1:
        bounds = [graph.constant(np.array([bound])) for bound in (1, shape[-1], len(shape) - 1)]
        return graph.add(op, [name, *bounds], [*shape[:-1], shape[-1] - 1])
    if op == "Unsqueeze" and len(shape) < 4:
        return graph.add(op, [name, graph.constant(np.array([1]))], [shape[0], 1, *shape[1:]])
    flat = (shape[0], int(np.prod(shape[1:])))
    return graph.add("Reshape", [name, graph.constant(np.array(flat))], flat)


def _convolution(draw, graph: Graph, name: str, op: str) -> str:
    shape = graph.shapes[name]
    window = [min(draw(st.integers(1, 3)), size) for size in shape[2:]]
    channels = shape[1]
    if op == "Depthwise":
        weight, scales = _weight(draw, graph, (channels, 1, *window), 0)
        count, options = channels, {"group": channels}
    elif op == "ConvTranspose":
        count = draw(st.integers(1, 5))
        weight, scales = _weight(draw, graph, (channels, count, *window), 1)
        options = {}
    else:
        count = draw(st.integers(1, 6))
        weight, scales = _weight(draw, graph, (count, channels, *window), 0)
        options = {}
    sizes = [s + k - 1 if op == "ConvTranspose" else s - k + 1 for s, k in zip(shape[2:], window, strict=True)]
    bias = _bias(draw, graph, count, scales) if op != "ConvTranspose" else []
    made = "ConvTranspose" if op == "ConvTranspose" else "Conv"
    return graph.add(made, [name, weight, *bias], [shape[0], count, *sizes], FLOAT, kernel_shape=window, **options)


def _product(draw, graph: Graph, name: str, op: str) -> str:
    shape = graph.shapes[name]
    if op == "Gemm" and len(shape) == 2:
        weight, scales = _weight(draw, graph, (4, shape[-1]), 0)
        return graph.add(op, [name, weight, *_bias(draw, graph, 4, scales)], [shape[0], 4], FLOAT, transB=1)
    weight, _ = _weight(draw, graph, (shape[-1], 4), 1)
    return graph.add("MatMul", [name, weight], [*shape[:-1], 4], FLOAT)


def _binary(draw, graph: Graph, name: str, op: str, params: Params) -> str:
    shape = graph.shapes[name]
    if op == "Concat":
        other = _rounded(graph, graph.add("Neg", ["x0"], graph.shapes["x0"]), params)
        if graph.shapes[other] != shape:
            other = name
        return graph.add(op, [name, other], [*shape[:-1], 2 * shape[-1]], FLOAT, axis=len(shape) - 1)
    sizes = draw(st.sampled_from([shape, (1,) * (len(shape) - 1) + shape[-1:], ()]))
    kind = {"AddScalar": "Add"}.get(op, op)
    drawn = np.abs(numbers(*sizes, seed=draw(st.integers(0, 99)))) + np.float32(0.3)
    other = graph.constant(drawn)
    if sizes != ():
        graph.shapes[other], graph.kinds[other] = sizes, FLOAT
        other = _rounded(graph, other, params)
    return graph.add(kind, [name, other], shape, FLOAT)


def _compute(draw, graph: Graph, name: str, params: Params) -> str:
    """One operator on dequantized values."""
    shape, op = graph.shapes[name], draw(st.sampled_from(COMPUTING))
    image = len(shape) in (3, 4)
    if op in ("Conv", "Depthwise", "ConvTranspose") and image:
        return _convolution(draw, graph, name, op)
    if op in ("MatMul", "Gemm"):
        return _product(draw, graph, name, op)
    if op in ("Add", "Sub", "Mul", "Div", "Concat", "Max", "Min", "AddScalar"):
        return _binary(draw, graph, name, op, params)
    if op == "GlobalAveragePool" and image:
        return graph.add(op, [name], [*shape[:2], *[1] * (len(shape) - 2)])
    if op in ("AveragePool", "MaxPool") and image and min(shape[2:]) > 1:
        return graph.add(op, [name], [*shape[:2], *(s - 1 for s in shape[2:])], kernel_shape=[2] * (len(shape) - 2))
    if op in ("ReduceMean", "ReduceMax"):
        axis = draw(st.integers(0, len(shape) - 1))
        sizes = [1 if place == axis else size for place, size in enumerate(shape)]
        return graph.add(op, [name, graph.constant(np.array([axis]))], sizes)
    if op == "Resize" and image:
        scales = graph.constant(np.array([1, 1, *[2] * (len(shape) - 2)], np.float32))
        mode = draw(st.sampled_from(["nearest", "linear"]))
        sizes = [*shape[:2], *(2 * size for size in shape[2:])]
        return graph.add(op, [name, "", scales], sizes, mode=mode)
    if op == "Pad":
        pads = [0, 1] * len(shape)
        grown = [size + pads[axis] + pads[axis + len(shape)] for axis, size in enumerate(shape)]
        return graph.add(op, [name, graph.constant(np.array(pads))], grown)
    if op == "Clip":
        bounds = [graph.constant(np.float32(bound)) for bound in draw(st.sampled_from([(0, 6), (-1, 1)]))]
        return graph.add(op, [name, *bounds], shape)
    unary = op if op in ("LeakyRelu", "Sigmoid", "Tanh", "Softmax", "HardSwish", "Exp", "Relu") else "Relu"
    return graph.add(unary, [name], shape)


@st.composite
def quantized_graphs(draw) -> Quantized:
    """Moves, an operator, a clamp now and then, a pair, moves."""
    kind = draw(st.sampled_from(KINDS))
    graph = Graph({"x0": draw(st.sampled_from(SHAPES))}, {"x0": FLOAT})
    params = _params(draw, kind, 8.0)
    name = _rounded(graph, "x0", params)
    for _ in range(draw(st.integers(0, 2))):
        name = _rounded(graph, _move(draw, graph, name), params)
    name = _compute(draw, graph, name, params)
    if draw(st.integers(0, 3)) == 0:
        name = graph.add("Relu", [name], graph.shapes[name])
    fixed = {"Sigmoid": Params(np.int8, 1 / 256, -128), "Tanh": Params(np.int8, 1 / 128, 0)}
    last = graph.nodes[-1].op_type
    wide = fixed[last] if last in fixed and kind == np.int8 and draw(st.booleans()) else _params(draw, kind, 10.0)
    name = _rounded(graph, name, wide)
    for _ in range(draw(st.integers(0, 1))):
        name = _rounded(graph, _move(draw, graph, name), wide)
    model = graph.model([])
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(name, FLOAT, graph.shapes[name]))
    model.opset_import[0].version = 21
    model.ir_version = 10
    return Quantized(onnx.shape_inference.infer_shapes(model), wide.scale)
