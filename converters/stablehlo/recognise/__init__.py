"""Compositions that frameworks write out, put back into the one ONNX operator they are.

Every recogniser matches operators, constants, axes and shapes exactly, and leaves alone what differs.
"""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.converters.stablehlo.recognise.erf import recognise_erf
from convertkit.converters.stablehlo.recognise.gelu import recognise_gelu
from convertkit.converters.stablehlo.recognise.softmax import recognise_softmax

_RECOGNISERS = (recognise_erf, recognise_gelu, recognise_softmax)


def recognise(model: ir.Model) -> ir.Model:
    """Apply every recogniser to the model and its subgraphs, in place."""
    for recogniser in _RECOGNISERS:
        for node in list(model.graph.all_nodes()):
            recogniser(node)
    common.RemoveUnusedNodesPass()(model)
    return model
