"""Attention in which a float mask leaves a query no key, for torch's TorchScript-based exporter: zeros, no NaN.

The exporter itself writes them for masks of booleans only.  Source of the rule: ``_safe_softmax`` in
aten/src/ATen/native/transformers/attention.cpp; ``operators/masked_attention.py`` keeps it for torch.export.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from convertkit.converters.pytorch.compat import exporters

_OPSET = 14
_SIZES = frozenset({"onnx::Shape", "onnx::Size"})
"""What tells of its input nothing that a mask could be made from."""


def define() -> None:
    """Tell the exporter; masks that cannot hide all keys are written as before."""
    exporters.register("aten::scaled_dot_product_attention", _attention, _OPSET)


def _attention(
    g: Any, query: Any, key: Any, value: Any, mask: Any, dropout: Any, causal: Any, scale: Any, grouped: Any
) -> Any:
    mixed = exporters.attention(g, query, key, value, mask, dropout, causal, scale, grouped)
    if exporters.is_none(mask) or not _may_hide_all(g, mask):
        return mixed
    dtype = exporters.dtype(mask)
    if not dtype.is_floating_point:
        return mixed
    highest = g.op("ReduceMax", mask, g.op("Constant", value_t=torch.tensor([-1])), keepdims_i=1)
    nothing_left = g.op("Equal", highest, g.op("Constant", value_t=torch.tensor(-math.inf, dtype=dtype)))
    return g.op("Where", nothing_left, g.op("Constant", value_t=torch.tensor(0.0, dtype=dtype)), mixed)


def _may_hide_all(g: Any, mask: Any) -> bool:
    """Whether the mask is computed from values of an input, and minus infinity is among what it is computed with."""
    inputs = {each.debugName() for each in g.graph.inputs()}
    seen: dict[str, Any] = {}
    waiting = [mask]
    while waiting:
        value = waiting.pop()
        if value.debugName() not in seen and value.node().kind() not in _SIZES:
            seen[value.debugName()] = value
            waiting += value.node().inputs()
    given = any(name in inputs and name not in g.params_dict for name in seen)
    return given and any(_is_infinite(g.params_dict.get(name), value.node()) for name, value in seen.items())


def _is_infinite(held: torch.Tensor | None, node: Any) -> bool:
    """Whether a parameter, or a constant's node, has minus infinity."""
    if held is None and node.kind() == "onnx::Constant" and node.kindOf("value") == "t":
        held = node.t("value")
    return held is not None and held.is_floating_point() and bool((held == -math.inf).any())
