"""A module with an operator of its own, which torch has no lowering for."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.library.custom_op("convertkit_tests::twice", mutates_args=())
def twice(x: Tensor, times: float) -> Tensor:
    return x * times * 2.0


@twice.register_fake
def _(x: Tensor, times: float) -> Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    example_inputs = (torch.zeros(2, 4),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.convertkit_tests.twice(self.layer(x), 0.5)


class Decomposed(nn.Module):
    """An operator that torch takes apart before anything refuses a part of it."""

    example_inputs = (torch.eye(3)[None].repeat(2, 1, 1),)

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.ldl_factor(x + x.mT)[0]
