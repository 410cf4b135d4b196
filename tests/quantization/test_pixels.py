"""Bytes of an input become integers: scale and zero point where those say the normalisation, else a convolution."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from convertkit.profile import FixedOutput
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.prepare.pixels import pixels_as_integers
from convertkit.recipe import ExportOptions
from convertkit.targets.tensorrt.profile import profile as tensorrt
from convertkit.targets.tflite.profile import profile as tflite

MEANS, STDS = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def first_channels(numbers):
    return np.array(numbers).reshape(-1, 1, 1)


def chain(steps, shape=(2, 3, 5, 4)):
    """A cast of bytes, ``steps`` behind it (operator, operands, attributes), and what keeps the last one inside."""
    nodes = [helper.make_node("Cast", ["x"], ["v"], "cast", to=TensorProto.FLOAT)]
    constants, value = [], "v"
    for place, (operator, operands, attributes) in enumerate(steps):
        names = []
        for number, operand in enumerate(operands):
            names.append(value if operand is None else f"c{place}_{number}")
            if operand is not None:
                constants.append(numpy_helper.from_array(np.asarray(operand, np.float32), names[-1]))
        nodes.append(helper.make_node(operator, names, [f"v{place}"], f"n{place}", **attributes))
        value = f"v{place}"
    nodes.append(helper.make_node("Neg", [value], ["y"], "neg"))
    ends = [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)]
    graph = helper.make_graph(nodes, "g", ends, [helper.make_tensor_value_info("y", 1, [None] * len(shape))], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


ROWS = {
    # steps, operators afterwards, scale and zero point of the bytes
    "shares": ([("Mul", [None, 1 / 255], {})], ["DequantizeLinear"], (1 / 255, 0)),
    "divided": ([("Div", [None, 255], {})], ["DequantizeLinear"], (1 / 255, 0)),
    "whole mean": ([("Sub", [None, 104], {}), ("Mul", [None, 1 / 58], {})], ["DequantizeLinear"], (1 / 58, 104)),
    "mean behind": ([("Mul", [1 / 58, None], {}), ("Add", [-104 / 58, None], {})], ["DequantizeLinear"], (1 / 58, 104)),
    "one for all channels": (
        [("Sub", [None, first_channels([7] * 3)], {}), ("Mul", [None, first_channels([0.5] * 3)], {})],
        ["DequantizeLinear"],
        (0.5, 7),
    ),
    "moved between": (
        [("Transpose", [None], {"perm": [0, 2, 3, 1]}), ("Sub", [None, 3], {})],
        ["DequantizeLinear", "Transpose"],
        (1, 3),
    ),
    "half a step": (
        [("Sub", [None, 127.5], {}), ("Mul", [None, 1 / 127.5], {})],
        ["DequantizeLinear", "Conv"],
        (1, 0),
    ),
    "negative": ([("Mul", [None, -0.5], {})], ["DequantizeLinear", "Conv"], (1, 0)),
    "taken from": ([("Sub", [255, None], {})], ["DequantizeLinear", "Sub"], (1, 0)),
    "mean beyond bytes": ([("Sub", [None, 300], {})], ["DequantizeLinear", "Conv"], (1, 0)),
    "by channel": (
        [("Sub", [None, first_channels(MEANS)], {}), ("Div", [None, first_channels(STDS)], {})],
        ["DequantizeLinear", "Conv"],
        (1, 0),
    ),
    "one, then by channel": (
        [("Mul", [None, 1 / 255], {}), ("Mul", [None, first_channels([2, 3, 4])], {})],
        ["DequantizeLinear", "Conv"],
        (1 / 255, 0),
    ),
    "channels last": (
        [("Transpose", [None], {"perm": [0, 2, 3, 1]}), ("Sub", [None, MEANS], {}), ("Div", [None, STDS], {})],
        ["DequantizeLinear", "Transpose", "Transpose", "Conv", "Transpose"],
        (1, 0),
    ),
    "by row": ([("Mul", [None, np.arange(1, 6).reshape(5, 1)], {})], ["DequantizeLinear", "Mul"], (1, 0)),
}


@pytest.mark.parametrize(("steps", "operators", "parameters"), ROWS.values(), ids=ROWS)
def test_the_numbers_stay(steps, operators, parameters) -> None:
    proto = chain(steps)
    model = ir.from_proto(proto)
    pixels_as_integers(model)
    assert [node.op_type for node in model.graph] == [*operators, "Neg"]
    scale, point = (value.const_value.numpy().item() for value in model.graph[0].inputs[1:])
    np.testing.assert_allclose((scale, point), parameters, rtol=1e-7)
    made = ir.to_proto(model)
    onnx.checker.check_model(made, full_check=True)
    x = {"x": np.random.default_rng(0).integers(0, 256, (2, 3, 5, 4), np.uint8)}
    expected, found = (ort.InferenceSession(each.SerializeToString()).run(None, x)[0] for each in (proto, made))
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * np.abs(expected).max() * 2.0**-24)


def test_what_others_read_stays() -> None:
    """The bare numbers of the bytes are an output, too: only the cast is rewritten."""
    proto = chain([("Sub", [None, 104], {})])
    proto.graph.output.append(helper.make_tensor_value_info("v", 1, (2, 3, 5, 4)))
    model = ir.from_proto(proto)
    pixels_as_integers(model)
    assert [node.op_type for node in model.graph] == ["DequantizeLinear", "Sub", "Neg"]
    assert [value.name for value in model.graph.outputs] == ["y", "v"]


SCALE = np.float32(0.25)
GIVEN = {
    # scale and zero point as the source says them, the profile, what the bytes are as int8
    "both": ((SCALE, np.uint8(7)), tflite, FixedOutput(0.25, -121)),
    "a vector of one": ((SCALE[None], np.uint8([7])), tflite, FixedOutput(0.25, -121)),
    "no zero point": ((SCALE,), tflite, FixedOutput(0.25, -128)),
    "by channel": ((np.full(3, SCALE), np.full(3, 7, np.uint8)), tflite, None),
    "symmetric kernels": ((SCALE, np.uint8(128)), tensorrt, FixedOutput(0.25, 0)),
    "not symmetric": ((SCALE, np.uint8(7)), tensorrt, None),
}


@pytest.mark.parametrize(("given", "profile", "wanted"), GIVEN.values(), ids=GIVEN)
def test_what_a_source_says_of_its_bytes_is_kept_where_kernels_have_it(given, profile, wanted) -> None:
    names = ["s", "z"][: len(given)]
    ends = [helper.make_tensor_value_info(name, kind, [1, 3, 4]) for name, kind in (("x", 2), ("y", 1))]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", *names], ["d"], "bytes", axis=1),
        helper.make_node("Relu", ["d"], ["y"], "relu"),
    ]
    stored = [numpy_helper.from_array(np.asarray(each), name) for name, each in zip(names, given, strict=True)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    unit, _ = find_units(model.graph, profile(ExportOptions(source="x", precision="int8")))
    assert (unit.rule and unit.rule.fixed_output) == wanted
