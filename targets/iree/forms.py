"""Operators that IREE 3.13 computes differently or does not import, in forms that it computes as ONNX says."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.remainders import write_infinite_divisors
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.unrolled_cells import write_cells

_BODIES = frozenset({"AffineGrid", "Attention", "ConvInteger"})
"""What the importer lacks, and ONNX or we give a body of operators that it has."""


def write_exact_forms(model: ir.Model) -> None:
    """Rewrite in place."""
    expand_functions(model, lambda node: node.op_type not in _BODIES)
    write_cells(model, "IREE", ("GRU", "RNN"))  # it imports LSTM
    write_long_shifts(model)
    write_infinite_divisors(model)
