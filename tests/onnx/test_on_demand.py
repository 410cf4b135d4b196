"""Modules that are put off are real ones for everybody else, and once they are needed."""

import subprocess
import sys

FOLDS = """
import sys
from pathlib import Path
import numpy as np
import onnx_ir as ir
from convertkit.onnx.canonical import canonicalize
x = ir.Value(name="x", shape=ir.Shape([4]), type=ir.TensorType(ir.DataType.FLOAT))
low, high = (ir.node("Constant", [], {"value_floats": [bound] * 4}) for bound in (1.0, 2.0))
total = ir.node("Mul", [low.outputs[0], high.outputs[0]])
last = ir.node("Add", [x, total.outputs[0]])
graph = ir.Graph([x], last.outputs, nodes=[low, high, total, last], opset_imports={"": 18})
last.outputs[0].name = "y"
model = canonicalize(ir.Model(graph, ir_version=10))
assert [node.op_type for node in model.graph] == ["Add"], [node.op_type for node in model.graph]
assert "onnx.reference.ops" in sys.modules
"""


def test_constants_are_computed_as_ever():
    subprocess.run([sys.executable, "-c", FOLDS], check=True)


def test_a_real_module_is_left_alone():
    program = (
        "import onnx.reference as real, sys; from convertkit.onnx import optimizer; "
        "assert sys.modules['onnx.reference'] is real; real.ReferenceEvaluator"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
