"""What is written in other operators before a model is quantized: these have integer kernels, or weights of integers.

before:  y = Einsum (x, w)
after:   y = MatMul (x, w), with transposes and reshapes
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.errors import Unsupported
from convertkit.onnx.edit import producer
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.lp_norms import write_lp_normalization
from convertkit.targets.forms.unrolled_cells import write_cells
from convertkit.targets.forms.writing import Place, dims, write_each

_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Inputs of recurrent layers that their states begin with; source: ONNX operators."""
_SUMS = frozenset({"Einsum", "ReduceL1", "ReduceL2", "ReduceSumSquare"})


def einsums_as_products(model: ir.Model) -> None:
    """Every Einsum as transposes, matrix products and sums, in place, as it is lowered in any case."""
    expand_functions(model, lambda node: node.op_type != "Einsum")


def written_for_integers(model: ir.Model) -> None:
    """For ``--full-integer``: norms, too, and the steps of LSTM, GRU and RNN, where their number is known."""
    _leave_out_zero_states(model)
    write_each(model, {"LpNormalization": write_lp_normalization, "Sum": _write_sum})
    expand_functions(model, lambda node: node.op_type not in _SUMS)
    try:
        write_cells(model, "TFLite with integers alone", free_batch=True)
    except Unsupported as refusal:
        ways = ("--int8 without --full-integer", *refusal.ways_out)
        raise Unsupported(refusal.reason, subject=refusal.subject, location=refusal.location, ways_out=ways) from None


def _leave_out_zero_states(model: ir.Model) -> None:
    """Start states that are zeros, as many as the batch: a recurrent layer without one begins with them."""
    for node in model.graph:
        if node.op_type not in _STATES or node.domain:
            continue
        for place in _STATES[node.op_type]:
            if place < len(node.inputs) and _is_zeros(node.inputs[place]):
                node.replace_input_with(place, None)
    common.RemoveUnusedNodesPass()(model)


def _is_zeros(value: ir.Value | None) -> bool:
    node = producer(value, "ConstantOfShape")
    filling = None if node is None else node.attributes.get("value")
    return node is not None and (filling is None or not filling.as_tensor().numpy().any())


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
