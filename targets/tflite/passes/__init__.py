"""ONNX → ONNX passes that leave only what handlers can lower one node at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from convertkit.recipe import Layout
from convertkit.targets.tflite.passes.affine import fold_factors_behind, fold_norms_ahead
from convertkit.targets.tflite.passes.edits import drop_identities
from convertkit.targets.tflite.passes.flatten import absorb_flatten
from convertkit.targets.tflite.passes.fold import fold_quantized
from convertkit.targets.tflite.passes.fuse import fold_batch_norm, fuse_activations, fuse_bias
from convertkit.targets.tflite.passes.hybrid import fold_hybrid
from convertkit.targets.tflite.passes.layout import channels_last_layout
from convertkit.targets.tflite.passes.patterns import fuse_gelu, fuse_transposed_products
from convertkit.targets.tflite.passes.qdq import mark_quantization


@dataclass(frozen=True, slots=True)
class Options:
    """What the passes need to know of the export."""

    input_layout: Layout = "auto"
    full_integer: bool = False
    precision: str = "float32"
    io_dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class InterfaceChange:
    """Inputs and outputs whose layout the passes changed: ``artifact = source.transpose(perm)``."""

    perms: dict[str, tuple[int, ...]] = field(default_factory=dict)


def prepare(model: ir.Model, options: Options) -> InterfaceChange:
    """Bring ``model`` into the form that is lowered, in place."""
    mark_quantization(model)  # before everything: unsigned bytes become signed ones, parameters leave the graph
    fuse_gelu(model)
    fold_batch_norm(model)  # before biases: it leaves one
    fuse_bias(model)
    fuse_activations(model)
    fold_norms_ahead(model)  # after biases: dense layers have theirs
    fuse_transposed_products(model)
    perms = channels_last_layout(model, options.input_layout)
    drop_identities(model)  # transposes that vanished
    fold_factors_behind(model)  # after layout: a transpose may have stood between
    absorb_flatten(model)  # after layout, which leaves a transpose in front of a flatten
    fold_quantized(model, full_integer=options.full_integer)  # after layout: islands are not cut by transposes
    fold_hybrid(model)  # what is left with integer weights has float activations
    return InterfaceChange(perms)
