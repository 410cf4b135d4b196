"""Axes of size 1 that an Einsum repeats along longer ones, taken out of the operand.

before:  x [N, 5, 8], w [1, 3, 5] → Einsum (bnc,bch->bnh of w, x) → y
after:   x [N, 5, 8], w [1, 3, 5] → Squeeze → Einsum (nc,bch->bnh) → y

ONNX's inference gives a letter the size of the first operand that has it, here 1, and every size behind is then wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.declared import inferred
from convertkit.onnx.edit import initializer, inserted


def squeeze_repeated_ones(model: ir.Model) -> bool:
    """Take such axes out, in place, and forget the sizes that were told of what follows; whether there were any."""
    opset = model.graph.opset_imports.get("", 0)
    nodes = [node for node in model.graph.all_nodes() if node.op_type == "Einsum" and not node.domain]
    changed = [node for node in nodes if _squeeze(node, opset)]
    for node in changed:
        _forget_ones_behind(node)
    return bool(changed)


def spelled_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Terms and result as one letter for each axis; an ellipsis becomes capital letters that are free.

    Source: ONNX operators, Einsum-12.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [chr(code) for code in range(ord("A"), ord("Z") + 1) if chr(code) not in equation]
    free += [chr(code) for code in range(0x100, 0x180)]
    widths = [rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks)]
    letters = "".join(free[: max(widths, default=0)])
    spelled = [term.replace("...", letters[len(letters) - width :]) for term, width in zip(terms, widths, strict=True)]
    if not arrow:
        joined = "".join(spelled)
        right = "..." + "".join(sorted(c for c in set(joined) if joined.count(c) == 1 and c not in letters))
    return spelled, right.replace("...", letters)


def _squeeze(node: ir.Node, opset: int) -> bool:
    """Take the axes out of the operands of one Einsum; whether there were any."""
    operands = [value for value in node.inputs if value is not None]
    shapes = [value.shape for value in operands if value.shape is not None]
    equation = node.attributes.get_string("equation")
    if len(shapes) < len(node.inputs) or equation is None:
        return False
    terms, result = spelled_out(equation, [len(shape) for shape in shapes])
    longer = {letter for term, shape in zip(terms, shapes) for letter, size in zip(term, shape) if size != 1}
    places = [_repeated(term, value, longer, opset) for term, value in zip(terms, operands)]
    if not any(places) or not "".join([*terms, result]).isascii():
        return False
    for place, (value, axes) in enumerate(zip(operands, places)):
        if axes:
            shape = ir.Shape([size for axis, size in enumerate(value.shape or ()) if axis not in axes])
            told = initializer(node, np.array(axes, np.int64), f"{value.name}/ones")
            node.replace_input_with(place, inserted(node, "Squeeze", [value, told], value, shape=shape).outputs[0])
    kept = ["".join(c for axis, c in enumerate(term) if axis not in axes) for term, axes in zip(terms, places)]
    node.attributes["equation"] = ir.AttrString("equation", f"{','.join(kept)}->{result}")
    return True


def _repeated(term: str, value: ir.Value, longer: set[str], opset: int) -> list[int]:
    """Axes of size 1 whose letter is longer in another operand."""
    found = [axis for axis, letter in enumerate(term) if value.shape and value.shape[axis] == 1 and letter in longer]
    node = value.producer()
    if not found or node is None:
        return found
    told = None if node.domain else inferred(node, value.index() or 0, opset)  # a file may declare 1 where it is not
    return [axis for axis in found if told is not None and len(told) == len(term) and told[axis] == 1]


def _forget_ones_behind(node: ir.Node) -> None:
    """Let inference say again what has size 1, of everything that is computed from what ``node`` gives."""
    waiting, seen = list(node.outputs), set[ir.Value]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.shape is not None:
            value.shape = ir.Shape([None if size == 1 else size for size in value.shape])
        for use in value.uses():
            waiting += use.node.outputs
