"""Elementwise arithmetic, reductions and products."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from convertkit.converters.mxnet.evaluate.elements import ALIASES, NAMES, REDUCTIONS, SCALAR, axes_of
from convertkit.converters.mxnet.lower.site import Site

Lowering = Callable[[Site], ir.Value]
_UNARY: Mapping[str, str] = {
    "abs": "Abs", "ceil": "Ceil", "cos": "Cos", "erf": "Erf", "exp": "Exp", "floor": "Floor", "identity": "Identity",
    "log": "Log", "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "softsign": "Softsign", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
_BINARY: Mapping[str, str] = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min", "power": "Pow",
}  # fmt: skip


def _simple(kind: str) -> Lowering:
    return lambda s: s.op(kind, s.values[0])


def _rsqrt(s: Site) -> ir.Value:
    return s.op("Reciprocal", s.op("Sqrt", s.values[0]))


def _square(s: Site) -> ir.Value:
    return s.op("Mul", s.values[0], s.values[0])


def _filled(number: float) -> Lowering:
    return lambda s: s.op("Expand", s.tape.number(number), s.op("Shape", s.values[0]))


def _binary(kind: str) -> Lowering:
    return lambda s: s.op(_BINARY[kind], *s.values)


def _scalar(name: str) -> Lowering:
    kind, in_front = SCALAR[name]

    def lower(s: Site) -> ir.Value:
        number = s.tape.number(s.attributes.real("scalar"))
        pair = (number, s.values[0]) if in_front else (s.values[0], number)
        return s.op(_BINARY[kind], *pair)

    return lower


def _reduction(name: str) -> Lowering:
    kind = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}[
        name
    ]

    def lower(s: Site) -> ir.Value:
        return _reduced(s, kind)

    return lower


def _reduced(s: Site, kind: str) -> ir.Value:
    """A result without axes has one of 1 element."""
    axes = axes_of(s.attributes, s.rank)
    keep = s.attributes.flag("keepdims")
    made = s.op(kind, s.values[0], s.tape.ints(*axes), keepdims=int(keep))
    return s.op("Reshape", made, s.tape.ints(1)) if not keep and len(axes) == s.rank else made


def _norm(s: Site) -> ir.Value:
    order = s.attributes.whole("ord", 2)
    if order not in (1, 2):
        raise s.refused(f"ord={order}")
    return _reduced(s, f"ReduceL{order}")


def _argmax(s: Site) -> ir.Value:
    """MXNet gives places as floats."""
    keep = int(s.attributes.flag("keepdims"))
    made = s.op("ArgMax", s.values[0], axis=s.attributes.whole("axis"), keepdims=keep)
    return s.op("Cast", made, to=int(ir.DataType.FLOAT))


def _clip(s: Site) -> ir.Value:
    low, high = (s.tape.number(s.attributes.real(name)) for name in ("a_min", "a_max"))
    return s.op("Clip", s.values[0], low, high)


def _sum(s: Site) -> ir.Value:
    return s.op("Sum", *s.values)


def _dot(s: Site) -> ir.Value:
    if s.rank != 2 or len(s.shapes[1]) != 2:
        raise s.refused("a product of more than two axes")
    return _batch_dot(s)


def _batch_dot(s: Site) -> ir.Value:
    pair = (_turned(s, place, s.attributes.flag(name)) for place, name in enumerate(("transpose_a", "transpose_b")))
    return s.op("MatMul", *pair)


def _turned(s: Site, place: int, turn: bool) -> ir.Value:
    order = list(range(len(s.shapes[place])))
    order[-2:] = order[:-3:-1]
    return s.op("Transpose", s.values[place], perm=order) if turn else s.values[place]


def _where(s: Site) -> ir.Value:
    if len({len(shape) for shape in s.shapes}) != 1:
        raise s.refused("a condition for rows")
    which = s.op("Not", s.op("Equal", s.values[0], s.tape.number(0.0)))
    return s.op("Where", which, *s.values[1:])


def _fully_connected(s: Site) -> ir.Value:
    x, weight, *bias = s.values
    if s.attributes.flag("flatten", True) and s.rank != 2:
        x = s.op("Flatten", x, axis=1)
    elif s.rank != 2:
        made = s.op("MatMul", x, s.op("Transpose", weight, perm=[1, 0]))
        return s.op("Add", made, *bias) if bias else made
    return s.op("Gemm", x, weight, *bias, transB=1)


ELEMENTS: Mapping[str, Lowering] = {
    **{name: _simple(kind) for name, kind in _UNARY.items()},
    **{name: _simple(_UNARY[kind]) for name, kind in ALIASES.items()},
    **{name: _binary(kind) for kind, names in NAMES.items() for name in names},
    **{name: _scalar(name) for name in SCALAR},
    **{name: _reduction(name) for name in REDUCTIONS},
    "rsqrt": _rsqrt,
    "square": _square,
    "zeros_like": _filled(0.0),
    "ones_like": _filled(1.0),
    "norm": _norm,
    "argmax": _argmax,
    "clip": _clip,
    "add_n": _sum,
    "ElementWiseSum": _sum,
    "dot": _dot,
    "batch_dot": _batch_dot,
    "where": _where,
    "Dropout": _simple("Identity"),
    "FullyConnected": _fully_connected,
}
