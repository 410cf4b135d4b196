"""Quantized values as floats, for runtimes without QuantizeLinear: the same numbers as ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.targets.forms.rounded import write_rounding
from convertkit.targets.forms.stored import make_stored_real

RNG = np.random.default_rng(2)
SHAPE = (3, 5, 4)


def pair(second: dict[str, Any] | None = None, **stored: Any) -> onnx.ModelProto:
    """``x`` quantized and back; ``second`` are other parameters of the way back."""
    attributes = {"axis": stored.pop("axis")} if "axis" in stored else {}
    names = list(stored)
    others = {f"{name}2": value for name, value in (second or {}).items()}
    back = [f"{name}2" if f"{name}2" in others else name for name in names]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], "q", **attributes),
        helper.make_node("DequantizeLinear", ["q", *back], ["y"], "d", **attributes),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in {**stored, **others}.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


@pytest.mark.parametrize(
    "stored",
    [
        {"s": np.float32(0.05), "z": np.int8(3)},
        {"s": np.float32(0.05), "z": np.uint8(140)},
        {"s": np.float32(0.0001), "z": np.int16(-200)},
        {"s": np.float32(0.125)},
        {"s": np.float32([0.1, 0.2, 0.3, 0.4, 0.05]), "z": np.int8([0, 1, -3, 5, 7]), "axis": 1},
    ],
    ids=["int8", "uint8", "int16", "without", "channels"],
)
def test_the_numbers_are_those_of_the_pair(stored):
    proto = pair(**stored)
    model = ir.from_proto(proto)
    assert write_rounding(model) == 1
    kinds = [node.op_type for node in model.graph]
    assert kinds == ["Div", "Round", *(["Max", "Min"] if "axis" in stored else ["Clip"]), "Mul"]
    x = (RNG.standard_normal(SHAPE) * 8).astype(np.float32)
    x[0, 0] = [0.0625, -0.0625, 0.1875, 0.3125]  # ties of a step of an eighth
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0]
        for each in (proto, ir.to_proto(model))
    )
    assert np.array_equal(before, after)


def test_other_parameters_on_the_way_back_are_left():
    model = ir.from_proto(pair({"s": np.float32(0.1)}, s=np.float32(0.05), z=np.int8(3)))
    assert write_rounding(model) == 0
    assert [node.op_type for node in model.graph] == ["QuantizeLinear", "DequantizeLinear"]


def test_stored_integers_and_halves_become_real():
    weight, scale = RNG.integers(-127, 128, (4, 6)).astype(np.int8), np.float32([0.1, 0.2, 0.3, 0.4])
    half = RNG.standard_normal((6, 2)).astype(np.float16)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0),
        helper.make_node("Cast", ["h"], ["c"], to=1),
        helper.make_node("MatMul", ["x", "d"], ["m"]),
        helper.make_node("MatMul", ["m", "c"], ["y"]),
    ]
    sizes = {"x": [3, 4], "y": [3, 2]}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in sizes.items()]
    stored = [numpy_helper.from_array(value, name) for name, value in (("w", weight), ("s", scale), ("h", half))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], stored)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    assert make_stored_real(model) == 2
    assert [node.op_type for node in model.graph] == ["MatMul", "MatMul"]
    found = [node.inputs[1].const_value.numpy() for node in model.graph]
    assert np.array_equal(found[0], weight * scale[:, None])
    assert np.array_equal(found[1], half.astype(np.float32))
