"""ONNX operators as layers of ncnn."""

from __future__ import annotations

from convertkit.onnx.registry import Registry
from convertkit.targets.ncnn.handlers.activations import activations
from convertkit.targets.ncnn.handlers.arithmetic import arithmetic
from convertkit.targets.ncnn.handlers.convolutions import convolutions
from convertkit.targets.ncnn.handlers.moves import moves
from convertkit.targets.ncnn.handlers.norms import norms
from convertkit.targets.ncnn.handlers.pooling import pooling
from convertkit.targets.ncnn.handlers.products import products
from convertkit.targets.ncnn.handlers.recurrent import recurrent
from convertkit.targets.ncnn.handlers.reductions import reductions
from convertkit.targets.ncnn.handlers.resize import resizing
from convertkit.targets.ncnn.handlers.slices import slices

NCNN = Registry(
    (activations, arithmetic, convolutions, moves, norms, pooling, products, recurrent, reductions, resizing, slices)
)
"""All of them."""
