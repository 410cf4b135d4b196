"""Shifts and remainders in the forms of runtimes that compute them differently at the ends of their range."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from convertkit.targets.forms.remainders import write_infinite_divisors
from convertkit.targets.forms.shifts import write_long_shifts

INF, NAN = np.inf, np.nan


def model_of(operator, dtype, shapes=((6,), (6,), (6,)), **attributes):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip("xyz", shapes, strict=True)]
    node = helper.make_node(operator, ["x", "y"], ["z"], "node", **attributes)
    graph = helper.make_graph([node], "g", ports[:2], ports[2:])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


def computed(model, *values):
    onnx.checker.check_model(ir.to_proto(model), full_check=False)
    return ReferenceEvaluator(ir.to_proto(model)).run(None, dict(zip("xy", values, strict=True)))[0]


@pytest.mark.parametrize("holds_signed", [False, True])
@pytest.mark.parametrize(("direction", "wanted"), [("RIGHT", [100, 0, 0, 0, 1, 7]), ("LEFT", [144, 0, 0, 0, 0, 7])])
def test_a_shift_by_the_width_or_more_is_zero(direction, wanted, holds_signed):
    model = model_of("BitShift", np.uint8, direction=direction)
    write_long_shifts(model, holds_signed=holds_signed)
    x, counts = np.array([200, 3, 255, 1, 128, 7], np.uint8), np.array([1, 8, 9, 255, 7, 0], np.uint8)
    assert computed(model, x, counts).tolist() == wanted


def test_a_count_that_a_runtime_holds_as_below_zero_reaches_the_width():
    """As a runtime without unsigned integers sees it: the same graph of signed ones."""
    model = model_of("BitShift", np.uint8, direction="LEFT")
    write_long_shifts(model, holds_signed=True)
    for value in (*model.graph.inputs, *model.graph.outputs, *(node.outputs[0] for node in model.graph)):
        if value.dtype == ir.DataType.UINT8:
            value.type = ir.TensorType(ir.DataType.INT8)
    for stored in model.graph.initializers.values():
        stored.const_value = ir.tensor(stored.const_value.numpy().astype(np.int8), name=stored.name)
    x, counts = np.array([1, 3, 5, 1, 2, 7], np.int8), np.array([-1, -128, 8, 1, 0, 127], np.int8)
    model.graph.outputs.append(next(node for node in model.graph if node.op_type == "Min").outputs[0])
    found, shifted_by = ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x, "y": counts})
    assert found.tolist() == [0, 0, 0, 2, 2, 0]
    assert shifted_by.tolist() == [7, 7, 7, 1, 0, 7]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_remainder_by_an_infinite_divisor_is_the_dividend(dtype):
    """The node itself is made to say NaN there, as MNN and IREE do."""
    model = model_of("Mod", dtype, ((2, 6), (6,), (2, 6)), fmod=1)
    write_infinite_divisors(model)
    node = next(each for each in model.graph if each.op_type == "Mod")
    assert sum(each.op_type == "Mod" for each in model.graph) == 1
    node.op_type = "Mul"  # which is neither the dividend nor NaN for finite ones
    del node.attributes["fmod"]
    x = np.array([[3, -3, 0, INF, NAN, 5], [-7, 2, 1, -INF, 0, 4]], dtype)
    y = np.array([INF, -INF, INF, INF, INF, 2], dtype)
    with np.errstate(invalid="ignore"):
        products = x * y
    wanted = np.where(np.isinf(y) & np.isfinite(x), x, products)
    np.testing.assert_array_equal(computed(model, x, y), wanted)


def test_remainders_of_integers_stay_as_they_are():
    model = model_of("Mod", np.int32, fmod=1)
    write_infinite_divisors(model)
    assert [node.op_type for node in model.graph] == ["Mod"]
