"""What ONNX Runtime's integer kernels take.

ONNX Runtime fuses ``DequantizeLinear → operator → QuantizeLinear`` for the operators below and
executes everything else as it stands, so the profile lists what is fused.  Activations are signed in
the graph that all targets share; what is delivered is mostly unsigned (:mod:`unsigned`).  Where x86 has no
VNNI, ONNX Runtime's u8×s8 kernels cut sums at 16 bits; weights are chosen so that none is cut (``byte_sums``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from convertkit.profile import WEIGHTED, OpCost, OpRule, QuantProfile, cost_rows, cost_table, weighted
from convertkit.recipe import THIS, ExportOptions, MeasuredDevice
from convertkit.targets.forms.devices import machines_of, named
from convertkit.targets.onnxruntime.devices import MACHINES, known

_COSTS = Path(__file__).with_name("costs")
_LEAST_GAIN = 0.3
"""Weights are stored as integers at no cost anyway, and what the table promises is not always seen: of MobileNetV2's
36 % all, of EfficientNet's 27 % nothing, because conversions between layouts cost more in large graphs."""

_PRODUCTS = frozenset({"Gemm", "MatMul"})
"""What ONNX Runtime may multiply with stored integers; other operators get weights that are real once it has loaded."""

_PLAIN = OpRule()
_MOVES = OpRule(data=(0,), same_scale=True)

_INT8: Mapping[str, OpRule] = {
    **{kind: rule for kind, rule in WEIGHTED.items() if kind != "ConvTranspose"},
    # MatMulIntegerToFloat and QGemm write float where no QuantizeLinear follows.
    **{kind: replace(WEIGHTED[kind], float_output=True) for kind in ("Gemm", "MatMul")},
    "MatMul.dynamic": OpRule(data=(0, 1), float_output=True),
    "Add": _PLAIN,
    "Mul": _PLAIN,
    "LeakyRelu": _PLAIN,
    "Sigmoid": _PLAIN,
    "GlobalAveragePool": OpRule(data=(0,)),
    "AveragePool": OpRule(data=(0,)),
    "Concat": _PLAIN,
    "MaxPool": _MOVES,
    "Reshape": _MOVES,
    "Flatten": _MOVES,
    "Squeeze": _MOVES,
    "Unsqueeze": _MOVES,
    "Transpose": _MOVES,
    "Resize": _MOVES,
    "Slice": _MOVES,
    "Split": _MOVES,
    "Gather": _MOVES,
    "Pad": _MOVES,
    "Expand": _MOVES,
    "DepthToSpace": _MOVES,
    "SpaceToDepth": _MOVES,
    "Identity": _MOVES,
}


def profile(options: ExportOptions, *, byte_sums: bool = True) -> QuantProfile:
    """The profile for ``options.precision``; without ``byte_sums`` for processors with VNNI alone.

    Weights that are all that is rounded keep their full range: what is delivered of them is unsigned (:mod:`.stage`).
    """
    if options.precision == "w8":
        return QuantProfile(
            "onnxruntime w8", "int8", False, WEIGHTED, weight_only=True, recurrent=True, dynamic=_PRODUCTS
        )
    if options.precision == "w4":
        return QuantProfile(
            "onnxruntime w4",
            "int8",
            False,
            WEIGHTED,
            weight="int4",
            weight_range=(-7, 7),
            weight_only=True,
            block=32,
            recurrent=True,
            dynamic=_PRODUCTS,
        )
    if options.precision == "int16x8":
        return QuantProfile("onnxruntime int16x8", "int16", True, _INT8, bias="float32")
    measured = options.measured_of("onnxruntime")
    asked = known(options.device, measured)
    machines = tuple(_with_dynamic_products(costs(name, measured)) for name in machines_of(asked))
    return QuantProfile(
        "onnxruntime int8" + (f" for {named(asked)}" if asked else ""),
        "int8",
        False,
        _INT8,
        costs=_with_dynamic_products(costs_for(options.device, measured)),
        machines=machines,
        devices=tuple(machines_of(asked)) if asked else (),
        tables=True,
        recurrent=not options.full_integer,
        least_gain=_LEAST_GAIN,
        byte_sums="along the sum" if byte_sums else None,
    )


def _with_dynamic_products(table: Mapping[str, OpCost]) -> Mapping[str, OpCost]:
    """The table where a MatMul that reads and writes float makes its input integers on the fly (:mod:`dynamic`)."""
    product, rounding = table["MatMul"], table["QuantizeLinear"]
    on_the_fly = replace(
        product,
        float32=product.integer,
        float32_call=product.integer_call + rounding.float32_call,
        float32_element=product.integer_element + rounding.float32 / 2,
    )
    return {**table, "MatMul": on_the_fly}


def costs_for(devices: Sequence[str], measured: MeasuredDevice | None = None) -> Mapping[str, OpCost]:
    """The weighted sum of the tables of ``devices``, which have the same rows; that of servers where none is known."""
    shares = machines_of(known(devices, measured))
    tables = [costs(name, measured) for name in shares]
    return {kind: weighted([table[kind] for table in tables], tuple(shares.values())) for kind in tables[0]}


@cache
def costs(machine: str = MACHINES[0], measured: MeasuredDevice | None = None) -> Mapping[str, OpCost]:
    """The committed cost table of a machine; of the device ``this`` the measured one."""
    if machine == THIS and measured is not None:
        return cost_rows(json.loads(measured.tables)["cost"])
    return cost_table(_COSTS / f"{machine}.toml")
