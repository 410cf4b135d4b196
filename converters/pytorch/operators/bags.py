"""Bags of embeddings (``aten::embedding_bag``): rows looked up and put together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten
_BAG_DEFAULTS = (False, 0, False, None, False, None)


def embedding_bag(weight: Tensor, ids: Tensor, offsets: Tensor, *rest: Any) -> Any:
    """Bags that begin at ``offsets``: rows looked up and put together; ``rest`` as ``aten::embedding_bag`` has it."""
    _, mode, _, sample_weights = (*rest, *(False, 0, False, None)[len(rest) :])[:4]
    rows = torch.embedding(weight, ids)
    if sample_weights is not None:
        rows = rows * sample_weights.unsqueeze(1)
    unread = torch.zeros_like(offsets)
    return _BAGS[mode](rows, _members(offsets, ids)), unread, unread, unread


def _members(offsets: Tensor, ids: Tensor) -> Tensor:
    """Which ids lie in which bag, as bags × ids: those behind its beginning and not behind the next one's."""
    places = torch.arange(ids.shape[0], dtype=offsets.dtype, device=offsets.device)
    begun = offsets.unsqueeze(1) <= places
    return begun & ~torch.cat([begun[1:], begun[:1] & False])


def _summed(rows: Tensor, members: Tensor) -> Tensor:
    return members.to(rows.dtype) @ rows


def _mean(rows: Tensor, members: Tensor) -> Tensor:
    return _summed(rows, members) / members.to(rows.dtype).sum(1, keepdim=True).clamp(min=1)


def _largest(rows: Tensor, members: Tensor) -> Tensor:
    """Of an empty bag, 0."""
    most = rows.unsqueeze(0).masked_fill(~members.unsqueeze(2), float("-inf")).amax(1)
    return most.masked_fill(~members.any(1, keepdim=True), 0.0)


_BAGS = (_summed, _mean, _largest)


def even_bags(weight: Tensor, ids: Tensor, offsets: Tensor, *rest: Any) -> Any:
    """Bags of one size: as many rows each, looked up and put together; ``rest`` as ``aten::embedding_bag`` has it."""
    _, mode, _, sample_weights = (*rest, *(False, 0, False, None)[len(rest) :])[:4]
    bags = offsets.shape[0]
    rows = torch.embedding(weight, ids).reshape(bags, ids.shape[0] // bags, weight.shape[1])
    if sample_weights is not None:
        rows = rows * sample_weights.reshape(bags, -1, 1)
    result = (rows.sum(1), rows.mean(1), rows.amax(1))[mode]
    unread = torch.zeros_like(offsets)
    return result, unread, unread, unread


def without_indices(node: Any) -> bool:
    """Whether nothing reads a result but the first."""
    return all(user.args[1] == 0 or not user.users for user in node.users)


def are_even(node: Any) -> bool:
    """Whether the bags begin at every so many ids, and only what they come to is read."""
    offsets = node.args[2]
    even = offsets.op == "call_function" and offsets.target in (_ATEN.arange.start_step, _ATEN.arange.default)
    return even and _are_plain(node)


def are_uneven(node: Any) -> bool:
    """Whether they begin anywhere else, and only what they come to is read."""
    return _are_plain(node) and not are_even(node)


def _are_plain(node: Any) -> bool:
    options = (*node.args[3:], *_BAG_DEFAULTS[len(node.args) - 3 :])
    return not options[4] and options[5] in (None, -1) and without_indices(node)
