"""What TFLite's integer kernels take, as the TFLite 8-bit quantization specification says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convertkit.profile import WEIGHTED, FixedOutput, OpRule, QuantProfile
from convertkit.recipe import ExportOptions
from convertkit.targets.forms.devices import named
from convertkit.targets.tflite.costs.tables import int4_costs, tables
from convertkit.targets.tflite.devices import decided_for
from convertkit.targets.tflite.hard_swish import other_results
from convertkit.targets.tflite.passes.before_integers import einsums_as_products, written_for_integers
from convertkit.targets.tflite.passes.tabulate import OF_CONSTANT, UNARY

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

# Beside floats, HardSwish is in integers for phones alone; the result of HardSigmoid has a zero point that is 0.5 away.
_ALL_INTEGERS: Mapping[str, OpRule] = {
    "HardSwish": OpRule(others=other_results),
    "HardSigmoid": OpRule(fixed_output=FixedOutput(1 / 256, -128)),
}

# Their kernels want one scale for input and output, where a quarter or a sixteenth falls on ties, which each runtime
# rounds in its own way: in float, as fast, with a scale of its own the result is the same everywhere.
_AVERAGES: Mapping[str, OpRule] = {"Resize.interpolated": OpRule(data=(0,)), "AveragePool": OpRule(data=(0,))}

# No kernel takes integers; between them, the graph says what its numbers are.
_REAL: Mapping[str, OpRule] = {"HardSigmoid": _PLAIN}

# They are written in several kernels, whose times no cost table has: integers where nothing else is wanted.
_PICKS: Mapping[str, OpRule] = {"GatherElements": _MOVES, "GatherND": _MOVES}

# Where all is integers, a table of 256 results stands for what no kernel computes, and choices are of integers.
_TABLES: Mapping[str, OpRule] = {
    **dict.fromkeys(sorted(UNARY), _PLAIN),
    **{f"{name}.constant": OpRule(data=(0,)) for name in sorted(OF_CONSTANT)},
    "Where": OpRule(data=(1, 2), same_scale=True),
    **_PICKS,
}

# int16 kernels exist for fewer operators; pads and gathers move bytes whatever they mean.
_NOT_IN_WORDS = frozenset({"Abs", "DepthToSpace", "HardSwish", "PRelu", "SpaceToDepth"})
_INT16: Mapping[str, OpRule] = {
    **{name: rule for name, rule in _COMMON.items() if name not in _NOT_IN_WORDS},
    **_PICKS,
    "Sigmoid": OpRule(fixed_output=FixedOutput(1 / 32768, 0)),
    "Softmax": OpRule(fixed_output=FixedOutput(1 / 32768, 0)),
    "Tanh": OpRule(fixed_output=FixedOutput(1 / 32768, 0)),
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    if options.precision == "int16x8":
        return QuantProfile("tflite int16x8", "int16", True, _INT16, bias="int64", written_out=einsums_as_products)
    if options.precision in ("w8", "w4"):
        return _of_weights(options)
    beside = not options.full_integer
    rules = {**_INT8, **_AVERAGES, **_REAL} if beside else {**_TABLES, **_INT8, **_ALL_INTEGERS}
    known = tables(decided_for(options.device, options.precision), options.measured_of("tflite"))
    return QuantProfile(
        _name(options),
        "int8",
        False,
        rules,
        costs=known.costs,
        machines=known.machines,
        devices=known.names if options.device else (),
        tables=beside,
        left_as_halves=beside,
        recurrent=beside,
        dynamic=_DYNAMIC if beside else frozenset(),
        lookup=_LOOKUP if beside else frozenset(),
        tie_free=True,
        keeps_float=True,
        functions=not beside,
        written_out=einsums_as_products if beside else written_for_integers,
        least_gain=_LEAST_GAIN,
        kernel_costs=known.kernel_costs,
    )


def _name(options: ExportOptions) -> str:
    """With the devices that it is for, where the user named them: what is chosen by other tables is another choice."""
    device = named(options.device)
    return f"tflite {options.precision}" + (f" for {device}" if device else "")


def _of_weights(options: ExportOptions) -> QuantProfile:
    """Integers for weights alone; where a product quantizes what it reads, that is part of its cost."""
    known = tables(options.device, options.measured_of("tflite"))
    plain = QuantProfile(
        _name(options),
        "int8",
        False,
        _WEIGHTED,
        costs=known.costs,
        machines=known.machines,
        devices=known.names if options.device else (),
        weight_only=True,
        left_as_halves=True,
        recurrent=True,
        dynamic=_DYNAMIC,
        kernel_costs=known.kernel_costs,
        written_out=einsums_as_products,
    )
    if options.precision == "w8":
        return plain
    return replace(plain, weight="int4", weight_range=(-7, 7), share=1 / 6.5, narrow=int4_costs())
