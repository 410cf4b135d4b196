"""Attention whose masks may hide every key; importable as ``mask_models:NAME``."""

from __future__ import annotations

import torch
from team_models import Seeded
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

_X = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
_HIDDEN = torch.tensor([[False, False, False, True, True], [False] * 5])


class Booleans(Seeded):
    """True where a key is seen, without heads."""

    example_inputs = (_X, ~_HIDDEN)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x * 0.5, x, attn_mask=mask[:, None, :])


class Heads(Seeded):
    """The same with one head."""

    example_inputs = (_X, ~_HIDDEN)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        split = x[:, None]
        return scaled_dot_product_attention(split, split * 0.5, split, attn_mask=mask[:, None, None, :])[:, 0]


class Floats(Seeded):
    """Minus infinity where a key is hidden."""

    example_inputs = (_X, _HIDDEN)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        added = torch.zeros_like(mask, dtype=x.dtype).masked_fill(mask, float("-inf"))
        return scaled_dot_product_attention(x, x * 0.5, x, attn_mask=added[:, None, :])


class Integers(Seeded):
    """1 where a key is seen, as tokenizers say it."""

    example_inputs = (_X, (~_HIDDEN).long())

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        added = torch.zeros(mask.shape, dtype=x.dtype).masked_fill(mask == 0, float("-inf"))
        return scaled_dot_product_attention(x, x * 0.5, x, attn_mask=added[:, None, :])


class Layers(Seeded):
    """Attention as torch's own layers have it, of one input to another: to itself, a kernel gives NaN."""

    example_inputs = (_X, _HIDDEN)

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, x * 0.5, x, key_padding_mask=mask, need_weights=False)[0]


class ByHand(Seeded):
    """A plain softmax: NaN where nothing is left."""

    example_inputs = (_X, _HIDDEN)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = (x @ x.transpose(1, 2)).masked_fill(mask[:, None, :], float("-inf"))
        return scores.softmax(-1) @ x


class Causal(Seeded):
    """A mask that is the same for every input, and hides all keys from no query."""

    example_inputs = (_X,)

    def forward(self, x: Tensor) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        added = torch.zeros(x.shape[1], x.shape[1]).masked_fill(later, float("-inf"))
        return scaled_dot_product_attention(x, x * 0.5, x, attn_mask=added)
