"""Comparisons of rising functions with constants, as comparisons of their arguments.

Runtimes round square roots, exponentials, logarithms, sigmoids and tanh otherwise than the source does: LiteRT by 1 to
3 units in the last place, ONNX Runtime its small sigmoids by thousands.  So ``sqrt(max(v, 1e-5))`` was above the
constant ``sqrt(1e-5)``, which it equals in the source, and a mask became another.

before:  x → Exp → LessOrEqual(c)
after:   x → LessOrEqual(the largest x whose exponential, rounded to nearest, is at most c)

Only where the decision is one for many elements, and that of the source: a root is rounded to nearest everywhere, and
what a function gives for a limit of a clamp is meant to equal a constant that is no further from it than a library's
own rounding.  Elsewhere libraries decide on single elements in their own ways: ``sigmoid(x) > 0.5`` near 0 stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, bypass, initializer

_MIRRORED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
_INFINITY = 0x7F800000
"""Its bits."""
_LIBRARIES_DIFFER = 4
"""Units in the last place, as far as libraries of mathematics are from the right result."""
_BESIDE = 16
"""Units in the last place of a limit."""

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


def compare_arguments(model: ir.Model) -> None:
    """Rewrite every such comparison of float32, in place; sums and products with constants may stand between.

    What has no root or logarithm is in no order, as NaN: a second comparison tells, where the first does not.
    """
    found = [(node, each) for node in model.graph.all_nodes() if (each := _of_a_function(node)) is not None]
    for node, each in found:
        _replace(node, each)
    if found:
        RemoveUnusedNodesPass()(model)


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
        if not steps:
            continue
        function, stored = _composed([step.rising for step in steps]), known.numpy()
        meant = stored if all(step.is_exact for step in steps) else _as_meant(stored, function, _limits(x))
        if meant is not None:
            kind = node.op_type if place == 0 else _MIRRORED.get(node.op_type, node.op_type)
            return _Comparison(x, function, meant, kind)
    return None


def _chain(value: ir.Value) -> tuple[Sequence[_Step], ir.Value]:
    """The steps that lead to ``value``, first to last, and what they start from; a function comes first."""
    steps: list[_Step] = []
    found, start = 0, value
    step = _step(value)
    while step is not None:
        steps.append(step)
        if step.is_function:
            found, start = len(steps), step.x
        step = _step(step.x)
    return steps[:found][::-1], start


@dataclass(frozen=True)
class _Step:
    rising: Rising
    x: ir.Value
    is_function: bool
    is_exact: bool = True
    """Whether the source rounds it to nearest."""


def _step(value: ir.Value) -> _Step | None:
    """What rises of the node that makes ``value``."""
    node = value.producer()
    if node is None or node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.op_type in _FUNCTIONS:
        rising = _rounded(_FUNCTIONS[node.op_type])
        return _Step(rising, node.inputs[0], is_function=True, is_exact=node.op_type == "Sqrt")
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


def _limits(x: ir.Value) -> Array:
    """The constants between which a clamp holds ``x``."""
    node = x.producer()
    if node is None or node.domain or node.op_type not in ("Clip", "Max", "Min", "Relu"):
        return np.zeros(0, np.float32)
    known = [array_of(value) for value in node.inputs]
    limits = [each.reshape(()) for each in known if each is not None and each.size == 1]
    return np.array([0.0] if node.op_type == "Relu" else limits, np.float32)


def _as_meant(constant: Array, function: Rising, limits: Array) -> Array | None:
    """``constant`` as what the function gives for limits, where all of it is that but for roundings; else None."""
    left = np.ones(constant.shape, bool)
    for value in function(limits[[_is_steep(function, each) for each in limits]]):
        near = np.abs(constant - value) <= _LIBRARIES_DIFFER * np.spacing(np.abs(value))
        constant, left = np.where(near, value, constant), left & ~near
    return None if left.any() else np.asarray(constant)


def _is_steep(function: Rising, limit: np.float32) -> bool:
    """Whether only few numbers beside ``limit`` have its result."""
    result = function(np.array(limit))
    if not np.isfinite(result):
        return False
    ends = largest(function, result, equal=True), smallest(function, result, equal=True)
    return all(bool(np.abs(end - limit) <= _BESIDE * np.spacing(np.abs(limit))) for end in ends)


def _replace(node: ir.Node, found: _Comparison) -> None:
    tests: list[tuple[str, Array]] = []
    if found.kind in ("LessOrEqual", "Less", "Equal"):
        tests.append(("LessOrEqual", largest(found.function, found.constant, equal=found.kind != "Less")))
    if found.kind in ("GreaterOrEqual", "Greater", "Equal"):
        tests.append(("GreaterOrEqual", smallest(found.function, found.constant, equal=found.kind != "Greater")))
    if len(tests) == 1 and tests[0][0] == "LessOrEqual" and (first := _first(found.function)) > -_INFINITY:
        tests.append(("GreaterOrEqual", _floats(np.array(first))))
    made = [
        _made(node, kind, found.x, initializer(node, limit, f"{node.outputs[0].name}/under")) for kind, limit in tests
    ]
    bypass(node, made[0] if len(made) == 1 else _made(node, "And", *made))


def _made(node: ir.Node, kind: str, *inputs: ir.Value) -> ir.Value:
    """A node in front of ``node``, with a result like its."""
    made = ir.node(kind, inputs, name=f"{node.name}/{kind}")
    made.metadata_props.update(node.metadata_props)
    old, result = node.outputs[0], made.outputs[0]
    result.name, result.type, result.shape = f"{old.name}/{kind}", ir.TensorType(ir.DataType.BOOL), old.shape
    assert node.graph is not None
    node.graph.insert_before(node, made)
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
