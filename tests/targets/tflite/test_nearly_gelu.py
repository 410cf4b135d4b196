"""GELU's kernel takes the place of GELU alone: its constants are those of its definition, rounded either way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.targets.tflite.compiled import compiled

_EXACT = "{a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)}"
_TANH = (
    "{a = Mul(x, x) b = Mul(a, x) c = Mul(k, b) d = Add(x, c) e = Mul(t, d) f = Tanh(e) g = Add(one, f)"
    " h = Mul(half, x) y = Mul(h, g)}"
)
_KNOWN = {"r": math.sqrt(2), "one": 1.0, "half": 0.5, "k": 0.044715, "t": math.sqrt(2 / math.pi)}


def _text(body: str, known: dict[str, float]) -> str:
    constants = ", ".join(f"float {name} = {{{np.float32(value)!s}}}" for name, value in known.items())
    head = '<ir_version: 8, opset_import: ["" : 18]>'
    return f"{head} g (float[2,8] x) => (float[2,8] y) <{constants}> {body}"


def _next(value: float, steps: int) -> float:
    for _ in range(steps):
        value = float(np.nextafter(np.float32(value), np.float32(9)))
    return value


@pytest.mark.parametrize("body", [_EXACT, _TANH])
@pytest.mark.parametrize("steps", [0, 1])
def test_a_root_rounded_either_way(body: str, steps: int) -> None:
    known = {**_KNOWN, "r": _next(_KNOWN["r"], steps), "t": _next(_KNOWN["t"], steps)}
    assert compiled(_text(body, known)).operators["GELU"] == 1


@pytest.mark.parametrize("name", _KNOWN)
@pytest.mark.parametrize("off", [3, 20])
def test_anything_else_stays_what_it_is(name: str, off: int) -> None:
    body = _EXACT if name == "r" else _TANH
    made = compiled(_text(body, {**_KNOWN, name: _next(_KNOWN[name], off)}))
    assert made.operators["GELU"] == 0
