"""Operators of types that ONNX Runtime has no kernel of, written in operators that it has.

Of float64 it lacks many activations.  A Softplus-1 of float16 or float64 it computes as ``log(exp(x) + 1)``, the body
that opset 18 gives it: infinite above 88, or above 709.  So it is with ReduceLogSumExp-18 of float16.
Measured: ONNX Runtime 1.31, by ``tests/onnx/test_lacking_kernels.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import initializer, inserted, replaced

_OVERFLOW = frozenset({"Softplus", "ReduceLogSumExp"})
_NEAR_ZERO = 1e-3
"""Below it ``exp(x) - exp(-x)`` loses digits, and three terms of the series have them all."""
_TINY = 1e-4
"""The same for three terms of ``exp(x) - 1`` and of ``log(1 + x)``."""


def write_out_lacking(model: ir.Model) -> None:
    """Write the activations of float64, and of float16 what would overflow, in place."""
    for node in [node for node in model.graph.all_nodes() if not node.domain]:
        x = node.inputs[0] if node.inputs else None
        if x is None:
            continue
        if x.dtype == ir.DataType.DOUBLE and node.op_type in _FORMS:
            _end(node, _FORMS[node.op_type](_Writer(node, x), x))
        elif x.dtype == ir.DataType.FLOAT16 and node.op_type in _OVERFLOW:
            _in_float32(node, x)


def _in_float32(node: ir.Node, x: ir.Value) -> None:
    wide = inserted(node, "Cast", [x], x, {"to": int(ir.DataType.FLOAT)}).outputs[0]
    wide.type = ir.TensorType(ir.DataType.FLOAT)
    flags = {name: node.attributes.get_int(name, 0) for name in node.attributes}
    operands = [wide, *(value for value in node.inputs[1:] if value is not None)]
    computed = inserted(node, node.op_type, operands, node.outputs[0], flags).outputs[0]
    computed.type = ir.TensorType(ir.DataType.FLOAT)
    replaced(node, "Cast", [computed], {"to": int(ir.DataType.FLOAT16)})


def _end(node: ir.Node, result: ir.Value) -> None:
    """``result`` in the place of what ``node`` computes."""
    last = result.producer()
    assert last is not None
    operands = [value for value in last.inputs if value is not None]
    assert last.graph is not None
    replaced(node, last.op_type, operands)
    last.graph.remove(last, safe=True)


class _Writer:
    """Nodes of float64 in front of one node."""

    def __init__(self, node: ir.Node, like: ir.Value) -> None:
        self._node, self._like = node, like

    def op(self, operator: str, *operands: ir.Value | float, dtype: ir.DataType = ir.DataType.DOUBLE) -> ir.Value:
        """The result of an operator on values and numbers."""
        values = [each if isinstance(each, ir.Value) else self._number(each) for each in operands]
        made = inserted(self._node, operator, values, self._like).outputs[0]
        made.type = ir.TensorType(dtype)
        return made

    def choose(self, operator: str, x: ir.Value, bound: float, yes: ir.Value | float, no: ir.Value | float) -> ir.Value:
        """``yes`` where ``operator`` (Less or Greater) holds of ``x`` and ``bound``, else ``no``."""
        return self.op("Where", self.op(operator, x, bound, dtype=ir.DataType.BOOL), yes, no)

    def given(self, name: str, default: float) -> float:
        """A float attribute of the node."""
        found: float = self._node.attributes.get_float(name, default)
        return found

    def _number(self, number: float) -> ir.Value:
        return initializer(self._node, np.array(number, np.float64), f"{self._node.outputs[0].name}/{number:g}")


def _leaky_relu(w: _Writer, x: ir.Value) -> ir.Value:
    return w.choose("Less", x, 0.0, w.op("Mul", x, w.given("alpha", 0.01)), x)


def _elu(w: _Writer, x: ir.Value) -> ir.Value:
    return _grown(w, x, w.given("alpha", 1.0))


def _grown(w: _Writer, x: ir.Value, alpha: float) -> ir.Value:
    inner = w.op("Add", w.op("Mul", w.op("Add", w.op("Mul", x, 1 / 3), 1.0), w.op("Mul", x, 0.5)), 1.0)
    far = w.op("Sub", w.op("Exp", w.op("Min", x, 0.0)), 1.0)
    below = w.choose("Greater", x, -_TINY, w.op("Mul", x, inner), far)
    return w.choose("Less", x, 0.0, w.op("Mul", below, alpha), x)


def _selu(w: _Writer, x: ir.Value) -> ir.Value:
    alpha, gamma = w.given("alpha", 1.67326319217681884765625), w.given("gamma", 1.05070102214813232421875)
    return w.op("Mul", _grown(w, x, alpha), gamma)


def _thresholded_relu(w: _Writer, x: ir.Value) -> ir.Value:
    return w.choose("Greater", x, w.given("alpha", 1.0), x, 0.0)


def _hard_sigmoid(w: _Writer, x: ir.Value) -> ir.Value:
    return _ramp(w, x, w.given("alpha", 0.2), w.given("beta", 0.5))


def _ramp(w: _Writer, x: ir.Value, slope: float, offset: float) -> ir.Value:
    return w.op("Max", w.op("Min", w.op("Add", w.op("Mul", x, slope), offset), 1.0), 0.0)


def _hard_swish(w: _Writer, x: ir.Value) -> ir.Value:
    return w.op("Mul", x, _ramp(w, x, 1 / 6, 0.5))


def _softsign(w: _Writer, x: ir.Value) -> ir.Value:
    return w.op("Div", x, w.op("Add", w.op("Abs", x), 1.0))


def _softplus(w: _Writer, x: ir.Value) -> ir.Value:
    """``max(x, 0) + log(1 + exp(-|x|))``."""
    small = w.op("Exp", w.op("Neg", w.op("Abs", x)))
    inner = w.op("Sub", 1.0, w.op("Mul", small, w.op("Sub", 0.5, w.op("Mul", small, 1 / 3))))
    logarithm = w.choose("Less", small, _TINY, w.op("Mul", small, inner), w.op("Log", w.op("Add", small, 1.0)))
    return w.op("Add", w.op("Max", x, 0.0), logarithm)


def _mish(w: _Writer, x: ir.Value) -> ir.Value:
    return w.op("Mul", x, w.op("Tanh", _softplus(w, x)))


def _tan(w: _Writer, x: ir.Value) -> ir.Value:
    return w.op("Div", w.op("Sin", x), w.op("Cos", x))


def _cosh(w: _Writer, x: ir.Value) -> ir.Value:
    return w.op("Add", *_halves_of_powers(w, x))


def _sinh(w: _Writer, x: ir.Value) -> ir.Value:
    square = w.op("Mul", x, x)
    inner = w.op("Add", w.op("Mul", square, 1 / 120), 1 / 6)
    series = w.op("Add", x, w.op("Mul", w.op("Mul", square, inner), x))
    return w.choose("Less", w.op("Abs", x), _NEAR_ZERO, series, w.op("Sub", *_halves_of_powers(w, x)))


def _halves_of_powers(w: _Writer, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``exp(x) / 2`` and ``exp(-x) / 2``."""
    return w.op("Mul", w.op("Exp", x), 0.5), w.op("Mul", w.op("Exp", w.op("Neg", x)), 0.5)


_FORMS: Mapping[str, Callable[[_Writer, ir.Value], ir.Value]] = {
    "Cosh": _cosh,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Mish": _mish,
    "Selu": _selu,
    "Sinh": _sinh,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Tan": _tan,
    "ThresholdedRelu": _thresholded_relu,
}
