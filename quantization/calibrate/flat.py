"""Tensors that are only read by functions which are flat on one side, as SiLU is below -5.

Integers for what the function flattens would be wasted: the range may end where it is flat.  That is safe on any data:
beyond its end the function hardly moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.calibrate.histogram import Histogram
from convertkit.quantization.calibrate.ranges import Affine, Range, affine, snr_db

Function = Callable[[Array], Array]

_SHRINKS = np.concatenate([np.linspace(1.0, 0.1, 19), [0.07, 0.05, 0.03, 0.02]])


@dataclass(frozen=True, slots=True)
class Flat:
    """What is computed from a tensor, and at which of its ends all of that is flat."""

    functions: tuple[Function, ...]
    below: bool
    above: bool


def flat_values(graph: ir.Graph) -> Mapping[str, Flat]:
    """Values of the main graph that are only read by functions which are flat somewhere, by name."""
    found = ((value, _flat(value)) for node in graph for value in node.outputs)
    return {str(value.name): flat for value, flat in found if flat is not None}


def narrowed(span: Range, histogram: Histogram, flat: Flat, dtype: str, symmetric: bool) -> Range:
    """``span`` with its flat ends moved to where the least error is left behind the functions."""
    low, high = span
    losses = [_Losses(histogram, function) for function in flat.functions]

    def best(spans: Sequence[Range]) -> Range:
        parameters = [affine(each, dtype, symmetric) for each in spans]
        return spans[int(np.sum([each.of(parameters) for each in losses], axis=0).argmin())]

    if flat.below:
        low = best([(low * shrink, high) for shrink in _SHRINKS])[0]
    if flat.above:
        high = best([(low, high * shrink) for shrink in _SHRINKS])[1]
    return low, high


class _Losses:
    """Squared errors that a round trip leaves behind a function, by running sums over the bins.

    Inside the range a step's error is spread evenly and multiplied by the slope; outside, all becomes the end's value.
    """

    def __init__(self, histogram: Histogram, function: Function) -> None:
        places = np.flatnonzero(histogram.counts)
        self._values, counts = histogram.centres[places], histogram.counts[places]
        self._function = function
        width = 2.0 ** (histogram.exponent + 1) / len(histogram.counts)
        exact = function(self._values)
        slopes = (function(self._values + width / 2) - function(self._values - width / 2)) / width
        self._sums = np.zeros((4, len(places) + 1))
        np.cumsum([counts, counts * exact, counts * exact**2, counts * slopes**2], axis=1, out=self._sums[:, 1:])

    def of(self, candidates: Sequence[Affine]) -> Array:
        """The sum of squared errors for each of the candidates."""
        low, high = np.array([each.range for each in candidates]).T
        scales = np.array([each.scale for each in candidates])
        first = np.searchsorted(self._values, low - scales / 2, "left")
        last = np.searchsorted(self._values, high + scales / 2, "right")
        sums = self._sums
        inside = (sums[3, last] - sums[3, first]) * scales**2 / 12
        ends = ((sums[:, first], self._function(low)), (sums[:, -1:] - sums[:, last], self._function(high)))
        return np.asarray(inside + sum(part[2] - 2 * end * part[1] + end**2 * part[0] for part, end in ends))


def shown_db(histogram: Histogram, parameters: Affine, flat: Flat | None) -> float:
    """SNR of a tensor's round trip in dB, where it shows: behind the functions that read it, if there are any."""
    if flat is None:
        return snr_db(histogram, parameters)
    places = np.flatnonzero(histogram.counts)
    values, counts = histogram.centres[places], histogram.counts[places]
    rounded = parameters.round_trip(values)
    pairs = [(function(values), function(rounded)) for function in flat.functions]
    signal = sum(float(np.square(true) @ counts) for true, _ in pairs)
    error = sum(float(np.square(true - got) @ counts) for true, got in pairs)
    return float(10 * np.log10(signal / error)) if signal > 0 and error > 0 else float("inf")


def _flat(value: ir.Value) -> Flat | None:
    if value.dtype != ir.DataType.FLOAT or value.is_graph_output():
        return None
    functions: list[Function] = []
    below = above = True
    gates = {}
    for reader in dict.fromkeys(use.node for use in value.uses()):
        made = _unary(reader)
        if made is None:
            continue
        function, flat_below, flat_above = made
        gates[reader.outputs[0]] = function
        alone = all(_is_gated(use.node, value, reader.outputs[0]) for use in reader.outputs[0].uses())
        if alone and not reader.outputs[0].is_graph_output():
            continue
        functions.append(function)
        below, above = below and flat_below, above and flat_above
    for reader in dict.fromkeys(use.node for use in value.uses()):
        gate = next((each for each in reader.inputs if each is not None and each in gates), None)
        if gate is not None and _is_gated(reader, value, gate):
            functions.append(_product(gates[gate]))
            above = False
        elif reader.outputs[0] not in gates:
            return None
    return Flat(tuple(functions), below, above) if functions and (below or above) else None


def _is_gated(node: ir.Node, value: ir.Value, gate: ir.Value) -> bool:
    """Whether a node multiplies a value with its own gate; a gate tends to 0 faster than the value falls."""
    producer = gate.producer()
    gated = node.op_type == "Mul" and not node.domain and set(node.inputs) == {value, gate}
    return gated and producer is not None and producer.op_type in _GATES


def _product(gate: Function) -> Function:
    return lambda values: np.asarray(values * gate(values))


def _unary(node: ir.Node) -> tuple[Function, bool, bool] | None:
    """What a node computes from its only input, and whether that is flat below and above."""
    if node.domain or node.op_type not in _FUNCTIONS or len(node.outputs) != 1:
        return None
    return _FUNCTIONS[node.op_type](node)


def _sigmoid(values: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))


def _softplus(values: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, values))


def _hard_sigmoid(node: ir.Node) -> tuple[Function, bool, bool]:
    alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    return lambda values: np.clip(alpha * values + beta, 0.0, 1.0), alpha > 0, alpha > 0


def _elu(node: ir.Node) -> tuple[Function, bool, bool]:
    alpha = node.attributes.get_float("alpha", 1.0)
    return lambda values: np.where(values > 0, values, alpha * np.expm1(np.minimum(values, 0.0))), True, False


def _gelu(node: ir.Node) -> tuple[Function, bool, bool]:
    # The approximation by tanh differs from the exact function by 5e-4 at most: nothing beside a step.
    return (
        lambda values: 0.5 * values * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values**3))),
        True,
        False,
    )


_GATES = frozenset({"Sigmoid", "HardSigmoid"})
_FUNCTIONS: Mapping[str, Callable[[ir.Node], tuple[Function, bool, bool]]] = {
    "Sigmoid": lambda node: (_sigmoid, True, True),
    "HardSigmoid": _hard_sigmoid,
    "Tanh": lambda node: (np.tanh, True, True),
    "HardSwish": lambda node: (lambda values: values * np.clip(values / 6 + 0.5, 0.0, 1.0), True, False),
    "Elu": _elu,
    "Gelu": _gelu,
    "Softplus": lambda node: (_softplus, True, False),
    "Mish": lambda node: (lambda values: values * np.tanh(_softplus(values)), True, False),
}
