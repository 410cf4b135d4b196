"""onnxscript's optimizer, imported without ONNX's reference evaluator.

It asks that for operators on constants.  Its 200 modules, one for each operator, take as long to import as all of
onnxscript, and many models have no constants left to compute.
"""

from __future__ import annotations

import onnx  # noqa: F401 - the package of what is put off

from convertkit.onnx.on_demand import put_off

with put_off("onnx.reference", "onnx.reference.ops"):
    from onnxscript.optimizer import optimize_ir

__all__ = ["optimize_ir"]
