"""What Core ML's 8 bit computation takes.

A pair becomes MIL's ``quantize`` and ``dequantize`` (iOS 17) with a scalar scale, an integer weight
``constexpr_affine_dequantize``; biases stay float.  Integers pay where the same operators get them from Apple's
own quantizer, symmetric like its default.
Source: coremltools 9, ``insert_prefix_quantize_dequantize_pair`` and ``OpLinearQuantizerConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.profile import WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions

_INT8: Mapping[str, OpRule] = {
    **{kind: rule for kind, rule in WEIGHTED.items() if kind != "ConvTranspose"},
    "Add": OpRule(constants=False),
    "AveragePool": OpRule(data=(0,)),
    "MaxPool": OpRule(data=(0,), same_scale=True),
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    if options.precision == "w8":
        return QuantProfile("coreml w8", "int8", True, WEIGHTED, bias="float32", weight_only=True)
    if options.precision == "w4":  # constexpr_blockwise_shift_scale, iOS 18
        return QuantProfile(
            "coreml w4", "int8", True, WEIGHTED, weight="int4", weight_range=(-7, 7), bias="float32",
            weight_only=True, block=32,
        )  # fmt: skip
    return QuantProfile("coreml int8", "int8", True, _INT8, bias="float32", half="compute")
