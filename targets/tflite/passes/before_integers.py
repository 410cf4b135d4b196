"""What is written in other operators before a model is quantized: these have integer kernels, or weights of integers.

before:  y = Einsum (x, w)
after:   y = MatMul (x, w), with transposes and reshapes
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.unrolled_cells import write_cells

_SUMS = frozenset({"Einsum", "LpNormalization", "ReduceL1", "ReduceL2", "ReduceSumSquare", "Sum"})


def einsums_as_products(model: ir.Model) -> None:
    """Every Einsum as transposes, matrix products and sums, in place, as it is lowered in any case."""
    expand_functions(model, lambda node: node.op_type != "Einsum")


def written_for_integers(model: ir.Model) -> None:
    """For ``--full-integer``: norms, too, and the steps of LSTM, GRU and RNN, where their number is known."""
    expand_functions(model, lambda node: node.op_type not in _SUMS)
    try:
        write_cells(model, "TFLite with integers alone", free_batch=True)
    except Unsupported as refusal:
        ways = ("--int8 without --full-integer", *refusal.ways_out)
        raise Unsupported(refusal.reason, subject=refusal.subject, location=refusal.location, ways_out=ways) from None
