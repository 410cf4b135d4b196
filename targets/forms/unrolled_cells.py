"""LSTM, GRU and RNN as the products and sums of every step, for compilers that have no such operators.

before:  y, h = GRU (x, w, r, b)
after:   for each step t, from what the step before left: h = (1 - z) * tanh (…) + z * h; y = Concat (h, h, …)

Source: ONNX operators, LSTM-22, GRU-22, RNN-22.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import onnx_ir as ir

from convertkit.onnx.canonical import simplify
from convertkit.onnx.edit import array_of
from convertkit.targets.forms.recurrences import RECURRENT, batch_inside, unusual
from convertkit.targets.forms.writing import Place, Size, dims, refusal

MOST_STEPS: Final = 256
"""A longer layer becomes too many nodes."""
_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}


def write_cells(
    model: ir.Model, compiler: str, kinds: Collection[str] = RECURRENT, *, free_batch: bool = False
) -> None:
    """All layers of ``kinds`` with known sizes, in place; ``Unsupported`` for what no form here computes.

    ``free_batch``: those of batches whose size is only known at run time, too.
    """
    found = [node for node in model.graph.all_nodes() if node.op_type in kinds and not node.domain]
    for node in found:
        batch_inside(node)
        steps, batch, _ = dims(node.inputs[0]) or (None, None, None)
        is_known = all(_sizes(value) for value in node.inputs[1:3]) and (free_batch or isinstance(batch, int))
        if isinstance(steps, int) and is_known:
            _refuse_unusual(node, steps, compiler)
            _Layer(node).write()
    if found:
        simplify(model)


def write_single_steps(model: ir.Model) -> None:
    """Layers of one step with stored weights, in place: no loop turns once.  Leaves what no form here computes."""
    found = [node for node in model.graph.all_nodes() if node.op_type in RECURRENT and not node.domain]
    written = [node for node in found if _is_one_step(node)]
    for node in written:
        batch_inside(node)
        _Layer(node).write()
    if written:
        simplify(model)


def _is_one_step(node: ir.Node) -> bool:
    sizes = dims(node.inputs[0]) or ()
    is_stored = all(value is None or array_of(value) is not None for value in node.inputs[1:4])
    one = len(sizes) == 3 and sizes[node.attributes.get_int("layout", 0)] == 1
    return one and is_stored and _unusual(node, 1) is None


def _sizes(value: ir.Value | None) -> list[int]:
    """The sizes of a value; none where one of them is not known."""
    found = [each for each in dims(value) or () if isinstance(each, int)]
    return found if len(found) == len(dims(value) or ()) else []


def _refuse_unusual(node: ir.Node, steps: int, compiler: str) -> None:
    found = _unusual(node, steps)
    if found is not None:
        raise refusal(node, f"{compiler} has no such layer, and it is not written step by step with {found}")


def _unusual(node: ir.Node, steps: int) -> str | None:
    """Lengths, other activations, a clip, peepholes, joined gates, no steps, and very many steps."""
    lengths = node.inputs[4] if len(node.inputs) > 4 else None
    stored = array_of(lengths)
    stated = node.attributes.get_strings("activations", ())
    peepholes = len(node.inputs) > 7 and node.inputs[7] is not None
    reasons = {
        "lengths of sequences": lengths is not None and (stored is None or bool((stored != steps).any())),
        f"activations {', '.join(stated)}": unusual(node.op_type, stated),
        "clip": bool(node.attributes.get_float("clip", 0.0)),
        "input_forget": bool(node.attributes.get_int("input_forget", 0)),
        "peepholes": peepholes,
        "0 steps": steps == 0,
        f"{steps} steps, more than {MOST_STEPS}": steps > MOST_STEPS,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of one direction: (inputs, gates × hidden), (hidden, gates × hidden), and both biases, (gates × hidden)."""

    w: ir.Value
    r: ir.Value
    of_input: ir.Value | None
    of_hidden: ir.Value | None


