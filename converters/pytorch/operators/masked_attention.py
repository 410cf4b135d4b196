"""Attention in which a mask leaves a query no key: torch gives zeros there, a softmax gives NaN.

torch.onnx adds masks, the lowest number of its type for False: that hides nothing where it hides all, and the mean of
the values comes out.  Source of the rule: ``_safe_softmax`` in
aten/src/ATen/native/transformers/attention.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

_ATEN = torch.ops.aten


def keep_zeros(program: Any) -> None:
    """Write those zeros out, in place, behind every attention whose mask may hide all keys from a query."""
    graph, held = program.graph_module.graph, _held(program)
    inputs = set(program.graph_signature.user_inputs)
    for node in list(graph.nodes):
        if node.target is not _ATEN.scaled_dot_product_attention.default:
            continue
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if mask is None or not _may_hide_all(mask, inputs, held):
            continue
        with graph.inserting_after(node):
            filled = graph.call_function(_ATEN.masked_fill.Scalar, (node, None, 0.0))
        with graph.inserting_before(filled):
            if _is_float(mask):
                hidden = graph.call_function(_ATEN.eq.Scalar, (mask, -math.inf))
            else:
                hidden = graph.call_function(_ATEN.logical_not.default, (mask,))
            nothing_left = graph.call_function(_ATEN.all.dim, (hidden, -1, True))
        for each in (hidden, nothing_left):
            first, *others = each.args
            each.meta["val"] = each.target(first.meta["val"], *others)  # of fakes: what it would be, not computed
        node.replace_all_uses_with(filled)
        filled.args, filled.meta["val"] = (node, nothing_left, 0.0), node.meta["val"]
        program.graph_signature.replace_all_uses(node.name, filled.name)
    program.graph_module.recompile()


def _held(program: Any) -> Mapping[str, torch.Tensor]:
    """Buffers and constants, by the name of the placeholder that stands for them."""
    signature = program.graph_signature
    stored = {**program.constants, **program.state_dict}
    places = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    return {name: stored[place] for name, place in places.items() if isinstance(stored.get(place), torch.Tensor)}


def _may_hide_all(mask: Any, inputs: set[str], held: Mapping[str, torch.Tensor]) -> bool:
    """Whether the mask is computed from values of an input, one of floats with minus infinity among them."""
    seen: set[Any] = set()
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node not in seen and isinstance(node.meta.get("val"), torch.Tensor):  # numbers are sizes
            seen.add(node)
            waiting += node.all_input_nodes
    infinite = not _is_float(mask) or any(_is_infinite(arg) for node in seen for arg in node.args)
    infinite = infinite or any(bool((held[node.name] == -math.inf).any()) for node in seen if node.name in held)
    return infinite and any(node.name in inputs for node in seen)


def _is_float(mask: Any) -> bool:
    floating: bool = mask.meta["val"].is_floating_point()
    return floating


def _is_infinite(argument: Any) -> bool:
    return isinstance(argument, float) and argument == -math.inf
