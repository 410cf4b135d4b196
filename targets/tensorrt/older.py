"""``--tensorrt-release 8.6``: the file as TensorRT 8.6 reads it, which JetPack 6.0 and older servers have.

Its networks have no types of their own (``build_engine.py`` sets them layer by layer), no int64 and none of the types
below 8 bits.  Sources: docs/operators.md and the importers of onnx-tensorrt 8.6.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx import defs

from convertkit.errors import UsageError
from convertkit.onnx.opset import at_opset
from convertkit.target_options import flag
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.tensorrt.parser import parsers

RELEASE = "8.6"
PRECISIONS = ("float32", "fp16", "int8")
_WAY_OUT = f"leave {flag('tensorrt', 'release')} out: TensorRT 10 reads newer opsets"


def check_precision(precision: str) -> None:
    """Raise ``UsageError`` for a precision that TensorRT 8.6 does not have."""
    if precision not in PRECISIONS:
        known = ", ".join(f"--{each}" for each in PRECISIONS[1:])
        raise UsageError(
            f"--{precision} with {flag('tensorrt', 'release')} {RELEASE}: that release has float32, {known}"
        )


def as_older(model: ir.Model) -> ir.Model:
    """``model`` at the newest opset that TensorRT 8.6 reads, operators that it lacks written out.

    ``Unsupported`` where an operator has no exact counterpart there.
    """
    expand_functions(model, _is_read)
    return at_opset(model, parsers().opsets[RELEASE], _WAY_OUT)


def _is_read(node: ir.Node) -> bool:
    """Whether TensorRT 8.6 and its newest opset have the operator."""
    known = parsers()
    return known.since.get(node.op_type) == RELEASE and defs.has(node.op_type, known.opsets[RELEASE], "")
