"""Sums over windows and their division become average pooling; a count that is not exactly that stays."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.onnx.canonical import canonicalize

COUNTS = np.array([[4, 4, 2], [4, 4, 2], [2, 2, 1]], np.float32)[None, None]
PADDED = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1], "count_include_pad": 1}
PLAIN = {"kernel_shape": [2, 3], "strides": [1, 1]}


def model(pool: dict, factor: object, divisor: object, views: bool = False, size: object = 5) -> onnx.ModelProto:
    """``Div(Mul(AveragePool(x), factor), divisor)``; a divisor that is text is a node's result over ones."""
    nodes = [
        helper.make_node("AveragePool", ["x"], ["mean"], **pool),
        helper.make_node("Mul", ["mean", "factor"], ["sum"]),
    ]
    constants = {"factor": np.array(factor, np.float32), "axes": np.array([0], np.int64)}
    if views:
        nodes.append(helper.make_node("Unsqueeze", ["sum", "axes"], ["seen"]))
    if isinstance(divisor, str):
        constants["one"] = np.ones((1, 1, 1, 1), np.float32)
        nodes += [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Expand", ["one", "shape"], ["ones"]),
            helper.make_node("AveragePool", ["ones"], ["part"], **{**pool, **({"strides": [1, 1]} if divisor else {})}),
            helper.make_node("Mul", ["part", "factor"], ["divisor"]),
        ]
    else:
        constants["divisor"] = np.array(divisor, np.float32)
    nodes.append(helper.make_node("Div", ["seen" if views else "sum", "divisor"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def compared(proto: onnx.ModelProto) -> list[str]:
    """The canonical graph's operators; what it computes is compared, infinities and NaN included."""
    made = canonicalize(ir.from_proto(proto))
    x = np.random.default_rng(0).standard_normal((3, 2, 5, 5)).astype(np.float32)
    x[1, 0, 0, 0] = np.inf
    both = [
        ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for each in (proto, ir.to_proto(made))
    ]
    np.testing.assert_allclose(both[1], both[0], rtol=5e-7)
    return [node.op_type for node in made.graph if node.op_type != "Identity"]


@pytest.mark.parametrize(
    ("case", "operators", "padding_counts"),
    [
        ((PLAIN, 6, 6), ["AveragePool"], 1),
        ((PADDED, 4, 4), ["AveragePool"], 1),
        ((PADDED, 4, COUNTS), ["AveragePool"], 0),
        ((PADDED, 4, ""), ["AveragePool"], 0),
        ((PLAIN, 6, 6, True), ["AveragePool", "Unsqueeze"], 0),
    ],
    ids=["all elements", "padding counts", "padding does not", "counted by the same pooling", "views in between"],
)
def test_it_is_one_operator(case, operators, padding_counts):
    proto = model(*case)
    assert compared(proto) == operators
    made = canonicalize(ir.from_proto(proto))
    assert made.graph[0].attributes.get_int("count_include_pad", 0) == padding_counts


def test_sizes_that_only_the_running_model_knows():
    proto = model(PADDED, 4, "", size="S")
    assert compared(proto)[-1] == "AveragePool"


OFF = float(np.nextafter(np.float32(6), np.float32(7)))


@pytest.mark.parametrize(
    "case",
    [
        (PLAIN, OFF, 6),
        (PLAIN, 6, OFF),
        (PLAIN, 6, OFF, True),
        (PLAIN, 6, 5),
        (PLAIN, 6, np.full((1, 2, 1, 1), 6, np.float32) * [[[[1]], [[2]]]]),
        (PADDED, 4, np.where(COUNTS == 1, 1 + 1e-6, COUNTS)),
        (PADDED, 4, np.roll(COUNTS, 1, 3)),
        ({**PADDED, "count_include_pad": 0}, 4, 4),
        ({**PADDED, "pads": [0, 0, 0, 0], "ceil_mode": 1, "count_include_pad": 1}, 4, 4),
    ],
    ids=[
        "factor",
        "divisor",
        "divisor behind views",
        "other number",
        "by channel",
        "a count",
        "moved",
        "uncounted",
        "ceil",
    ],
)
def test_what_counts_otherwise_stays(case):
    assert "Div" in compared(model(*case))
