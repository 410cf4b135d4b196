"""ONNX operators as MIL: a function for each, whose signature is the operator's schema."""

from __future__ import annotations

from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.handlers.activations import activations
from convertkit.targets.coreml.handlers.arithmetic import arithmetic
from convertkit.targets.coreml.handlers.bits import bits
from convertkit.targets.coreml.handlers.comparisons import comparisons
from convertkit.targets.coreml.handlers.convolutions import convolutions
from convertkit.targets.coreml.handlers.indexing import indexing
from convertkit.targets.coreml.handlers.matmul import matmul
from convertkit.targets.coreml.handlers.norms import norms
from convertkit.targets.coreml.handlers.padding import padding
from convertkit.targets.coreml.handlers.pooling import pooling
from convertkit.targets.coreml.handlers.quantization import quantization
from convertkit.targets.coreml.handlers.recurrent import recurrent
from convertkit.targets.coreml.handlers.reductions import reductions
from convertkit.targets.coreml.handlers.resize import resize
from convertkit.targets.coreml.handlers.scatter import scatter
from convertkit.targets.coreml.handlers.shapes import shapes
from convertkit.targets.coreml.handlers.signal import signal
from convertkit.targets.coreml.handlers.slices import slices
from convertkit.targets.coreml.handlers.suppression import suppression

COREML = Registry(
    [
        activations,
        arithmetic,
        bits,
        comparisons,
        convolutions,
        indexing,
        matmul,
        norms,
        padding,
        pooling,
        quantization,
        recurrent,
        reductions,
        resize,
        scatter,
        shapes,
        signal,
        slices,
        suppression,
    ]
)
"""Every operator that Core ML can express."""
