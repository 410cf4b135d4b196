"""Compositions that sources of every kind write out, put back into the one ONNX operator that they are.

Each recogniser asks for operators, constants, axes and shapes exactly and leaves alone what differs.  What only one
kind of source writes is recognised by its converter.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.onnx.recognise.centred import recognise_centred
from convertkit.onnx.recognise.deviation import recognise_deviation
from convertkit.onnx.recognise.equal_rows import recognise_norm_of_equals
from convertkit.onnx.recognise.gelu import can_have_gelu, recognise_gelu, with_gelu
from convertkit.onnx.recognise.levels import recognise_level
from convertkit.onnx.recognise.norm import recognise_layer_norm
from convertkit.onnx.recognise.pooling import recognise_average_pool
from convertkit.onnx.recognise.rows import recognise_rows
from convertkit.onnx.recognise.unbiased import recognise_unbiased
from convertkit.onnx.recognise.variance import recognise_variance
from convertkit.onnx.recognise.whole_order import recognise_all_in_order, recognise_turned

Recogniser = Callable[[ir.Node], None]
_RECOGNISERS: tuple[Recogniser, ...] = (
    recognise_layer_norm,
    recognise_centred,  # of what is not a normalisation over the last axes
    recognise_variance,  # of what is not a normalisation over the last axes
    recognise_deviation,  # also of such a variance
    recognise_unbiased,
    recognise_norm_of_equals,  # also of such a layer normalisation
    recognise_average_pool,
    recognise_level,
    recognise_rows,
    recognise_all_in_order,
    recognise_turned,
)


def recognise_operators(model: ir.Model) -> None:
    """Apply every recogniser to the model and its subgraphs, in place; shapes have been inferred, constants lifted."""
    for recogniser in (*_RECOGNISERS, recognise_gelu) if can_have_gelu(model) else _RECOGNISERS:
        # Backwards, what is composed of others is seen before its parts.
        for node in reversed(list(model.graph.all_nodes())):
            if node.graph is not None:  # not taken out by the ones before
                recogniser(node)
    with_gelu(model)
    common.RemoveUnusedNodesPass()(model)
