"""Integers that OpenVINO 2026.4's CPU plugin does not hold: refused, put right, or told.

The plugin computes int64 and uint64 in 32 bits, and divides, compares, multiplies matrices of and adds up integers in
float32, which holds 24 bits.  Sizes of tensors are taken to be small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from convertkit.onnx.intervals import Interval, inside
from convertkit.targets.forms.words import WIDE, Words
from convertkit.targets.forms.writing import Place, refusal

_WORDS: Final = frozenset({ir.DataType.INT32, ir.DataType.INT64})
_EXACT: Interval = (-(2.0**24), 2.0**24)
"""What float32 holds of integers."""
_IN_FLOAT = frozenset(
    {
        *("Div", "Mod", "Pow", "MatMul", "Gemm", "Einsum", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
        *("Clip", "Relu", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
        *("ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
    }
)


def hold_integers(model: ir.Model) -> tuple[str, ...]:
    """Rewrite in place what has an exact form; what a user has to know of integers that the data decides.

    ``Unsupported`` names a node whose integers do not fit whatever the model is given.
    """
    judge = _Judge()
    for node in tuple(model.graph.all_nodes()):
        judge.look(node)
    return judge.notes


class _Judge(Words):
    def __init__(self) -> None:
        super().__init__("OpenVINO", "OpenVINO's CPU plugin")
        self._told: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._told:
            return super().notes
        first, *others = self._told
        more = f" and {len(others)} more" if others else ""
        note = (
            f"{first}{more}: OpenVINO computes these integers in float32, so they are right from "
            f"{_EXACT[0]:.0f} to {_EXACT[1]:.0f} alone"
        )
        return (*super().notes, note)

    def noted(self, node: ir.Node, name: str) -> None:
        """An operator that is computed in float32."""
        if node.op_type not in _IN_FLOAT or node.domain:
            return
        operands = [value for value in node.inputs if value is not None and value.dtype in WIDE]
        results = [value for value in node.outputs if value.dtype in WIDE]
        found = [self.ranges.of(value) for value in (*operands, *results)]
        if not operands or all(inside(each.interval, _EXACT) for each in found):
            return
        form = _FORMS.get(node.op_type)
        if form is not None and all(value.dtype in _WORDS for value in operands):
            known = found[-1]
            made = form(Place(node))
            self.ranges.assume(made, known)
            return
        if not any(each.of_data for each in found):
            ends = [end for each in found for end in each.interval]
            raise refusal(
                node, f"integers from {min(ends):.0f} to {max(ends):.0f}: OpenVINO computes it in float32 of 24 bits"
            )
        self._told[name] = None


def _is_equal(place: Place, a: ir.Value, b: ir.Value, like: ir.Value) -> ir.Value:
    """Differences begin again at the other end of int32, so that they are 0 for equal numbers alone."""
    zero = place.op("CastLike", place.constant(np.int64(0)), a, like=a, shape=())
    apart = place.op("Sub", a, b, dtype=a.dtype, shape=_sizes(like))
    return place.op("Equal", apart, zero, dtype=ir.DataType.BOOL, shape=_sizes(like))


def _is_less(place: Place, a: ir.Value, b: ir.Value, like: ir.Value) -> ir.Value:
    """``a < b``: the greater one is not ``a``."""
    greater = place.op("Max", a, b, dtype=a.dtype, shape=_sizes(like))
    return place.op("Not", _is_equal(place, greater, a, like))


def _sizes(value: ir.Value) -> tuple[int | ir.SymbolicDim, ...]:
    return () if value.shape is None else tuple(value.shape)


def _equal(place: Place) -> ir.Value:
    a, b = _operands(place)
    made = _is_equal(place, a, b, place.node.outputs[0])
    place.becomes(made)
    return made


def _ordered(place: Place) -> ir.Value:
    """``a > b`` is ``b < a``, and ``a >= b`` is not ``a < b``."""
    a, b = _operands(place)
    kind = place.node.op_type
    pair = (a, b) if kind in ("Less", "GreaterOrEqual") else (b, a)
    less = _is_less(place, *pair, place.node.outputs[0])
    made = place.op("Not", less) if kind.endswith("OrEqual") else less
    place.becomes(made)
    return made


def _operands(place: Place) -> tuple[ir.Value, ir.Value]:
    a, b = place.node.inputs[:2]
    assert a is not None
    assert b is not None
    return a, b


def _clip(place: Place) -> ir.Value:
    x, low, high = (*place.node.inputs, None, None)[:3]
    assert x is not None
    made = place.op("Identity", x)
    for end, first in ((low, True), (high, False)):  # Max and Min together become what is computed in float32
        if end is not None:
            beyond = _is_less(place, made, end, x) if first else _is_less(place, end, made, x)
            made = place.op("Where", beyond, end, made, like=x)
    place.becomes(made)
    return made


def _relu(place: Place) -> ir.Value:
    x = place.node.inputs[0]
    assert x is not None
    zero = place.op("CastLike", place.constant(np.int64(0)), x, like=x, shape=())
    negative = place.op("Less", x, zero, dtype=ir.DataType.BOOL)
    made = place.op("Where", negative, zero, x, like=x)
    place.becomes(made)
    return made


_FORMS: Mapping[str, Callable[[Place], ir.Value]] = {
    "Clip": _clip,
    "Equal": _equal,
    "Greater": _ordered,
    "GreaterOrEqual": _ordered,
    "Less": _ordered,
    "LessOrEqual": _ordered,
    "Relu": _relu,
}
"""Forms whose operators the plugin computes in integers."""
