"""Comparisons of a square root with constants, as comparisons of what is under it.

TFLite's kernels round square roots otherwise than IEEE 754 on some processors, so that ``sqrt(max(v, 1e-5))`` was above
the constant ``sqrt(1e-5)``, which it equals in the source: a mask became another, and a whole number was not 0.
"""

from __future__ import annotations

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


def compare_under_roots(part: Part) -> None:
    """Square roots are correctly rounded in the source, and rise with what is under them.

    before:  x → Sqrt → LessOrEqual(c)
    after:   x → And(LessOrEqual(the largest x whose root is at most c), GreaterOrEqual(0))

    What is below 0 has no root and is in no order, as NaN; roots of at least c need no second comparison.
    """
    for node in list(part.graph):
        found = _of_a_root(node)
        if found is not None:
            _replace(part, node, *found)


def _of_a_root(node: ir.Node) -> tuple[ir.Value, Array, str] | None:
    """What is under the root, the constant, and the comparison as seen from the root."""
    if node.domain or node.op_type not in (*_MIRRORED, "Equal"):
        return None
    for place in (0, 1):
        root, constant = node.inputs[place], node.inputs[1 - place]
        maker = root.producer() if root is not None else None
        known = constant.const_value if constant is not None else None
        if maker is None or maker.domain or maker.op_type != "Sqrt" or known is None:
            continue
        x = maker.inputs[0]
        if x is not None and x.dtype == ir.DataType.FLOAT:
            return x, known.numpy(), node.op_type if place == 0 else _MIRRORED.get(node.op_type, node.op_type)
    return None


def _replace(part: Part, node: ir.Node, x: ir.Value, constant: Array, how: str) -> None:
    tests: list[tuple[str, Array]] = []
    if how in ("LessOrEqual", "Less", "Equal"):
        tests.append(("LessOrEqual", largest(constant, equal=how != "Less")))
    if how in ("GreaterOrEqual", "Greater", "Equal"):
        tests.append(("GreaterOrEqual", smallest(constant, equal=how != "Greater")))
    if len(tests) == 1 and tests[0][0] == "LessOrEqual":
        tests.append(("GreaterOrEqual", np.zeros((), np.float32)))
    result = node.outputs[0]
    made = [_made(part, node, kind, [x, _constant(part, node, limit)]) for kind, limit in tests]
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


def largest(limit: Array, *, equal: bool) -> Array:
    """The largest float32 whose root is below ``limit``, or equal to it; NaN where there is none."""
    return _ends(limit, 1, equal)


def smallest(limit: Array, *, equal: bool) -> Array:
    """The smallest float32 from 0 on whose root is above ``limit``, or equal to it; NaN where there is none."""
    return _ends(limit, -1, equal)


def _ends(limit: Array, up: int, equal: bool) -> Array:
    return np.array([_end(each, up, equal) for each in limit.reshape(-1)], np.float32).reshape(limit.shape)


def _end(limit: np.float32, up: int, equal: bool) -> np.float32:
    """The last of the numbers from 0 to infinity, upwards or downwards, whose root is on the right side of ``limit``.

    Floats from 0 on are in the order of their bits: halves of the range are left out until one number is left.
    """

    def fits(bits: int) -> bool:
        root = np.sqrt(np.uint32(bits).view(np.float32))
        return bool((root == limit and equal) or (root < limit if up > 0 else root > limit))

    near, far = (0, _INFINITY) if up > 0 else (_INFINITY, 0)
    if not fits(near):
        return np.float32(np.nan)
    if fits(far):
        return np.uint32(far).view(np.float32)
    while abs(far - near) > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if fits(middle) else (near, middle)
    return np.uint32(near).view(np.float32)
