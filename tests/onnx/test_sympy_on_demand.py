"""onnx_ir does without sympy until it computes with named sizes, and then has the real one."""

import subprocess
import sys

PROGRAM = """
import sys
import convertkit.onnx.canonical
import onnx_ir as ir
assert "sympy" not in sys.modules
batch = ir.SymbolicDim("N")
assert ir.Shape(["N", 3])[0] == batch and "sympy" not in sys.modules
assert str((batch * 2 + 1).evaluate({"N": 3})) == "7"
assert ir.SymbolicDim("max(N, 4)").evaluate({"N": 9}) == 9
import sympy
assert sys.modules["sympy"].__file__ and isinstance(sympy.Symbol("x"), sympy.Expr)
assert ir.SymbolicDim(sympy.Symbol("x")).value == "x"
"""


def test_sympy_waits_until_it_is_needed():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_a_real_sympy_is_left_alone():
    program = "import sympy, sys; import convertkit.onnx.canonical; assert sys.modules['sympy'] is sympy; sympy.Symbol"
    subprocess.run([sys.executable, "-c", program], check=True)
