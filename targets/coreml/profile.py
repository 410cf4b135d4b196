"""What Core ML's integers take.

``quantize`` and ``dequantize`` around float operations are how an ML program says that activations are integers, and
the Neural Engine of A17 Pro and M4 runs convolutions and products between them in int8.  Weights have one
symmetric scale for each output channel, and become real once, when the model is loaded.  A gather takes no int8, so
that tables of embeddings stay float.  Source: Core ML Tools, "Quantization Overview" and "Performance".
"""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.profile import MOVED, WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions

_PLAIN = OpRule()

_INT8: Mapping[str, OpRule] = {
    **WEIGHTED,
    "MatMul.dynamic": OpRule(data=(0, 1)),
    "Add": _PLAIN,
    "Mul": _PLAIN,
    "AveragePool": OpRule(data=(0,)),
    "GlobalAveragePool": OpRule(data=(0,)),
    **MOVED,
    "Resize": OpRule(data=(0,)),
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``; float16 is what the program computes in."""
    if options.precision == "w8":
        return QuantProfile("coreml w8", "int8", False, WEIGHTED, bias="float32", weight_only=True, integer_rows=False)
    if options.precision == "w4":
        return QuantProfile(
            "coreml w4",
            "int8",
            False,
            WEIGHTED,
            weight="int4",
            weight_range=(-7, 7),
            bias="float32",
            weight_only=True,
            integer_rows=False,
            block=32,
        )
    return QuantProfile(
        "coreml int8", "int8", False, _INT8, half="compute", tables=True, integer_rows=False, tie_free=True
    )
