"""Comparisons of rising functions with constants, as comparisons of their arguments.

TFLite's kernels round square roots, exponentials, logarithms, sigmoids and tanh otherwise than the source does, by 1 to
3 units in the last place: ``sqrt(max(v, 1e-5))`` was above the constant ``sqrt(1e-5)``, which it equals in the source,
so that a mask became another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, bypass
from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.passes.part import Part

_MIRRORED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
_INFINITY = 0x7F800000
"""Its bits."""

Rising = Callable[[Array], Array]
"""A function of float32 elements that never falls, rounded to nearest; NaN below some limit, or nowhere."""

_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "Sqrt": np.sqrt,
    "Exp": np.exp,
    "Log": np.log,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}
"""In float64, which is rounded to float32 once."""
_ARITHMETIC: Mapping[str, Callable[[Array, np.float32], Array]] = {
    "Add": lambda x, by: x + by,
    "Sub": lambda x, by: x - by,
    "Mul": lambda x, by: x * by,
    "Div": lambda x, by: x / by,
}
"""With a constant, in float32.  These round as IEEE 754 says everywhere."""


def compare_arguments(part: Part) -> None:
    """Functions that rise, rounded to nearest as in the source, are compared under what they are of.

    before:  x → Exp → LessOrEqual(c)
    after:   x → LessOrEqual(the largest x whose exponential is at most c)

    Sums and products with constants may stand between.  What has no root or logarithm is in no order, as NaN: a second
    comparison tells, where the first does not.
    """
    for node in list(part.graph):
        found = _of_a_function(node)
        if found is not None:
            _replace(part, node, found)


@dataclass(frozen=True)
class _Comparison:
    """``function`` of ``x`` against ``constant``, as ``kind`` tells when the function stands on the left."""

    x: ir.Value
    function: Rising
    constant: Array
    kind: str


def _of_a_function(node: ir.Node) -> _Comparison | None:
    if node.domain or node.op_type not in (*_MIRRORED, "Equal"):
        return None
    for place in (0, 1):
        value, constant = node.inputs[place], node.inputs[1 - place]
        known = constant.const_value if constant is not None else None
        if value is None or known is None or value.dtype != ir.DataType.FLOAT:
            continue
        steps, x = _chain(value)
        if steps:
            kind = node.op_type if place == 0 else _MIRRORED.get(node.op_type, node.op_type)
            return _Comparison(x, _composed(steps), known.numpy(), kind)
    return None


def _chain(value: ir.Value) -> tuple[Sequence[Rising], ir.Value]:
    """The steps that lead to ``value``, first to last, and what they start from; a function comes first."""
    steps: list[Rising] = []
    found, start = 0, value
    step = _step(value)
    while step is not None:
        steps.append(step.rising)
        if step.is_function:
            found, start = len(steps), step.x
        step = _step(step.x)
    return steps[:found][::-1], start


@dataclass(frozen=True)
class _Step:
    rising: Rising
    x: ir.Value
    is_function: bool
    """Whether kernels round it in their own way."""


def _step(value: ir.Value) -> _Step | None:
    """What rises of the node that makes ``value``."""
    node = value.producer()
    if node is None or node.domain or node.inputs[0] is None:
        return None
    if node.op_type in _FUNCTIONS:
        return _Step(_rounded(_FUNCTIONS[node.op_type]), node.inputs[0], is_function=True)
    if node.op_type not in _ARITHMETIC:
        return None
    first, second = node.inputs[0], node.inputs[1]
    turns = node.op_type in ("Add", "Mul") and _scalar(first, value) is not None
    x, other = (second, first) if turns else (first, second)
    by = _scalar(other, value)
    if x is None or by is None or (node.op_type in ("Mul", "Div") and by <= 0):
        return None
    return _Step(_with(_ARITHMETIC[node.op_type], by), x, is_function=False)


def _scalar(value: ir.Value | None, result: ir.Value) -> np.float32 | None:
    """The finite constant that every element of ``result`` is made with."""
    known = value.const_value if value is not None else None
    if known is None or known.size != 1 or result.shape is None or len(known.shape) > len(result.shape):
        return None
    number = np.float32(known.numpy().reshape(()))
    return number if np.isfinite(number) else None


def _rounded(function: Callable[[Array], Array]) -> Rising:
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


def _with(arithmetic: Callable[[Array, np.float32], Array], by: np.float32) -> Rising:
    return lambda x: arithmetic(x, by)


def _composed(steps: Sequence[Rising]) -> Rising:
    def composed(x: Array) -> Array:
        with np.errstate(all="ignore"):
            for step in steps:
                x = step(x)
        return x

    return composed


def _replace(part: Part, node: ir.Node, found: _Comparison) -> None:
    tests: list[tuple[str, Array]] = []
    if found.kind in ("LessOrEqual", "Less", "Equal"):
        tests.append(("LessOrEqual", largest(found.function, found.constant, equal=found.kind != "Less")))
    if found.kind in ("GreaterOrEqual", "Greater", "Equal"):
        tests.append(("GreaterOrEqual", smallest(found.function, found.constant, equal=found.kind != "Greater")))
    if len(tests) == 1 and tests[0][0] == "LessOrEqual" and (first := _first(found.function)) > -_INFINITY:
        tests.append(("GreaterOrEqual", _floats(np.array(first))))
    result = node.outputs[0]
    made = [_made(part, node, kind, [found.x, _constant(part, node, limit)]) for kind, limit in tests]
    last = made[0] if len(made) == 1 else _made(part, node, "And", made)
    typed(last, result.shape, ir.DataType.BOOL)
    bypass(node, last)


def _constant(part: Part, node: ir.Node, limit: Array) -> ir.Value:
    return add_constant(part.graph, f"{node.outputs[0].name}/under", limit)


def _made(part: Part, node: ir.Node, kind: str, inputs: list[ir.Value]) -> ir.Value:
    made = ir.node(kind, inputs, name=f"{node.name}/{kind}")
    set_source(made, node)
    result = made.outputs[0]
    result.name = f"{node.outputs[0].name}/{kind}_{len(list(inputs[0].uses()))}"
    typed(result, node.outputs[0].shape, ir.DataType.BOOL)
    part.graph.insert_before(node, made)
    return result


def largest(function: Rising, limit: Array, *, equal: bool) -> Array:
    """The largest float32 of which ``function`` is below ``limit``, or equal to it; NaN where there is none."""
    first = np.full(limit.shape, _first(function))
    return _last(function, limit, first, np.full(limit.shape, _INFINITY), np.less_equal if equal else np.less)


def smallest(function: Rising, limit: Array, *, equal: bool) -> Array:
    """The smallest float32 of which ``function`` is above ``limit``, or equal to it; NaN where there is none."""
    first = np.full(limit.shape, _first(function))
    fits = np.greater_equal if equal else np.greater
    return _last(function, limit, np.full(limit.shape, _INFINITY), first, fits)


def _last(function: Rising, limit: Array, near: Array, far: Array, fits: Callable[[Array, Array], Array]) -> Array:
    """The last number on the way from ``near`` to ``far`` that ``fits``; halves of the way are left until one is."""
    none = ~fits(function(_floats(near)), limit)
    near = np.where(fits(function(_floats(far)), limit), far, near)
    while (np.abs(far - near) > 1).any():
        middle = (near + far) // 2
        inside = fits(function(_floats(middle)), limit)
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return np.where(none, np.float32(np.nan), _floats(near))


def _first(function: Rising) -> int:
    """The first number in order of which ``function`` is no NaN."""
    below, first = -_INFINITY - 1, _INFINITY
    while first - below > 1:
        middle = (below + first) // 2
        is_number = not np.isnan(function(_floats(np.array(middle))))
        below, first = (below, middle) if is_number else (middle, first)
    return first


def _floats(places: Array) -> Array:
    """The float32 at each place of their order, in which 0 stands at 0 and infinity at its bits."""
    bits = np.where(places < 0, 0x80000000 - places, places)
    return np.asarray(bits.astype(np.uint32).view(np.float32))
