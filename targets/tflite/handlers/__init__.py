"""What TFLite can do with ONNX operators: one registry for each family, composed here."""

from __future__ import annotations

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.handlers.convolutions import convolutions
from convertkit.targets.tflite.handlers.elementwise import elementwise
from convertkit.targets.tflite.handlers.matmul import matmul
from convertkit.targets.tflite.handlers.moves import moves
from convertkit.targets.tflite.handlers.pooling import pooling
from convertkit.targets.tflite.handlers.quantize import quantize
from convertkit.targets.tflite.handlers.reductions import reductions

TFLITE: Registry = convolutions | pooling | elementwise | moves | matmul | reductions | quantize
"""Every operator this target lowers."""
