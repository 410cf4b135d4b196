"""What is written in other operators for Qualcomm's NPU before anything is measured."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.onnx.edit import add_constant, inserted, replaced
from convertkit.onnx.recognise.mean_square import MeanSquare, normalised_by_mean_square
from convertkit.targets.forms.functions import expand_functions
from convertkit.targets.forms.unrolled_cells import write_cells

_IN_PARTS = frozenset(
    {
        "Celu",
        "GroupNormalization",
        "MeanVarianceNormalization",
        "Mish",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "RotaryEmbedding",
        "Shrink",
        "Softsign",
    }
)
"""Operators that the NPU has no kernel for, and all of whose parts it has."""


def write_out(model: ir.Model) -> None:
    """Recurrent layers step by step, root-mean-square norms as layer norms, functions by their bodies; in place."""
    write_cells(model, "Qualcomm's NPU")
    for node in reversed(tuple(model.graph)):  # the whole of a norm is seen before its parts, which nothing reads then
        is_read = any(value.uses() or value.is_graph_output() for value in node.outputs)
        if is_read and (found := normalised_by_mean_square(node)) is not None:
            _mirrored(model.graph, node, found)
    RemoveUnusedNodesPass()(model)
    expand_functions(model, lambda node: node.op_type not in _IN_PARTS)


def _mirrored(graph: ir.Graph, node: ir.Node, norm: MeanSquare) -> None:
    """``LayerNormalization`` of a value and its negative, whose mean is 0, and of that the first half.

    before:  y = x · rsqrt (mean (x²) + ε) · scale
    after:   y = Slice (LayerNormalization (Concat (x, -x), [scale, scale], 0, ε))
    """
    x, old, width = norm.x, node.outputs[0], norm.scale.shape[-1]
    assert x.shape is not None, "a norm is over known sizes"
    wide = ir.Shape([*list(x.shape)[:-1], 2 * width])
    negative = inserted(node, "Neg", [x], x).outputs[0]
    both = inserted(node, "Concat", [x, negative], x, {"axis": -1}, wide).outputs[0]
    twice = np.concatenate([norm.scale, norm.scale], axis=-1)
    stored = [add_constant(graph, f"{old.name}_{name}", each) for name, each in (("scale", twice), ("bias", 0 * twice))]
    attributes = {"axis": -twice.ndim, "epsilon": norm.epsilon}
    whole = inserted(node, "LayerNormalization", [both, *stored], both, attributes).outputs[0]
    limits = {"start": 0, "end": width, "last": -1}
    places = [add_constant(graph, f"{old.name}_{name}", np.array([each])) for name, each in limits.items()]
    replaced(node, "Slice", [whole, *places])
