"""What scripted cells of recurrent layers need of torch's TorchScript-based exporter, which has it for whole layers.

Semantics: torch/nn/modules/rnn.py, GRUCell; ONNX Gemm-13.
"""

from __future__ import annotations

from typing import Any

import torch

from convertkit.converters.pytorch.compat import exporters

_OPSET = 9


def define() -> None:
    """Tell the exporter; where it knows the operator itself, only what it refuses changes."""
    exporters.register("aten::__contains_", _contains, _OPSET)
    exporters.register("aten::gru_cell", _gru_cell, _OPSET)


def _contains(g: Any, values: Any, element: Any) -> Any:
    """``x.dim() in (1, 2)``, which cells ask before they compute: the exporter's own form reads no folded tuples."""
    if not (exporters.is_constant(values) and exporters.is_constant(element)):
        return exporters.contains(g, values, element)
    known, asked = (exporters.constant(each) for each in (values, element))
    return g.op("Constant", value_t=torch.tensor(int(asked) in known.tolist()))


def _gru_cell(g: Any, x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any, b_h: Any) -> Any:
    """(batch, features) and (batch, hidden) → (batch, hidden); torch's gates are reset, update and new."""
    (r_x, z_x, n_x), (r_h, z_h, n_h) = (_gates(g, *each) for each in ((x, w_x, b_x), (h, w_h, b_h)))
    reset, update = (g.op("Sigmoid", g.op("Add", a, b)) for a, b in ((r_x, r_h), (z_x, z_h)))
    new = g.op("Tanh", g.op("Add", n_x, g.op("Mul", reset, n_h)))
    return g.op("Add", new, g.op("Mul", update, g.op("Sub", h, new)))


def _gates(g: Any, x: Any, weight: Any, bias: Any) -> Any:
    given = [] if exporters.is_none(bias) else [bias]
    return g.op("Split", g.op("Gemm", x, weight, *given, transB_i=1), num_outputs_i=3, axis_i=1, outputs=3)