class _Layer:
    def __init__(self, node: ir.Node) -> None:
        self._place, self._node, self._kind = Place(node), node, node.op_type
        x, w, r = node.inputs[:3]
        assert x is not None
        assert w is not None
        assert r is not None
        self._x, self._w, self._r = x, w, r
        self._batch: Size
        steps, self._batch, _ = dims(x) or ()
        assert isinstance(steps, int)
        self._steps = steps
        self._hidden = _sizes(r)[-1]
        self._stored: dict[int, ir.Value] = {}

    def _place_of(self, number: int) -> ir.Value:
        """A stored list of one number."""
        if number not in self._stored:
            self._stored[number] = self._place.constant(np.array([number]))
        return self._stored[number]

    def write(self) -> None:
        """The outputs, each where somebody reads it."""
        named = self._node.attributes.get_string("direction", "forward")
        orders = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}[named]
        found = [self._direction(place, order) for place, order in enumerate(orders)]
        every, *last = zip(*found, strict=True)
        results = [self._joined(list(every), 1), *(self._joined(list(each), 0) for each in last)]
        used = [value.uses() or value.is_graph_output() for value in self._node.outputs]
        self._place.becomes(*(made if wanted else None for made, wanted in zip(results, used, strict=False)))

    def _joined(self, values: list[ir.Value], axis: int) -> ir.Value:
        sizes = list(dims(values[0]) or ())
        sizes[axis] = len(values)  # each is one step, or one direction
        return self._place.op("Concat", *values, shape=sizes, axis=axis)

    def _direction(self, number: int, order: int) -> tuple[ir.Value, ...]:
        """All steps (steps, 1, batch, hidden), and the last state or states (1, batch, hidden)."""
        weights = self._weights(number)
        width = _GATES[self._kind] * self._hidden
        whole = self._place.op("MatMul", self._x, weights.w, shape=[self._steps, self._batch, width])
        if weights.of_input is not None:
            whole = self._place.op("Add", whole, weights.of_input)
        states = [self._state(5, number), *([self._state(6, number)] if self._kind == "LSTM" else [])]
        made: dict[int, ir.Value] = {}
        for step in range(self._steps)[::order]:
            given = self._picked(whole, step, [self._batch, width])
            states = self._step(given, weights, states)
            made[step] = self._deeper(states[0], [0, 1])
        every = self._joined([made[step] for step in range(self._steps)], 0)
        return every, *(self._deeper(each, [0]) for each in states)

    def _weights(self, number: int) -> _Weights:
        width = _GATES[self._kind] * self._hidden
        w, r = (self._matrix(each, number) for each in (self._w, self._r))
        bias = self._node.inputs[3] if len(self._node.inputs) > 3 else None
        if bias is None:
            return _Weights(w, r, None, None)
        both = self._picked(bias, number, [2 * width])
        zero, *ends = (self._place_of(each) for each in (0, 0, width, 2 * width))
        halves = [self._place.op("Slice", both, first, last, zero, shape=[width]) for first, last in pairwise(ends)]
        if self._kind == "GRU" and self._node.attributes.get_int("linear_before_reset", 0) != 0:
            return _Weights(w, r, *halves)
        return _Weights(w, r, self._place.op("Add", *halves), None)

    def _matrix(self, value: ir.Value, number: int) -> ir.Value:
        """One direction's, turned around: a constant where it is one, since nothing folds a part of a large one."""
        stored = array_of(value)
        if stored is not None:
            return self._place.constant(np.ascontiguousarray(stored[number].T))
        sizes = _sizes(value)[1:]
        return self._place.op("Transpose", self._picked(value, number, sizes), shape=sizes[::-1], perm=[1, 0])

    def _state(self, place: int, number: int) -> ir.Value:
        """What the layer begins with, (batch, hidden); zeros as one row where the batch is only known at run time."""
        given = self._node.inputs[place] if len(self._node.inputs) > place else None
        if given is not None:
            return self._picked(given, number, [self._batch, self._hidden])
        assert self._x.dtype is not None
        rows = self._batch if isinstance(self._batch, int) else 1
        return self._place.constant(np.zeros((rows, self._hidden), self._x.dtype.numpy()))

    def _picked(self, value: ir.Value, number: int, sizes: Sequence[Size]) -> ir.Value:
        """One of the first axis, which goes."""
        return self._place.op("Gather", value, self._place.constant(np.int64(number)), shape=sizes, axis=0)

    def _deeper(self, value: ir.Value, axes: list[int]) -> ir.Value:
        sizes = [*([1] * len(axes)), self._batch, self._hidden]
        return self._place.op("Unsqueeze", value, self._place.constant(np.array(axes)), shape=sizes)

    def _gate(self, value: ir.Value, first: int, count: int = 1) -> ir.Value:
        """``count`` gates from the one with that number on."""
        ends = [self._place_of(each * self._hidden) for each in (first, first + count)]
        sizes = [(dims(value) or (self._batch,))[0], count * self._hidden]
        return self._place.op("Slice", value, *ends, self._place_of(1), shape=sizes)

    def _recurred(self, h: ir.Value, weight: ir.Value) -> ir.Value:
        sizes = [(dims(h) or (self._batch,))[0], _sizes(weight)[1]]
        return self._place.op("MatMul", h, weight, shape=sizes)

    def _step(self, given: ir.Value, weights: _Weights, states: list[ir.Value]) -> list[ir.Value]:
        if self._kind == "LSTM":
            return self._lstm(given, weights, *states)
        return (self._gru if self._kind == "GRU" else self._rnn)(given, weights, *states)

    def _rnn(self, given: ir.Value, weights: _Weights, h: ir.Value) -> list[ir.Value]:
        op = self._place.op
        return [op("Tanh", op("Add", given, self._recurred(h, weights.r)))]

    def _lstm(self, given: ir.Value, weights: _Weights, h: ir.Value, c: ir.Value) -> list[ir.Value]:
        """Gates are input, output, forget, cell."""
        op = self._place.op
        sums = op("Add", given, self._recurred(h, weights.r))
        opened = op("Sigmoid", self._gate(sums, 0, 3))
        let, out, kept = (self._gate(opened, place) for place in range(3))
        cell = op("Add", op("Mul", kept, c), op("Mul", let, op("Tanh", self._gate(sums, 3))))
        return [op("Mul", out, op("Tanh", cell)), cell]

    def _gru(self, given: ir.Value, weights: _Weights, h: ir.Value) -> list[ir.Value]:
        """Gates are update, reset, hidden; the reset gate works before the product with the state, or behind it."""
        op = self._place.op
        if self._node.attributes.get_int("linear_before_reset", 0) != 0:
            product = self._recurred(h, weights.r)
            product = product if weights.of_hidden is None else op("Add", product, weights.of_hidden)
            opened = op("Sigmoid", op("Add", self._gate(given, 0, 2), self._gate(product, 0, 2)))
            hidden = op("Mul", self._gate(opened, 1), self._gate(product, 2))
        else:
            first, last = self._columns(weights.r, 0, 2), self._columns(weights.r, 2, 3)
            opened = op("Sigmoid", op("Add", self._gate(given, 0, 2), self._recurred(h, first)))
            hidden = self._recurred(op("Mul", self._gate(opened, 1), h), last)
        update, new = self._gate(opened, 0), op("Tanh", op("Add", self._gate(given, 2), hidden))
        return [op("Add", new, op("Mul", update, op("Sub", h, new, like=new)))]

    def _columns(self, weight: ir.Value, first: int, last: int) -> ir.Value:
        ends = [self._place_of(each * self._hidden) for each in (first, last)]
        sizes = [self._hidden, (last - first) * self._hidden]
        return self._place.op("Slice", weight, *ends, self._place_of(1), shape=sizes)
