"""Gradients written into a graph: what differences of the graph's own outputs say."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph.gradient import GRADIENT, SEED, with_gradients
from convertkit.quantization.graph.replay import open_session
from convertkit.quantization.search.influence import influence
from tests.quantization.models import model_of, small_cnn

STEP = 2e-3


def f(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(0, 1, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A node that reads ``a``, of this shape, and constants; the output's shape follows."""

    op: str
    shape: tuple[int, ...]
    made: tuple[int, ...]
    constants: tuple[np.ndarray, ...] = ()
    attributes: dict = field(default_factory=dict)
    reads: tuple[str, ...] = ("a",)


SPACE = (1, 4, 7, 6)
CASES = [
    *(Case(op, (1, 5), (1, 5)) for op in (
        "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Gelu", "Erf", "Elu", "Softplus", "Mish",
        "Neg", "Exp",
    )),
    Case("Clip", (1, 5), (1, 5), (np.float32(0), np.float32(1))),
    Case("Conv", SPACE, (1, 6, 4, 6), (f(6, 4, 3, 2), f(6)), {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
    Case("Conv", SPACE, (1, 4, 3, 3), (f(4, 1, 3, 3),), {"group": 4, "strides": [2, 2], "pads": [0, 1, 1, 0]}),
    Case("Conv", SPACE, (1, 8, 3, 6), (f(8, 2, 3, 3),), {"group": 2, "dilations": [2, 1], "pads": [0, 1, 0, 1]}),
    Case("ConvTranspose", (1, 4, 3, 3), (1, 6, 7, 7), (f(4, 3, 3, 3),), {"group": 2, "strides": [2, 2]}),
    Case("ConvTranspose", (1, 4, 3, 3), (1, 3, 6, 6), (f(4, 3, 3, 3),),
         {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    Case("AveragePool", SPACE, (1, 4, 3, 2), (), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    Case("AveragePool", SPACE, (1, 4, 4, 3), (),
         {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 0], "count_include_pad": 1}),
    Case("MaxPool", SPACE, (1, 4, 5, 4), (), {"kernel_shape": [3, 3]}),
    Case("MaxPool", SPACE, (1, 4, 4, 3), (), {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 0]}),
    Case("GlobalAveragePool", SPACE, (1, 4, 1, 1)),
    Case("ReduceMean", SPACE, (1, 4), (np.array([2, -1]),), {"keepdims": 0}),
    Case("ReduceSum", SPACE, (1, 1, 7, 6), (np.array([1]),)),
    Case("Gemm", (2, 5), (2, 3), (f(3, 5), f(3)), {"transB": 1, "alpha": 0.5}),
    Case("Gemm", (2, 5), (2, 3), (f(5, 3),)),
    Case("MatMul", (1, 2, 5), (1, 2, 3), (f(5, 3),)),
    Case("Gather", (3, 2, 5), (2, 5), (np.array(-2),)),
    Case("Gather", (2, 4, 5), (2, 2, 2, 5), (np.array([[3, 0], [3, -1]]),), {"axis": -2}),
    Case("MatMul", (1, 2, 4, 4), (1, 2, 4, 4), reads=("a", "a")),
    Case("Add", (1, 3, 4), (1, 3, 4), (f(4),)),
    Case("Sub", (1, 3, 1), (1, 3, 4), (f(3, 4),)),
    Case("Sub", (2, 3), (2, 3), reads=("c", "a"), constants=(f(2, 3),)),
    Case("Mul", (3, 4), (3, 4), reads=("a", "a")),
    Case("Mul", (4, 1), (2, 4, 3), (f(2, 4, 3),)),
    Case("Div", (3, 4), (3, 4), (1 + np.abs(f(4)),)),
    Case("Reshape", (2, 6), (3, 4), (np.array([3, 4]),)),
    Case("Flatten", SPACE, (1, 168)),
    Case("Squeeze", (1, 3, 1), (1, 3), (np.array([2]),)),
    Case("Unsqueeze", (1, 3), (1, 1, 3), (np.array([1]),)),
    Case("Transpose", (2, 3, 4), (4, 2, 3), (), {"perm": [2, 0, 1]}),
    Case("Concat", (2, 3), (2, 8), (f(2, 2),), {"axis": 1}, ("a", "c", "a")),
    Case("Slice", (2, 5), (2, 2), (np.array([1]), np.array([-2]), np.array([1]))),
    Case("Slice", (3, 5), (2, 5), (np.array([0]), np.array([2]))),
    Case("Div", (2, 3), (2, 3), reads=("c", "a"), constants=(f(2, 3),)),
    Case("Div", (3, 1), (3, 4), reads=("c", "a"), constants=(f(3, 4),)),
    Case("Sqrt", (2, 3), (2, 3)),
    Case("Reciprocal", (2, 3), (2, 3)),
    Case("Pow", (2, 3), (2, 3), (np.float32(2),)),
    Case("Max", (1, 5), (3, 5), (f(3, 5),)),
    Case("Min", (2, 5), (2, 5), (np.float32(0.4),)),
    Case("ReduceMax", (2, 5, 3), (2, 3), (np.array([-2]),), {"keepdims": 0}),
    Case("ReduceMin", (3, 4), (1, 1)),
    Case("GlobalMaxPool", SPACE, (1, 4, 1, 1)),
    Case("Where", (1, 4), (2, 4), reads=("c", "c1", "a"), constants=(f(2, 4) > 0, f(2, 4))),
    Case("Where", (2, 4), (2, 4), reads=("c", "a", "c1"), constants=(f(2, 4) > 0, f(2, 4))),
    Case("Expand", (2, 1), (3, 2, 4), (np.array([3, 1, 4]),)),
    Case("Pad", (2, 3), (3, 6), (np.array([1, 0, 0, 3]),)),
    Case("LogSoftmax", (2, 4), (2, 4)),
    Case("Softmax", (2, 4), (2, 4)),
    Case("Resize", (1, 2, 3, 4), (1, 2, 6, 8), (f(0), np.float32([1, 1, 2, 2])),
         {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    Case("Resize", (1, 2, 3, 4), (1, 2, 5, 9), (f(0), f(0), np.array([1, 2, 5, 9])), {"mode": "linear"}),
    Case("Resize", (1, 2, 4, 4), (1, 2, 6, 3), (f(0), f(0), np.array([1, 2, 6, 3])),
         {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}),
    Case("LayerNormalization", (2, 3, 4), (2, 3, 4), (f(4), f(4)), {"epsilon": 0.01}),
]  # fmt: skip


def model(case: Case, start: str) -> ir.Model:
    names = [f"c{index or ''}" for index in range(len(case.constants))]
    constants = dict(zip(names, case.constants, strict=True))
    reads = case.reads if len(case.reads) > 1 else (*case.reads, *names)
    nodes = [helper.make_node(case.op, list(reads), ["y"], "tested", **case.attributes)]
    if start != "a":
        nodes.insert(0, helper.make_node("Abs", [start], ["a"], "first"))
    shapes = {start: list(case.shape)}
    return canonicalize(ir.from_proto(model_of(nodes, constants, shapes, {"y": list(case.made)})))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}{case.shape}")
def test_a_rule_says_what_differences_say(case: Case) -> None:
    at, seed = np.abs(f(*case.shape)) + 0.05, f(*case.made)
    graph = model(case, "x")
    assert with_gradients(graph, ["y"], ["a"]) == ("a",)
    (got,) = open_session(graph).run([GRADIENT + "a"], {"x": at, SEED + "y": seed})
    plain = open_session(model(case, "a"))

    def value(array: np.ndarray) -> float:
        return float((plain.run(None, {"a": array.astype(np.float32)})[0].astype(np.float64) * seed).sum())

    expected = np.zeros(case.shape)
    for place in np.ndindex(*case.shape):
        change = np.zeros(case.shape)
        change[place] = STEP
        expected[place] = (value(at + change) - value(at - change)) / (2 * STEP)
    assert np.abs(expected).max() > 0.01
    assert np.allclose(got, expected, atol=2e-2 * np.abs(expected).max())


def test_outputs_of_a_split_that_nothing_reads_have_no_gradient() -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "first"),
        helper.make_node("Split", ["a", "sizes"], ["b", "c"], "split", axis=1),
        helper.make_node("Neg", ["b"], ["y"], "last"),
    ]
    graph = canonicalize(ir.from_proto(model_of(nodes, {"sizes": np.array([2, 1])}, {"x": [1, 3]}, {"y": [1, 2]})))
    assert with_gradients(graph, ["y"], ["a"]) == ("a",)
    (got,) = open_session(graph).run([GRADIENT + "a"], {"x": f(1, 3), SEED + "y": np.array([[2, 3]], np.float32)})
    assert np.allclose(got, [[-2, -3, 0]], atol=1e-4)


def test_half_a_gradient_is_none() -> None:
    """Beside the sum there is a way that has no rule."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "first"),
        helper.make_node("CumSum", ["a", "axis"], ["b"], "odd"),
        helper.make_node("Add", ["a", "b"], ["c"], "sum"),
        helper.make_node("Abs", ["c"], ["y"], "last"),
    ]
    graph = canonicalize(ir.from_proto(model_of(nodes, {"axis": np.array(1)}, {"x": [1, 3]}, {"y": [1, 3]})))
    assert with_gradients(graph, ["y"], ["a", "c"]) == ("c",)


@pytest.mark.parametrize("attributes", [{"axes": [3, 2]}, {}], ids=["some-axes", "all"])
def test_a_resize_of_some_axes_has_no_rule(attributes: dict[str, list[int]]) -> None:
    sizes = np.array([6, 8] if attributes else [1, 2, 8, 6])
    case = Case("Resize", (1, 2, 4, 3), (1, 2, 8, 6), (f(0), f(0), sizes), attributes)
    assert with_gradients(model(case, "x"), ["y"], ["a"]) == (() if attributes else ("a",))


def test_a_computed_bias_has_no_gradient() -> None:
    """The rule of Gemm gives that of its first input alone: what the bias is made of has half of one."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "first"),
        helper.make_node("Neg", ["a"], ["b"], "bias"),
        helper.make_node("Gemm", ["a", "w", "b"], ["c"], "product"),
        helper.make_node("Abs", ["c"], ["y"], "last"),
    ]
    graph = canonicalize(ir.from_proto(model_of(nodes, {"w": f(3, 3)}, {"x": [2, 3]}, {"y": [2, 3]})))
    assert with_gradients(graph, ["y"], ["a", "c"]) == ("c",)


def test_what_a_relu_cuts_off_does_not_count() -> None:
    graph = canonicalize(ir.from_proto(small_cnn()))
    convs = [node for node in graph.graph if node.op_type == "Conv"]
    names = [str(node.outputs[0].name) for node in convs]
    feeds = [{"x": array} for array in np.random.default_rng(0).normal(0, 1, (4, 1, 3, 12, 12)).astype(np.float32)]
    (first, *_) = found = list(influence(graph, names, feeds, {}, 0))
    assert len(found) == 4
    assert set(first) == set(names)
    copy = graph.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    copy.graph.outputs.append(made[names[0]])
    values = open_session(copy).run([names[0]], feeds[0])[0]
    assert (first[names[0]][values < -0.01] == 0).all()
    assert (first[names[0]][values > 0.01] > 0).mean() > 0.25, "the pool behind it takes one of four"


def test_what_is_divided_by_nothing_does_not_count() -> None:
    """The second sample is silent: its quotient has no slope, and nothing of it may reach a weight."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Relu", ["a"], ["b"], "above"),
        helper.make_node("ReduceSum", ["b", "axis"], ["c"], "sum"),
        helper.make_node("Div", ["b", "c"], ["d"], "share"),
        helper.make_node("Greater", ["c", "zero"], ["any"], "any"),
        helper.make_node("Where", ["any", "d", "zero"], ["y"], "chosen"),
    ]
    constants = {"w": f(3, 4), "axis": np.array([1]), "zero": np.zeros(1, np.float32)}
    graph = canonicalize(ir.from_proto(model_of(nodes, constants, {"x": [1, 3]}, {"y": [1, 4]})))
    feeds = [{"x": np.abs(f(1, 3))}, {"x": np.zeros((1, 3), np.float32)}]
    found = [each["a"] for each in influence(graph, ["a"], feeds, {}, 0)]
    assert (found[0] > 0).any()
    assert all(np.isfinite(each).all() for each in found)
