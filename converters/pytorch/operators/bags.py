"""Bags of embeddings (``aten::embedding_bag``): rows looked up and put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten
_BAG_DEFAULTS = (False, 0, False, None, False, None)
_SUM, _MAX = 0, 2


def embedding_bag(weight: Tensor, ids: Tensor, offsets: Tensor, *rest: Any) -> Any:
    """Bags that begin at ``offsets``: rows looked up and put together; ``rest`` as ``aten::embedding_bag`` has it."""
    _, mode, _, sample_weights, _, padding = _options(rest)
    rows = torch.embedding(weight, ids)
    if sample_weights is not None:
        rows = rows * sample_weights.unsqueeze(1)
    members = _members(offsets, ids)
    if padding is not None:
        members = members & _counts(weight, ids, padding)
    unread = torch.zeros_like(offsets)
    return _BAGS[mode](rows, members), unread, unread, unread


def _options(given: Sequence[Any]) -> tuple[Any, ...]:
    return (*given, *_BAG_DEFAULTS[len(given) :])


def _counts(weight: Tensor, ids: Tensor, padding: int) -> Tensor:
    """Which ids are none of padding; a negative one counts from the last row."""
    return torch.ne(ids, padding % weight.shape[0])


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
    _, mode, _, sample_weights, _, padding = _options(rest)
    bags = offsets.shape[0]
    size = ids.shape[0] // bags
    rows = torch.embedding(weight, ids).reshape(bags, size, weight.shape[1])
    if sample_weights is not None:
        rows = rows * sample_weights.reshape(bags, -1, 1)
    if padding is None:
        result = (rows.sum(1), rows.mean(1), rows.amax(1))[mode]
    else:
        result = _without_padding(rows, _counts(weight, ids, padding).reshape(bags, size, 1), mode)
    unread = torch.zeros_like(offsets)
    return result, unread, unread, unread


def _without_padding(rows: Tensor, counts: Tensor, mode: int) -> Tensor:
    """Of the rows that count, or 0 where none does."""
    if mode == _MAX:
        return rows.masked_fill(~counts, float("-inf")).amax(1).masked_fill(~counts.any(1), 0.0)
    total = rows.masked_fill(~counts, 0.0).sum(1)
    return total if mode == _SUM else total / counts.to(rows.dtype).sum(1).clamp(min=1)


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
    return not _options(node.args[3:])[4] and without_indices(node)
