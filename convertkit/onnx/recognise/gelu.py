"""GELU however its definition is written out, as the one operator that runtimes have a kernel for.

    exact   x/2 · (1 + erf(x / √2))
    tanh    x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))

Products and sums may be associated in any way: both the argument of the curve and what is made of it are compared as
polynomials.  A coefficient may be off by what rounding its factors to float32 can do, and no more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, is_float32, only_user, replaced, sizes

GELU_SINCE, _IR_VERSION = 20, 9
_WRITTEN_ANEW = frozenset({"DFT", "GridSample"})
"""Operators that opset 20 writes in another way than 18."""
_SLOPE = math.sqrt(2 / math.pi)
_ARGUMENTS: Mapping[str, tuple[tuple[str, Mapping[int, float]], ...]] = {
    "Erf": (("none", {1: math.sqrt(0.5)}),),
    "Tanh": (("tanh", {1: _SLOPE, 3: _SLOPE * 0.044715}),),
}
"""The argument's coefficient for each power of x, by the curve."""
_WHOLE: Mapping[tuple[int, int], float] = {(1, 0): 0.5, (1, 1): 0.5}
"""The result's coefficient for each power of x and of the curve."""
_ROUNDED: Mapping[int, float] = {1: 1.3e-7, 3: 1.6e-7}
"""How far an argument's coefficient may be off: √½ or √(2/π) rounded to either neighbour in float32, and 0.044715
beside it.  That is what the product with x rounds by.  One of three units in the last place is another number."""
_EXACT = 1e-12
"""For 0.5 and 1, which float32 holds; doubles multiply them here."""
_DEEPEST, _GREATEST_POWER = 8, 3
_STEPS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Neg"})

Polynomial = Mapping[tuple[int, int], float]
"""Coefficients by the powers of the two symbols."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """The values that a polynomial is one of; the curve is absent in its own argument."""

    x: ir.Value
    curve: ir.Value | None = None


def recognise_gelu(node: ir.Node) -> None:
    """The curve's node, with all that makes GELU of it.

    before:  Mul(x, Mul(0.5, Add(1, Erf(Div(x, √2))))), or any other association, or with tanh
    after:   Gelu(x)
    """
    if node.op_type not in _ARGUMENTS or node.domain != "" or not is_float32(node.outputs[0]):
        return
    argument = node.inputs[0]
    assert argument is not None
    for x in _candidates(argument):
        found = _polynomial(argument, Symbols(x), _DEEPEST)
        for approximate, wanted in _ARGUMENTS[node.op_type]:
            if found is not None and _is_argument(found, wanted):
                _replace(node, x, approximate)
                return


def _replace(curve: ir.Node, x: ir.Value, approximate: str) -> None:
    """Put Gelu for what is made of the curve, where that is it and nothing else reads the parts."""
    symbols, value = Symbols(x, curve.outputs[0]), curve.outputs[0]
    for _ in range(_DEEPEST):
        user = only_user(value)
        if user is None or user.op_type not in _STEPS or user.domain != "" or user.graph is not curve.graph:
            return
        value = user.outputs[0]
        found = _polynomial(value, symbols, _DEEPEST)
        if found is None:
            return
        if _is_near(found, _WHOLE, dict.fromkeys(_WHOLE, _EXACT)):
            if sizes(value) is not None and value.shape == x.shape and is_float32(x):
                replaced(user, "Gelu", [x], {"approximate": approximate})
            return


def _candidates(argument: ir.Value) -> Iterator[ir.Value]:
    """What the argument may be computed from, nearest first."""
    waiting, seen = [argument], Counter[ir.Value]()
    while waiting and len(seen) < 2 * _DEEPEST:
        value = waiting.pop(0)
        if seen[value] or array_of(value) is not None:
            continue
        seen[value] += 1
        node = value.producer()
        if value is not argument:
            yield value
        if node is not None and node.domain == "" and node.op_type in _STEPS:
            waiting += [each for each in node.inputs if each is not None]


def _polynomial(value: ir.Value | None, symbols: Symbols, depth: int) -> Polynomial | None:
    """``value`` as a polynomial of the symbols, None where it is none of low degree."""
    if value is symbols.x:
        return {(1, 0): 1.0}
    if value is None or depth == 0:
        return None
    if value is symbols.curve:
        return {(0, 1): 1.0}
    number = _number(value)
    if number is not None:
        return {(0, 0): number}
    node = value.producer()
    if node is None or node.domain != "" or node.op_type not in _STEPS or node.outputs[0].dtype != ir.DataType.FLOAT:
        return None
    parts = [_polynomial(each, symbols, depth - 1) for each in node.inputs]
    return None if any(part is None for part in parts) else _combined(node.op_type, [part or {} for part in parts])


def _combined(operator: str, parts: list[Polynomial]) -> Polynomial | None:
    left, right = parts[0], parts[-1]
    if operator == "Neg":
        return _scaled(left, -1.0)
    if operator in ("Add", "Sub"):
        return _sum(left, right if operator == "Add" else _scaled(right, -1.0))
    if operator == "Mul":
        return _product(left, right)
    constant = right.get((0, 0)) if set(right) == {(0, 0)} else None
    if constant is None or not constant:
        return None
    if operator == "Div":
        return _scaled(left, 1 / constant)
    if constant not in (2.0, 3.0):
        return None
    power = _product(left, left)
    return power if constant == 2.0 or power is None else _product(power, left)


def _scaled(polynomial: Polynomial, factor: float) -> Polynomial:
    return {powers: factor * value for powers, value in polynomial.items()}


def _sum(left: Polynomial, right: Polynomial) -> Polynomial:
    return {powers: left.get(powers, 0.0) + right.get(powers, 0.0) for powers in {**left, **right}}


def _product(left: Polynomial, right: Polynomial) -> Polynomial | None:
    result: dict[tuple[int, int], float] = {}
    for (a, b), one in left.items():
        for (c, d), other in right.items():
            if a + c > _GREATEST_POWER or b + d > 1:
                return None
            result[a + c, b + d] = result.get((a + c, b + d), 0.0) + one * other
    return result


def _is_argument(found: Polynomial, wanted: Mapping[int, float]) -> bool:
    whole = {(power, 0): value for power, value in wanted.items()}
    return _is_near(found, whole, {(power, 0): _ROUNDED[power] for power in wanted})


def _is_near(found: Polynomial, wanted: Polynomial, off: Polynomial) -> bool:
    """Whether the coefficients are those, each as near as ``off``; others have to be exactly 0."""
    return all(
        math.isclose(found.get(powers, 0.0), wanted.get(powers, 0.0), rel_tol=off.get(powers, 0.0))
        for powers in {**found, **wanted}
    )


def _number(value: ir.Value) -> float | None:
    array = array_of(value)
    if array is None or array.size != 1 or array.dtype != np.float32:
        return None
    number = float(array.reshape(()))
    return number if math.isfinite(number) else None


def can_have_gelu(model: ir.Model) -> bool:
    """Whether the model may be one of an opset that has Gelu."""
    opset = model.graph.opset_imports.get("", 0)
    return opset >= GELU_SINCE or all(node.op_type not in _WRITTEN_ANEW for node in model.graph.all_nodes())


def with_gelu(model: ir.Model) -> None:
    """The opset and the IR version that Gelu needs, where the model has one; no other operator of it changes there."""
    if any(node.op_type == "Gelu" and node.domain == "" for node in model.graph.all_nodes()):
        model.graph.opset_imports[""] = max(GELU_SINCE, model.graph.opset_imports[""])
        model.ir_version = max(model.ir_version, _IR_VERSION)
