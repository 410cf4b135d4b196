"""What TensorRT's explicit quantization takes.

TensorRT reads precision from QuantizeLinear/DequantizeLinear: signed 8 bit integers with zero point 0, or 8-bit floats
(E4M3), for activations and weights, int4 for weights alone, scales per tensor for activations and per channel for
weights, biases in float.  It fuses such a pair into the operators below; what has none stays in float, and so does an
Add of a constant: a quantized constant may feed nothing but DequantizeLinear, and TensorRT moves others between.
Integers that are stored are read by DequantizeLinear alone, so that embedding tables stay float.
Kernels write float as well as integers, so pairs stand in front of operators, and none behind those that float reads.
A convolution adds the other branch of a residual as it writes: its own result has no pair.  Sums that a transformer
carries from block to block go to LayerNormalization, which reads float: pairs there would round what all later blocks
see (2.6 dB of a GPT block) and save no product, so that they take ``--full-integer``.
Source: NVIDIA's "Working with Quantized Types", and what the parser of TensorRT-RTX 1.7 accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convertkit.profile import MOVED, WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions
from convertkit.targets.forms.unrolled_cells import write_single_steps
from convertkit.targets.tensorrt.parser import parsers

_SUM = OpRule(constants=False, float_output=True)
_INT8: Mapping[str, OpRule] = {
    **{kind: replace(rule, float_output=True) for kind, rule in WEIGHTED.items()},
    "MatMul.dynamic": OpRule(data=(0, 1), float_output=True),
    "Add.maps": _SUM,
    "AveragePool": OpRule(data=(0,), float_output=True),
    "GlobalAveragePool": OpRule(data=(0,), float_output=True),
    **MOVED,
}

_TILE = 16
"""Rows and columns of a matrix from which integers are faster; ``--full-integer`` takes smaller ones, too."""
_PRODUCTS = {kind: rule for kind, rule in _INT8.items() if kind in WEIGHTED and kind != "ConvTranspose"}
"""What has kernels for E4M3, of weights and of activations; products of two activations stay float32."""


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``.

    Recurrent layers of one step have weights of fewer bits: they are written out before.  In integers and 8-bit floats
    they stay float, as all recurrent layers do: what their states lose adds up from call to call.
    """
    found = _profile(options)
    return found if options.precision in ("int8", "fp8") else replace(found, written_out=write_single_steps)


def _profile(options: ExportOptions) -> QuantProfile:
    if options.precision == "w8":
        return QuantProfile("tensorrt w8", "int8", True, WEIGHTED, bias="float32", weight_only=True, integer_rows=False)
    if options.precision == "w4":
        return QuantProfile(
            "tensorrt w4",
            "int8",
            True,
            WEIGHTED,
            weight="int4",
            weight_range=(-7, 7),
            bias="float32",
            weight_only=True,
            integer_rows=False,
            block=64,
        )
    if options.precision == "bf16":
        lacks = parsers().no_bfloat16
        return QuantProfile("tensorrt bf16", "int8", True, {}, bias="float32", half="compute", lacks=lacks)
    if options.precision == "fp8":
        return QuantProfile("tensorrt fp8", "int8", True, _PRODUCTS, bias="float32")
    return QuantProfile(
        "tensorrt int8",
        "int8",
        True,
        {**_INT8, "Add": _SUM} if options.full_integer else _INT8,
        bias="float32",
        half="compute",
        writes_float=True,
        fused_sums=True,
        tile=0 if options.full_integer else _TILE,
    )
