"""ONNX in the forms that MNN's converter takes, in place; what is computed stays the same."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.places import from_the_start
from convertkit.targets.forms.recurrences import RECURRENT, batch_inside, forwards, refuse_ignored
from convertkit.targets.forms.remainders import write_infinite_divisors
from convertkit.targets.forms.rounded import write_rounding
from convertkit.targets.forms.shifts import write_long_shifts
from convertkit.targets.forms.softplus import write_softplus
from convertkit.targets.forms.stored import make_stored_real
from convertkit.targets.forms.words import Words
from convertkit.targets.forms.writing import refusal
from convertkit.targets.mnn.extremes import KINDS, write_extremes
from convertkit.targets.mnn.shapes import write_shapes

_BODIES = frozenset({"AffineGrid", "Attention", "Gelu", "GroupNormalization", "Mish"})
"""What MNN lacks, approximates or computes wrongly, and ONNX or we give a body of operators that it computes."""

_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})

_PLACES = frozenset({"GatherElements", "GatherND", "ScatterElements"})
"""Operators whose negative places MNN does not count from the end; those of Gather and ScatterND it does."""

_POOLS = frozenset({"MaxPool", "AveragePool"})


def write_forms(model: ir.Model) -> tuple[str, ...]:
    """All of them; what a user has to know of integers that the data decides.

    ``Unsupported`` names a node whose integers MNN does not hold, or of which it would ignore something.
    """
    expand_functions(model, lambda node: node.op_type not in _BODIES)
    for node in tuple(model.graph.all_nodes()):
        if node.op_type in RECURRENT and not node.domain:  # MNN looks at neither attribute
            batch_inside(node)
            forwards(node)
            refuse_ignored(node, "MNN")
        if node.op_type in KINDS and not node.domain:
            write_extremes(node)
    for node in tuple(model.graph.all_nodes()):
        if node.op_type in _POOLS and not node.domain:
            _state_strides(node)
        if node.op_type == "Softplus" and not node.domain:
            write_softplus(node)
        write_shapes(node)
    write_long_shifts(model, holds_signed=True)
    write_infinite_divisors(model)
    make_stored_real(model)
    write_rounding(model)
    for node in model.graph.all_nodes():
        if node.op_type in _QUANTIZERS and not node.domain:
            raise refusal(node, "MNN's converter does not read it, and it is not a pair with stored parameters")
    words = Words("MNN")
    for node in model.graph.all_nodes():
        words.look(node)
    for node in tuple(model.graph.all_nodes()):
        if node.op_type in _PLACES and not node.domain:
            from_the_start(node)
    return words.notes


def _state_strides(node: ir.Node) -> None:
    """Strides that are left to their default of 1 are 0 for MNN, which divides by them; dilations it does not look at.

    Source: ONNX operators, MaxPool-22 and AveragePool-22.
    """
    kernel = node.attributes.get_ints("kernel_shape", ())
    if any(each != 1 for each in node.attributes.get_ints("dilations", ())):
        raise refusal(node, "dilations, which MNN's pooling does not look at")
    if "strides" not in node.attributes:
        node.attributes["strides"] = ir.AttrInt64s("strides", [1] * len(kernel))
