"""Import onnx_ir without sympy.

onnx_ir needs sympy to compute with named sizes only, and sympy takes longer to import than all of onnx_ir.
"""

from __future__ import annotations

import importlib
import sys

from convertkit.onnx.on_demand import put_off


def import_onnx_ir() -> None:
    """Import onnx_ir, without sympy where that is not imported yet."""
    if "onnx_ir" in sys.modules:
        return
    with put_off("sympy"):
        importlib.import_module("onnx_ir")
