"""Mixtures of experts as transformers and torch write them: rows by the matrix of their expert."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import convertkit
from convertkit.converters.pytorch.operators import experts
from convertkit.converters.pytorch.operators.missing_ops import substitutes

pytestmark = pytest.mark.filterwarnings("ignore")
experts.define()


class Mixture(nn.Module):
    """The best of five experts for each row, sorted by expert and put back."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.router = nn.Parameter(torch.randn(8, 5, generator=generator))
        self.weight = nn.Parameter(torch.randn(5, 8, 16, generator=generator))

    def product(self, rows: Tensor, ends: Tensor) -> Tensor:
        made: Tensor = torch.ops.transformers.grouped_mm_fallback(rows, self.weight, ends)
        return made

    def forward(self, x: Tensor) -> Tensor:
        expert = (x @ self.router).argmax(-1)
        order = torch.argsort(expert, stable=True)
        ends = torch.nn.functional.one_hot(expert, 5).sum(0).cumsum(0).to(torch.int32)
        return self.product(x[order], ends)[torch.argsort(order, stable=True)]


class OfTorch(Mixture):
    """torch exports its own operator of bfloat16 alone."""

    def product(self, rows: Tensor, ends: Tensor) -> Tensor:
        made: Tensor = torch._grouped_mm(rows.bfloat16(), self.weight.bfloat16(), ends)
        return made.float()


def expected(model: Mixture, x: Tensor) -> Tensor:
    expert = (x @ model.router).argmax(-1)
    return torch.einsum("sk,skn->sn", x, model.weight[expert])


@pytest.mark.parametrize(("kind", "within"), [(Mixture, 1e-5), (OfTorch, 0.1)])
def test_each_row_meets_its_expert(kind: type[Mixture], within: float) -> None:
    model, x = kind().eval(), torch.randn(11, 8, generator=torch.Generator().manual_seed(2))
    program = torch.export.export(model, (x,), strict=False)
    assert "grouped_mm" in str([node.target for node in program.graph.nodes])
    taken = program.run_decompositions(substitutes(program))
    assert "grouped_mm" not in str([node.target for node in taken.graph.nodes])
    torch.testing.assert_close(taken.module()(x), expected(model, x), rtol=0, atol=within)


def test_rows_behind_the_last_end_are_zero() -> None:
    x, weight = torch.randn(4, 3), torch.randn(2, 3, 5)
    made = experts.grouped(x, weight, torch.tensor([1, 3]))
    torch.testing.assert_close(made, torch.cat([x[:1] @ weight[0], x[1:3] @ weight[1], torch.zeros(1, 5)]))


def test_a_saved_program_of_them_is_read_and_delivered(tmp_path: Path) -> None:
    model, example = Mixture().eval(), torch.randn(11, 8, generator=torch.Generator().manual_seed(3))
    torch.export.save(torch.export.export(model, (example,), strict=False), tmp_path / "mixture.pt2")
    options = convertkit.ExportOptions(
        str(tmp_path / "mixture.pt2"), targets=("onnxruntime", "tflite"), output=str(tmp_path / "out")
    )
    x = np.random.default_rng(4).standard_normal((11, 8)).astype(np.float32)
    for result in convertkit.export_all(options):
        (got,) = result.run(x).values()
        np.testing.assert_allclose(got, expected(model, torch.from_numpy(x)).detach().numpy(), rtol=0, atol=1e-5)
