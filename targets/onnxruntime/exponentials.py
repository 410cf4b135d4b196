"""Elu, Selu and Celu that keep their digits near 0.

ONNX Runtime's kernels compute ``exp(x) - 1``, which has an error of 6e-8 however small ``x`` is: 2 % of 1e-6, all of
1e-9.  In ``exp(u) - 1 = tanh(u / 2) (exp(u) + 1)`` each factor keeps its digits.  For 200,000 elements these operators
take 0.6 times as long as the one kernel, for 400 they take 2 µs more.
Measured: ONNX Runtime 1.31, by ``tests/targets/onnxruntime/test_exponentials.py`` and ``bench/elu.py``.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import is_float32, producer, replaced
from convertkit.onnx.recognise.match import added, scalar

_ALPHAS = {"Elu": 1.0, "Selu": 1.6732631921768188, "Celu": 1.0}
_GAMMA = 1.0507010221481323
"""Defaults of ONNX; Selu's are float32."""


def keep_small_exponentials(model: ir.Model) -> None:
    """Write Elu, Selu and Celu of float32 by their factors, in place; behind integers no value is that small."""
    for node in [each for each in model.graph.all_nodes() if each.op_type in _ALPHAS and not each.domain]:
        if is_float32(node.outputs[0]) and producer(node.inputs[0], "DequantizeLinear") is None:
            _rewrite(node)


def _rewrite(node: ir.Node) -> None:
    """``g relu(x) + g a tanh(u / 2) (exp(u) + 1)`` with ``u = min(x, 0) / s``."""
    x = node.inputs[0]
    assert x is not None
    alpha = node.attributes.get_float("alpha", _ALPHAS[node.op_type])
    gamma = node.attributes.get_float("gamma", _GAMMA) if node.op_type == "Selu" else 1.0

    stem = f"{node.outputs[0].name}/"

    def made(name: str, operator: str, *inputs: ir.Value) -> ir.Value:
        return added(node, operator, list(inputs), node.outputs[0], stem + name)

    below = made("below", "Min", x, scalar(node, 0.0, stem + "zero"))
    if node.op_type == "Celu":
        below = made("scaled", "Div", below, scalar(node, alpha, stem + "alpha"))
    half = made("tanh", "Tanh", made("half", "Mul", below, scalar(node, 0.5, stem + "one half")))
    factor = scalar(node, alpha * gamma, stem + "factor")
    grown = made("grown", "Add", made("times", "Mul", made("exp", "Exp", below), factor), factor)
    above = made("above", "Relu", x)
    if gamma != 1.0:
        above = made("steeper", "Mul", above, scalar(node, gamma, stem + "gamma"))
    replaced(node, "Add", [above, made("product", "Mul", half, grown)])
