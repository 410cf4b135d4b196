"""ONNX → ONNX passes that leave only what handlers can lower one node at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from convertkit.recipe import Layout, MeasuredDevice
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.costs.tables import tables
from convertkit.targets.tflite.devices import decided_for
from convertkit.targets.tflite.passes.affine import fold_factors_behind, fold_norms_ahead
from convertkit.targets.tflite.passes.borders import integer_interface
from convertkit.targets.tflite.passes.edits import drop_identities
from convertkit.targets.tflite.passes.flatten import absorb_flatten
from convertkit.targets.tflite.passes.fold import fold_quantized
from convertkit.targets.tflite.passes.fuse import fold_batch_norm, fuse_activations, fuse_bias
from convertkit.targets.tflite.passes.fused_lstm import fuse_lstm
from convertkit.targets.tflite.passes.hybrid import fold_hybrid
from convertkit.targets.tflite.passes.integer_readers import ask_integers
from convertkit.targets.tflite.passes.layout import channels_last_layout
from convertkit.targets.tflite.passes.moved_integers import move_integers
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.passes.patterns import fuse_gelu, fuse_transposed_products
from convertkit.targets.tflite.passes.pixels import dequantize_bytes
from convertkit.targets.tflite.passes.plain_rounding import round_in_floats
from convertkit.targets.tflite.passes.qdq import mark_quantization
from convertkit.targets.tflite.passes.repeated import drop_repeated_rounding
from convertkit.targets.tflite.passes.tabulate import tabulate, tabulate_functions


@dataclass(frozen=True, slots=True)
class Options:
    """What the passes need to know of the export."""

    input_layout: Layout = "auto"
    full_integer: bool = False
    precision: str = "float32"
    io_dtype: str = "float32"
    device: tuple[str, ...] = ()
    measured: MeasuredDevice | None = None


@dataclass(frozen=True, slots=True)
class InterfaceChange:
    """Inputs and outputs whose layout the passes changed: ``artifact = source.transpose(perm)``."""

    perms: dict[str, tuple[int, ...]] = field(default_factory=dict)


def prepare(model: ir.Model, options: Options) -> InterfaceChange:
    """Bring ``model`` and the bodies in it into the form that is lowered, in place."""
    opset = model.graph.opset_imports.get("", 1)
    perms = _prepare_graph(Part(model.graph), options, options.input_layout, opset)
    integer_interface(Part(model.graph), options.io_dtype)
    dequantize_bytes(Part(model.graph))  # after all that computes in integers of its own
    for body in list(model.graph.subgraphs()):
        _prepare_graph(Part(body), options, "nchw", opset)  # what enters and leaves a body is as the source has it
    for node in model.graph.all_nodes():
        if node.domain == "" and node.op_type in ("If", "Loop", "Scan"):
            node.domain = OWN
    return InterfaceChange(perms)


def _prepare_graph(part: Part, options: Options, layout: Layout, opset: int) -> dict[str, tuple[int, ...]]:
    mark_quantization(part)  # before everything: unsigned bytes become signed ones, parameters leave the graph
    ask_integers(part)
    fuse_lstm(part)  # before anything rewrites the cell
    fuse_gelu(part)
    fold_batch_norm(part)  # before biases: it leaves one
    fuse_bias(part)
    fuse_activations(part)
    fold_norms_ahead(part)  # after biases: dense layers have theirs
    fuse_transposed_products(part)
    perms = channels_last_layout(part, layout)
    drop_identities(part)  # transposes that vanished
    fold_factors_behind(part)  # after layout: a transpose may have stood between
    absorb_flatten(part)  # after layout, which leaves a transpose in front of a flatten
    move_integers(part)  # after layout, whose transposes these are
    fold_quantized(part, full_integer=options.full_integer)  # after layout: a QDQ group is not cut by transposes
    if options.full_integer:
        tabulate(part, opset)
        tabulate_functions(part, opset)
    drop_repeated_rounding(part)  # after folding: a pair inside of a QDQ group is part of it
    costs = tables(decided_for(options.device, options.precision), options.measured).kernel_costs
    fold_hybrid(part, costs)  # what is left with integer weights has float activations
    round_in_floats(part)  # last: what the graph rounds is told from other floats by its DequantizeLinear
    return perms
