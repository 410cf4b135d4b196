"""LSTM, GRU and plain recurrent cells in the body of a loop: which states are theirs, and their gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.stablehlo.recognise.activations import Function, attributes_of, functions
from convertkit.converters.stablehlo.recognise.gates import Linear, linear
from convertkit.converters.stablehlo.recognise.turns import Scan
from convertkit.onnx.edit import is_float32, sizes
from convertkit.onnx.recognise.match import Term, match

Attributes = Mapping[str, int | Sequence[str] | Sequence[float]]
_UPDATED: Term = ("Add", ("Mul", ("Sub", 1.0, "z"), "n"), ("Mul", "z", "h"))
_RESET: Term = ("Mul", "r", "h")
_LEAST_BIAS = 1 / 16
"""What a plain cell's tanh adds at least: ONNX Runtime's RNN differs by 1.5e-7 from tanh, also from that of 1e-7.

Outputs of this size are then right to 3e-6.  Its GRU and LSTM, and RNN with other functions, are right to 5e-7 of
outputs of any size (measured down to 1e-9).
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of one operator; gates in ONNX's order, ``states`` the places of its state h and, for an LSTM, c."""

    operator: str
    gates: tuple[Linear, ...]
    states: tuple[int, ...]
    attributes: Attributes = field(default_factory=dict)
    apart: Array | None = None
    """The bias of a GRU's last gate that its reset gate multiplies."""

    def bias(self) -> Array:
        """The operator's: of the input's products, then of the state's."""
        joined = np.concatenate([gate.bias for gate in self.gates])
        other = np.zeros_like(joined)
        if self.apart is not None:
            other[-len(self.apart) :] = self.apart
        whole: Array = np.concatenate([joined, other])[None]
        return whole

    def is_precise(self) -> bool:
        """Whether the operator's kernels give outputs of every size that the cell has as well as a loop does."""
        bends = self.operator == "RNN" and "activations" not in self.attributes
        return not bends or bool(np.abs(self.bias()).max() >= _LEAST_BIAS)


def cells(scan: Scan) -> Iterator[Cell]:
    """Every cell that the states of a loop may be; those are rows of float32, one for each sample."""
    rows = [place for place, value in enumerate(scan.before) if is_float32(value) and len(sizes(value) or ()) == 2]
    for h in rows:
        for c in rows:
            if c != h:
                yield from _lstms(scan, h, c)
        yield from _grus(scan, h)
        yield from _plain(scan, h)


def _lstms(scan: Scan, h: int, c: int) -> Iterator[Cell]:
    """H' = o · k(c'), c' = f · c + i · g."""
    for out, squashed in _operands(scan.after[h], "Mul"):
        for last, inner in functions(squashed):
            if inner is not scan.after[c]:
                continue
            for kept, added in _operands(scan.after[c], "Add"):
                yield from _lstm(scan, h, c, out, last, kept, added)


def _lstm(scan: Scan, h: int, c: int, out: ir.Value, last: Function, kept: ir.Value, added: ir.Value) -> Iterator[Cell]:
    for forget, state in _operands(kept, "Mul"):
        if state is not scan.before[c]:
            continue
        for into, candidate in _operands(added, "Mul"):
            outer = [_gate(each, scan.before[h]) for each in (into, out, forget)]
            fresh = _gate(candidate, scan.before[h])
            found = [each for each in outer if each is not None]
            if len(found) < 3 or fresh is None or len({function for function, _ in found}) > 1:
                continue
            used = (found[0][0], fresh[0], last)
            gates = (*(gate for _, gate in found), fresh[1])
            yield Cell("LSTM", gates, (h, c), attributes_of(used, ("Sigmoid", "Tanh", "Tanh")))


def _grus(scan: Scan, h: int) -> Iterator[Cell]:
    """H' = (1 − z) · n + z · h."""
    before = scan.before[h]
    found = match(_UPDATED, scan.after[h], {"h": before})
    update = None if found is None else _gate(found["z"], before)
    if found is None or update is None:
        return
    for function, inner in functions(found["n"]):
        yield from _reset_after(before, h, update, function, inner)
        yield from _reset_before(scan, h, update, function, inner)


def _reset_after(
    before: ir.Value, h: int, update: tuple[Function, Linear], function: Function, inner: ir.Value
) -> Iterator[Cell]:
    """N = g(W x + r · (R h + b))."""
    special: Attributes = {"linear_before_reset": 1, **attributes_of((update[0], function), ("Sigmoid", "Tanh"))}
    for fresh, product in _operands(inner, "Add"):
        for factor, product_of_state in _operands(product, "Mul"):
            reset, new, gated = _gate(factor, before), linear(fresh, before), linear(product_of_state, before)
            if reset is None or new is None or gated is None or reset[0] != update[0]:
                continue
            if new.recurrent is None and gated.weights is None:
                both = Linear(new.x, new.weights, gated.recurrent, new.bias, new.selects)
                yield Cell("GRU", (update[1], reset[1], both), (h,), special, gated.bias)


def _reset_before(
    scan: Scan, h: int, update: tuple[Function, Linear], function: Function, inner: ir.Value
) -> Iterator[Cell]:
    """N = g(W x + R (r · h)), the older cell."""
    before = scan.before[h]
    for node in scan.node.attributes["body"].as_graph():
        parts = match(_RESET, node.outputs[0], {"h": before})
        reset = None if parts is None else _gate(parts["r"], before)
        new = None if reset is None else linear(inner, node.outputs[0])
        if reset is None or new is None or reset[0] != update[0]:
            continue
        special = attributes_of((update[0], function), ("Sigmoid", "Tanh"))
        yield Cell("GRU", (update[1], reset[1], new), (h,), special)


def _plain(scan: Scan, h: int) -> Iterator[Cell]:
    """H' = f(W x + R h)."""
    found = _gate(scan.after[h], scan.before[h])
    if found is not None:
        yield Cell("RNN", (found[1],), (h,), attributes_of((found[0],), ("Tanh",)))


def _gate(value: ir.Value | None, h: ir.Value) -> tuple[Function, Linear] | None:
    """A gate behind its activation, where it reads the state."""
    for function, inner in functions(value):
        gate = linear(inner, h)
        if gate is not None:
            return function, gate
    return None


def _operands(value: ir.Value, operator: str) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Both operands of a commutative operator, in both orders."""
    found = match((operator, "a", "b"), value, {})
    if found is not None:
        yield found["a"], found["b"]
        yield found["b"], found["a"]
