"""What TFLite's integer kernels take, as the TFLite 8-bit quantization specification says it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from convertkit.profile import WEIGHTED, FixedOutput, NarrowCosts, OpCost, OpRule, QuantProfile, narrow_costs
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.convolution_tiles import convolution_tiles

_COSTS = Path(__file__).with_name("costs.toml")
_INT4 = Path(__file__).with_name("int4.toml")
_DYNAMIC = frozenset({"Gemm", "MatMul"})
_LOOKUP = frozenset({"Gelu", "Gelu.part"})
"""What XNNPACK makes one look-up of, where it stands between DEQUANTIZE and QUANTIZE."""

_LEAST_GAIN = 0.1
"""Of the time by the table, which is the mean of two machines and off by some percent."""

_PLAIN = OpRule()
_MOVES = OpRule(data=(0,), same_scale=True)
_SAME = OpRule(same_scale=True)

# A depthwise convolution with a large window has no fast integer kernel, and its weights are few.
_WEIGHTED = {kind: rule for kind, rule in WEIGHTED.items() if kind != "Conv.depthwise_large"}

_COMMON: Mapping[str, OpRule] = {
    **WEIGHTED,
    "MatMul.dynamic": OpRule(data=(0, 1)),
    "Add": _PLAIN,
    "Sub": _PLAIN,
    "Mul": _PLAIN,
    "LeakyRelu": _PLAIN,
    "PRelu": OpRule({1: 0}, per_tensor=True, data=(0,)),
    "Relu": _PLAIN,
    "Clip": OpRule(data=(0,)),
    "Abs": _PLAIN,
    "HardSwish": _PLAIN,
    "ReduceMean": OpRule(data=(0,)),
    "ReduceSum": OpRule(data=(0,)),
    "ReduceMax": _MOVES,
    "ReduceMin": _MOVES,
    "GlobalAveragePool": OpRule(data=(0,)),
    "Max": _SAME,
    "Min": _SAME,
    "AveragePool": _MOVES,
    "MaxPool": _MOVES,
    "GlobalMaxPool": _MOVES,
    "Concat": _SAME,
    "Pad": _MOVES,
    "Reshape": _MOVES,
    "Flatten": _MOVES,
    "Squeeze": _MOVES,
    "Unsqueeze": _MOVES,
    "Transpose": _MOVES,
    "Slice": _MOVES,
    "Split": _MOVES,
    "Gather": _MOVES,
    "Expand": _MOVES,
    "Tile": _MOVES,
    "Resize": _MOVES,
    "DepthToSpace": _MOVES,
    "SpaceToDepth": _MOVES,
    "Identity": _MOVES,
}

_INT8: Mapping[str, OpRule] = {
    **_COMMON,
    "Sigmoid": OpRule(fixed_output=FixedOutput(1 / 256, -128)),
    "Softmax": OpRule(fixed_output=FixedOutput(1 / 256, -128)),
    "Tanh": OpRule(fixed_output=FixedOutput(1 / 128, 0)),
    "LogSoftmax": OpRule(fixed_output=FixedOutput(16 / 256, 127)),
}

# Their kernels want one scale for input and output, where a quarter or a sixteenth falls on ties, which each runtime
# rounds in its own way: in float, as fast, with a scale of its own the result is the same everywhere.
_AVERAGES: Mapping[str, OpRule] = {"Resize.interpolated": OpRule(data=(0,)), "AveragePool": OpRule(data=(0,))}

# No kernel takes integers; between them, the graph says what its numbers are.
_REAL: Mapping[str, OpRule] = {"HardSigmoid": _PLAIN}

# int16 kernels exist for fewer operators; pads and gathers move bytes whatever they mean.
_INT16: Mapping[str, OpRule] = {
    **{name: rule for name, rule in _COMMON.items() if name not in ("Abs", "HardSwish", "PRelu")},
    "Sigmoid": OpRule(fixed_output=FixedOutput(1 / 32768, 0)),
    "Softmax": OpRule(fixed_output=FixedOutput(1 / 32768, 0)),
    "Tanh": OpRule(fixed_output=FixedOutput(1 / 32768, 0)),
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    if options.precision == "int16x8":
        return QuantProfile("tflite int16x8", "int16", True, _INT16, bias="int64")
    if options.precision in ("w8", "w4"):
        return _of_weights(options.precision)
    beside = not options.full_integer
    rules = {**_INT8, **_AVERAGES, **_REAL} if beside else _INT8
    return QuantProfile(
        "tflite int8",
        "int8",
        False,
        rules,
        costs=_costs(),
        tables=beside,
        recurrent=beside,
        dynamic=_DYNAMIC if beside else frozenset(),
        lookup=_LOOKUP if beside else frozenset(),
        tie_free=True,
        keeps_float=True,
        least_gain=_LEAST_GAIN,
        tiles=convolution_tiles(),
    )


def _of_weights(precision: str) -> QuantProfile:
    """Integers for weights alone; where a product quantizes what it reads, that is part of its cost."""
    plain = QuantProfile(
        f"tflite {precision}",
        "int8",
        False,
        _WEIGHTED,
        costs=_costs(),
        weight_only=True,
        recurrent=True,
        dynamic=_DYNAMIC,
        tiles=convolution_tiles(),
    )
    if precision == "w8":
        return plain
    return replace(plain, weight="int4", weight_range=(-7, 7), share=1 / 6.5, narrow=int4_costs())


@cache
def int4_costs() -> NarrowCosts:
    """The committed table of 4-bit weights."""
    return narrow_costs(_INT4)


@cache
def _costs() -> Mapping[str, OpCost]:
    """The committed table; every operator costs a call besides."""
    table = tomllib.loads(_COSTS.read_text())
    rows, call, near = table["ns_per_unit"], table["call_ns"], table["near_elements"]
    return {
        kind: OpCost(
            row["float32"],
            row["int8"],
            row.get("float32_call", call),
            row.get("int8_call", call),
            row.get("float32_element", 0.0),
            row.get("int8_element", 0.0),
            near=row.get("near_elements", near) if "float32_near" in row else 0.0,
            float32_near=row.get("float32_near", 0.0),
            integer_near=row.get("int8_near", 0.0),
        )
        for kind, row in rows.items()
    }
