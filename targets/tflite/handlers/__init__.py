"""What TFLite can do with ONNX operators: one registry for each family, composed here."""

from __future__ import annotations

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.handlers.activations import activations
from convertkit.targets.tflite.handlers.blocks import blocks
from convertkit.targets.tflite.handlers.comparisons import comparisons
from convertkit.targets.tflite.handlers.control import control
from convertkit.targets.tflite.handlers.convolutions import convolutions
from convertkit.targets.tflite.handlers.distinct import distinct
from convertkit.targets.tflite.handlers.division import division
from convertkit.targets.tflite.handlers.elementwise import elementwise
from convertkit.targets.tflite.handlers.fused import fused
from convertkit.targets.tflite.handlers.fused_lstm import fused_lstm
from convertkit.targets.tflite.handlers.grids import grids
from convertkit.targets.tflite.handlers.indexing import indexing
from convertkit.targets.tflite.handlers.integers import integers
from convertkit.targets.tflite.handlers.matmul import matmul
from convertkit.targets.tflite.handlers.moves import moves
from convertkit.targets.tflite.handlers.norms import norms
from convertkit.targets.tflite.handlers.padding import padding
from convertkit.targets.tflite.handlers.pooling import pooling
from convertkit.targets.tflite.handlers.quantization import quantization
from convertkit.targets.tflite.handlers.quantize import quantize
from convertkit.targets.tflite.handlers.recurrent import recurrent
from convertkit.targets.tflite.handlers.reductions import reductions
from convertkit.targets.tflite.handlers.regions import regions
from convertkit.targets.tflite.handlers.resize import resize
from convertkit.targets.tflite.handlers.scatter import scatter
from convertkit.targets.tflite.handlers.shapes import shapes
from convertkit.targets.tflite.handlers.signal import signal
from convertkit.targets.tflite.handlers.suppression import suppression
from convertkit.targets.tflite.handlers.transposed import transposed
from convertkit.targets.tflite.handlers.trigonometry import trigonometry
from convertkit.targets.tflite.handlers.windows import windows

TFLITE = Registry(
    (
        activations,
        blocks,
        comparisons,
        convolutions,
        distinct,
        division,
        elementwise,
        integers,
        matmul,
        moves,
        control,
        fused,
        fused_lstm,
        norms,
        recurrent,
        pooling,
        quantize,
        reductions,
        indexing,
        padding,
        scatter,
        shapes,
        resize,
        grids,
        regions,
        quantization,
        windows,
        signal,
        suppression,
        transposed,
        trigonometry,
    )
)
"""Every operator this target lowers."""
