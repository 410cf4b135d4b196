"""Compositions that frameworks write out, put back into the one ONNX operator they are.

Every recogniser matches operators, constants, axes and shapes exactly, and leaves alone what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.converters.stablehlo.recognise.affine import recognise_convolution_affine
from convertkit.converters.stablehlo.recognise.elementary import recognise_mean, recognise_sigmoid
from convertkit.converters.stablehlo.recognise.erf import recognise_erf
from convertkit.converters.stablehlo.recognise.gelu import recognise_erfc
from convertkit.converters.stablehlo.recognise.products import recognise_gemm, recognise_swapped_product
from convertkit.converters.stablehlo.recognise.recurrent import recognise_recurrent
from convertkit.converters.stablehlo.recognise.softmax import recognise_log_softmax, recognise_softmax
from convertkit.converters.stablehlo.recognise.softplus import recognise_softplus
from convertkit.converters.stablehlo.recognise.transposes import sink_transposes
from convertkit.onnx.recognise.gelu import can_have_gelu, recognise_gelu, with_gelu
from convertkit.onnx.recognise.norm import recognise_layer_norm
from convertkit.onnx.sigmoids import write_out_sigmoids

_FUNCTIONS = (
    recognise_erf,
    recognise_erfc,
    recognise_softmax,
    recognise_log_softmax,
    recognise_softplus,
    recognise_sigmoid,
    recognise_mean,  # layer norms are made of means
    recognise_layer_norm,
    recognise_recurrent,
)
_LINEAR = (
    recognise_swapped_product,
    recognise_gemm,
    recognise_convolution_affine,  # behind the transposes, which stand between a convolution and its bias
)


def recognise(model: ir.Model) -> ir.Model:
    """Apply every recogniser to the model and its subgraphs, in place."""
    _apply(model, _FUNCTIONS, backwards=True)
    if can_have_gelu(model):
        _apply(model, (recognise_gelu,), backwards=True)
    with_gelu(model)
    for graph in model.graphs():
        sink_transposes(graph)
    _apply(model, _LINEAR)
    write_out_sigmoids(model)
    common.RemoveUnusedNodesPass()(model)
    return model


def _apply(model: ir.Model, recognisers: Sequence[Callable[[ir.Node], None]], backwards: bool = False) -> None:
    """Backwards, what is composed of others is seen before its parts: a normalisation with its bias."""
    for recogniser in recognisers:
        nodes = list(model.graph.all_nodes())
        for node in reversed(nodes) if backwards else nodes:
            if node.graph is not None:  # not taken out by the ones before
                recogniser(node)
