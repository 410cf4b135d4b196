"""Random small graphs of supported operators: converted, run, and held against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled, numbers

QUIET = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
UNARY = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Abs",
    "Neg",
    "LeakyRelu",
    "HardSwish",
    "Elu",
    "Exp",
    "Softplus",
    "Floor",
    "Identity",
)
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


class Graph:
    """A graph that grows by one node at a time; every value has a known shape of rank 4 or less."""

    def __init__(self, shape):
        self.shapes = {"x": shape}
        self.nodes, self.constants = [], []
        self.start = shape

    def constant(self, array):
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = tuple(shape)

    def model(self):
        used = {name for node in self.nodes for name in node.input}
        outputs = [name for name in self.shapes if name not in used and name != "x"]
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.start)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def grow(draw, graph):
    """Add one node that fits an existing value."""
    name = draw(st.sampled_from(sorted(graph.shapes)))
    shape = graph.shapes[name]
    kinds = ["unary", "binary", "transpose", "reshape", "concat", "softmax", "reduce", "pad", "slice", "matmul"]
    if len(shape) == 4:
        kinds += ["conv", "depthwise", "pool", "global", "conv", "norm"]
    kind = draw(st.sampled_from(kinds))
    seed = draw(st.integers(0, 99))
    if kind == "unary":
        graph.add(draw(st.sampled_from(UNARY)), [name], shape)
    elif kind == "binary":
        same = sorted(other for other, sizes in graph.shapes.items() if sizes == shape)
        axes = [size if draw(st.booleans()) else 1 for size in shape][draw(st.integers(0, len(shape) - 1)) :]
        other = draw(st.sampled_from([*same, None]))
        operand = graph.constant(numbers(*axes, seed=seed)) if other is None else other
        graph.add(draw(st.sampled_from(BINARY)), [name, operand], shape)
    elif kind == "transpose":
        perm = draw(st.permutations(range(len(shape))))
        graph.add("Transpose", [name], [shape[axis] for axis in perm], perm=perm)
    elif kind == "reshape":
        size = int(np.prod(shape))
        new = draw(st.sampled_from([(shape[0], size // shape[0]), (size,), (*shape[:-1], shape[-1], 1), shape[::-1]]))
        if len(new) <= 4:
            graph.add("Reshape", [name, graph.constant(np.array(new))], new)
    elif kind == "concat":
        axis = draw(st.integers(0, len(shape) - 1))
        graph.add("Concat", [name, name], [*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]], axis=axis)
    elif kind == "softmax":
        graph.add("Softmax", [name], shape, axis=draw(st.integers(-1, len(shape) - 1)))
    elif kind == "reduce":
        axis = draw(st.integers(0, len(shape) - 1))
        graph.add(
            draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceSum"])),
            [name, graph.constant(np.array([axis]))],
            [1 if place == axis else size for place, size in enumerate(shape)],
        )
    elif kind == "pad":
        pads = draw(st.lists(st.integers(0, 2), min_size=2 * len(shape), max_size=2 * len(shape)))
        grown = [size + pads[axis] + pads[axis + len(shape)] for axis, size in enumerate(shape)]
        if np.prod(grown) < 4000:
            graph.add("Pad", [name, graph.constant(np.array(pads))], grown)
    elif kind == "slice":
        axis = draw(st.integers(0, len(shape) - 1))
        start = draw(st.integers(0, shape[axis] - 1))
        bounds = [graph.constant(np.array([bound])) for bound in (start, shape[axis], axis)]
        graph.add("Slice", [name, *bounds], [*shape[:axis], shape[axis] - start, *shape[axis + 1 :]])
    elif kind == "matmul" and len(shape) >= 2:
        graph.add("MatMul", [name, graph.constant(numbers(shape[-1], 3, seed=seed))], [*shape[:-1], 3])
    elif kind in ("conv", "depthwise"):
        group = shape[1] if kind == "depthwise" else 1
        out = shape[1] * draw(st.integers(1, 2)) if kind == "depthwise" else draw(st.integers(1, 5))
        stride, pad = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        kernel = min(draw(st.integers(1, 3)), shape[2] + 2 * pad, shape[3] + 2 * pad)
        weight = graph.constant(numbers(out, shape[1] // group, kernel, kernel, seed=seed))
        sizes = [(size + 2 * pad - kernel) // stride + 1 for size in shape[2:]]
        graph.add("Conv", [name, weight], [shape[0], out, *sizes], group=group, strides=[stride] * 2, pads=[pad] * 4)
    elif kind == "pool":
        kernel = min(2, *shape[2:])
        sizes = [(size - kernel) // 2 + 1 for size in shape[2:]]
        op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
        graph.add(op, [name], [*shape[:2], *sizes], kernel_shape=[kernel] * 2, strides=[2, 2])
    elif kind == "global":
        graph.add("GlobalAveragePool", [name], [*shape[:2], 1, 1])
    elif kind == "norm":
        parts = [graph.constant(np.abs(numbers(shape[1], seed=seed + place)) + 0.5) for place in range(4)]
        graph.add("BatchNormalization", [name, *parts], shape)


@st.composite
def graphs(draw) -> onnx.ModelProto:
    """One to eight nodes behind an image, H = W = C now and then."""
    shape = draw(st.sampled_from([(1, 3, 5, 4), (2, 4, 4, 4), (1, 1, 6, 6), (2, 3, 4)]))
    graph = Graph(shape)
    for _ in range(draw(st.integers(1, 8))):
        grow(draw, graph)
    if not graph.nodes:
        graph.add("Relu", ["x"], shape)
    return graph.model()


def check(model: onnx.ModelProto, layout: str) -> None:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": numbers(*shape, seed=seed)} for seed in range(2)]
    compiled(model, Options(input_layout=layout)).agree(*feeds, tolerance=2e-5)


@settings(QUIET, max_examples=200)
@given(graphs(), st.sampled_from(["auto", "nchw", "nhwc"]))
def test_random_graphs(model, layout):
    check(model, layout)


@pytest.mark.nightly
@settings(QUIET, max_examples=2000)
@given(graphs(), st.sampled_from(["auto", "nchw", "nhwc"]))
def test_many_random_graphs(model, layout):
    check(model, layout)
