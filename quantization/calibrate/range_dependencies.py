"""What the operators of a graph tell of a tensor's range before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.quantization.graph.units import clamp_limits, constant, is_constant, is_float

_MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators whose output holds the numbers of their first input, no more and no fewer."""
_MONOTONE = frozenset({"Sigmoid", "HardSigmoid", "Tanh", "Erf", "Relu", "LeakyRelu", "Clip", "Exp", "Sqrt", "Neg"})
_SLOPES = frozenset({"HardSigmoid", "LeakyRelu"})
"""Those of them that are monotone only where their slope is not negative."""
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})
"""Monotone in their first operand where the second one is a constant number; two of them also the other way round."""
_COMMUTE = frozenset({"Add", "Mul"})
_NEVER_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Exp", "Sqrt", "Abs"})
_KEEPS_SIGN = _MOVES | {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Add", "Mul", "Concat"}
_BLOCKED = frozenset({"Relu", "Clip", "Sigmoid", "Tanh", "MaxPool", "AveragePool", "Add", "Mul", "Concat"})
"""Operators that ONNX Runtime runs in the blocked layout of its convolutions, or fuses into them."""
_MAP_RANK = 4


@dataclass(frozen=True, slots=True)
class Step:
    """A monotone operator, and the index of its only input that is not a constant."""

    node: ir.Node
    place: int
    data: ir.Value


def same_numbers(value: ir.Value) -> ir.Value:
    """The first value of the graph that holds the very numbers of this one."""
    node = value.producer()
    while node is not None and _is(node, _MOVES) and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def monotone_step(value: ir.Value) -> Step | None:
    """How a value, wherever it was moved, was computed, if by an operator that keeps or reverses the order."""
    node = same_numbers(value).producer()
    if node is None:
        return None
    fixed = [constant(each) for each in node.inputs if each is not None and is_constant(each)]
    data = [(place, each) for place, each in enumerate(node.inputs) if each is not None and not is_constant(each)]
    if len(data) != 1:
        return None
    place, source = data[0]
    if _is(node, _ARITHMETIC):
        fits = [number.size for number in fixed] == [1] and (place == 0 or node.op_type in _COMMUTE)
    else:
        slope = node.attributes.get("alpha")
        falls = node.op_type in _SLOPES and slope is not None and slope.as_float() < 0
        fits = _is(node, _MONOTONE) and place == 0 and not falls
    return Step(node, place, source) if fits else None


class RangeDependencies:
    """Relations between the measured values of a graph; ``measured`` leads to them from :func:`same_numbers`."""

    def __init__(self, graph: ir.Graph, measured: Mapping[ir.Value, ir.Value]) -> None:
        self._measured = measured
        self._never_negative = _closure(graph, _never_negative)
        self._blocked = _closure(graph, _blocked)

    def is_never_negative(self, value: ir.Value) -> bool:
        """Whether no number can be below zero."""
        return value in self._never_negative

    def is_blocked(self, value: ir.Value) -> bool:
        """Whether this is a feature map that most likely lies in a blocked layout."""
        return value in self._blocked

    def source(self, value: ir.Value) -> ir.Value | None:
        """The measured value of which a monotone operator makes this one.

        None, too, where the least value of the source is not looked for, but matters here.
        """
        step = monotone_step(value)
        source = None if step is None else self._measured.get(same_numbers(step.data))
        if source is None or (self.is_never_negative(source) and not self.is_never_negative(value)):
            return None
        return source

    def origin(self, value: ir.Value) -> ir.Value:
        """The source of the source, and so on; the value itself where it has none."""
        source = self.source(value)
        while source is not None:
            value, source = source, self.source(source)
        return value


def _closure(graph: ir.Graph, holds: Callable[[ir.Node, set[ir.Value]], bool]) -> frozenset[ir.Value]:
    """The outputs of all nodes for which ``holds`` tells so, given those of the nodes before."""
    found: set[ir.Value] = set()
    for node in graph:
        if holds(node, found):
            found.update(node.outputs)
    return frozenset(found)


def _never_negative(node: ir.Node, known: set[ir.Value]) -> bool:
    if _is(node, {"Clip"}):
        return all(limit is None or is_constant(limit) for limit in node.inputs[1:]) and clamp_limits(node)[0] >= 0
    return _is(node, _NEVER_NEGATIVE) or (
        _is(node, _KEEPS_SIGN) and all(value in known or _is_positive(value) for value in _data(node))
    )


def _blocked(node: ir.Node, known: set[ir.Value]) -> bool:
    if _is(node, {"Conv"}):
        shape = node.outputs[0].shape
        return shape is not None and len(shape) == _MAP_RANK
    return _is(node, _BLOCKED) and any(value in known for value in _data(node))


def _data(node: ir.Node) -> Sequence[ir.Value]:
    return [value for value in node.inputs if value is not None and is_float(value)]


def _is_positive(value: ir.Value) -> bool:
    return is_constant(value) and bool((constant(value) >= 0).all())


def _is(node: ir.Node, kinds: frozenset[str] | set[str]) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in kinds
