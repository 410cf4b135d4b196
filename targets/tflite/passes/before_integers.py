"""What is written in other operators before a model is quantized: these have integer kernels, or weights of integers.

before:  y = Einsum (x, w)
after:   y = MatMul (x, w), with transposes and reshapes
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.unrolled_cells import write_cells
from convertkit.targets.forms.writing import Place, dims, write_each

_SUMS = frozenset({"Einsum", "ReduceL1", "ReduceL2", "ReduceSumSquare"})


def einsums_as_products(model: ir.Model) -> None:
    """Every Einsum as transposes, matrix products and sums, in place, as it is lowered in any case."""
    expand_functions(model, lambda node: node.op_type != "Einsum")


def written_for_integers(model: ir.Model) -> None:
    """For ``--full-integer``: norms, too, and the steps of LSTM, GRU and RNN, where their number is known."""
    write_each(model, {"LpNormalization": write_lp_normalization, "Sum": _write_sum})
    expand_functions(model, lambda node: node.op_type not in _SUMS)
    try:
        write_cells(model, "TFLite with integers alone", free_batch=True)
    except Unsupported as refusal:
        ways = ("--int8 without --full-integer", *refusal.ways_out)
        raise Unsupported(refusal.reason, subject=refusal.subject, location=refusal.location, ways_out=ways) from None


def _write_sum(node: ir.Node) -> None:
    """A Sum as Adds, beginning with an operand of the result's sizes; where none is, it stays."""
    result = node.outputs[0]
    operands = [value for value in node.inputs if value is not None]
    whole = [value for value in operands if dims(value) is not None and dims(value) == dims(result)]
    if len(operands) < 2 or not whole:
        return
    place, total = Place(node), whole[0]
    operands.remove(total)
    for each in operands:
        total = place.op("Add", total, each, like=result)
    place.becomes(total)
