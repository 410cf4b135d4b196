"""Activation functions of recurrent cells, as ONNX names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.onnx.recognise.match import Term, match


@dataclass(frozen=True, slots=True)
class Function:
    """An activation with its parameters; None where it has no such one."""

    name: str
    alpha: float | None = None
    beta: float | None = None


_HARD_SIGMOID = Function("HardSigmoid", 1 / 6, 0.5)
_IDENTITY = Function("Affine", 1.0, 0.0)
_SHIFTED: Term = ("Clip", ("Add", "x", 3.0), 0.0, 6.0)
_FUNCTIONS: Sequence[tuple[Term, Function]] = (
    (("Sigmoid", "x"), Function("Sigmoid")),
    (("Tanh", "x"), Function("Tanh")),
    (("Relu", "x"), Function("Relu")),
    (("Softplus", "x"), Function("Softplus")),
    (("Div", "x", ("Add", ("Abs", "x"), 1.0)), Function("Softsign")),
    (("Div", _SHIFTED, 6.0), _HARD_SIGMOID),
    (("Mul", _SHIFTED, 1 / 6), _HARD_SIGMOID),
    (("Clip", ("Add", ("Mul", "x", 0.2), 0.5), 0.0, 1.0), Function("HardSigmoid", 0.2, 0.5)),
    (("Clip", ("Div", ("Add", "x", 3.0), 6.0), 0.0, 1.0), _HARD_SIGMOID),
)
"""Each as frameworks write it.  1/6 in HardSigmoid rounds by half an ulp, as the quotient does."""


def functions(value: ir.Value | None) -> Iterator[tuple[Function, ir.Value]]:
    """The activations that a value may be the result of, each with its input; last the identity."""
    for term, function in _FUNCTIONS:
        found = match(term, value, {})
        if found is not None:
            yield function, found["x"]
    if value is not None:
        yield _IDENTITY, value


def attributes_of(used: Sequence[Function], usual: Sequence[str]) -> dict[str, Sequence[str] | Sequence[float]]:
    """The attributes that say so; none where they are the operator's own."""
    names = [each.name for each in used]
    if names == list(usual):
        return {}
    found: dict[str, Sequence[str] | Sequence[float]] = {"activations": names}
    for key in ("alpha", "beta"):
        numbers = [getattr(each, key) for each in used if getattr(each, key) is not None]
        if numbers:
            found[f"activation_{key}"] = numbers
    return found
