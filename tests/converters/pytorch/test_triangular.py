"""Triangular systems that a loop solves row by row, as the gated delta rule has them, become products of blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.operators.triangular import solve_at_once

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS = 13


def masked(a: Tensor) -> Tensor:
    return -a.masked_fill(torch.ones(ROWS, ROWS, dtype=torch.bool).triu(), 0)


class Solving(nn.Module):
    """Rows of a matrix that ``cut`` makes triangular; ``between`` happens in the middle of the loop."""

    def __init__(self, cut: Callable[[Tensor], Tensor], between: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.cut, self.between = cut, between

    def forward(self, a: Tensor) -> tuple[Tensor, ...]:
        seen = []
        solved = self.cut(a * 0.5)
        for i in range(1, ROWS):
            row, above = solved[..., i, :i].clone(), solved[..., :i, :i].clone()
            solved[..., i, :i] = row + (row.unsqueeze(-1) * above).sum(-2)
            if i == 5 and self.between:
                seen.append(self.between(solved))
        return solved + torch.eye(ROWS), *seen


CASES = [
    pytest.param(Solving(lambda a: -a.tril(-1)), True, id="the lower triangle"),
    pytest.param(Solving(lambda a: -a.tril(-3)), True, id="less than the lower triangle"),
    pytest.param(Solving(masked), True, id="masked from the diagonal on"),
    pytest.param(Solving(lambda a: -a.tril()), False, id="with a diagonal"),
    pytest.param(Solving(lambda a: -a), False, id="a whole matrix"),
    pytest.param(Solving(lambda a: -a.tril(-1), lambda solved: solved.sum(-1)), False, id="read half solved"),
    pytest.param(Solving(lambda a: -a.tril(-1), lambda solved: solved[..., 3, :].mul_(2)), False, id="changed in it"),
]


@pytest.mark.parametrize(("model", "at_once"), CASES)
def test_the_matrix_is_that_of_the_loop(model: Solving, at_once: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    one, other = (torch.randn(n, 3, ROWS, ROWS, generator=generator) for n in (2, 5))
    batch = ({0: torch.export.Dim("batch", min=2, max=64)},)
    program = torch.export.export(model, (one,), dynamic_shapes=batch, strict=False)
    solve_at_once(program)
    assert at_once == all("copy_" not in str(node.target) for node in program.graph.nodes)
    program = program.run_decompositions({})  # sizes that are dynamic stay so
    for a in (one, other):
        torch.testing.assert_close(program.module()(a), model(a), rtol=1e-5, atol=1e-5)
