"""Programs that were quantized before they came: how far ONNX Runtime may be from torch on them."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.stage import Tolerance

_INTEGERS = Tolerance(
    "a tie, or a float32 sum beside one, rounds to either integer: single steps that depth widens",
    lsb=1,
    snr_db=20,
    lossy=True,
)


def judged(model: ir.Model, otherwise: Tolerance) -> Tolerance:
    """The tolerance of a model that rounds to integers, ``otherwise`` that of one that does not."""
    return _INTEGERS if any(node.op_type == "QuantizeLinear" for node in model.graph.all_nodes()) else otherwise
