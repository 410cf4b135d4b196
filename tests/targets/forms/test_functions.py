"""Operators as the functions that ONNX defines for them: what is changed before that."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from convertkit.targets.forms.functions import expand_functions


def _attention(dtype: ir.DataType, precision: ir.DataType) -> ir.Model:
    """Attention over two heads of three places, whose Softmax is asked for in ``precision``."""
    given = [ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape([1, 2, 3, 4])) for name in ("q", "k", "v")]
    node = ir.node("Attention", given, {"softmax_precision": precision.value}, name="attention")
    node.outputs[0].name, node.outputs[0].type = "y", ir.TensorType(dtype)
    graph = ir.Graph(given, node.outputs, nodes=[node], opset_imports={"": 23}, name="g")
    return ir.Model(graph, ir_version=11)


@pytest.mark.parametrize(
    ("dtype", "precision", "wanted"),
    [
        (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT),
        (ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.FLOAT),
        (ir.DataType.DOUBLE, ir.DataType.DOUBLE, ir.DataType.DOUBLE),
        (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.FLOAT16),
    ],
)
def test_a_softmax_is_as_wide_as_float32_at_most_between_floats(dtype, precision, wanted):
    model = _attention(dtype, precision)
    assert expand_functions(model, lambda node: node.op_type != "Attention")
    (before,) = (node for node in model.graph if node.op_type == "Softmax")
    cast = before.inputs[0].producer()
    found = ir.DataType(cast.attributes["to"].as_int()) if cast.op_type == "Cast" else dtype
    assert found == wanted


def test_an_operator_without_inputs_is_left_to_the_refusal():
    """A list that grows in a loop begins as SequenceEmpty."""
    node = ir.node("SequenceEmpty", [], {}, name="list")
    node.outputs[0].name, node.outputs[0].type = "y", ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))
    model = ir.Model(ir.Graph([], node.outputs, nodes=[node], opset_imports={"": 18}, name="g"), ir_version=8)
    assert not expand_functions(model, lambda node: False)
