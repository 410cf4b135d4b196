"""Operands of several types: ``1.0 - mask``, ``clamp(x, 0, 0.5)``, sums of flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import convertkit
from convertkit.converters.pytorch.operators.missing_ops import substitutes

pytestmark = pytest.mark.filterwarnings("ignore")
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "one minus a mask": lambda m: 1.0 - m,
    "a factor": lambda m: torch.rsub(m, 2.5, alpha=2),
    "narrow integers": lambda m: 0.1 - m.to(torch.uint8),
    "flags": lambda m: torch.rsub(m.to(torch.int32), -3.0),
    "an integer below, a real above": lambda m: torch.clamp(m * 0.3, -1, 0.5),
    "a real below, an integer above": lambda m: torch.clamp(m, min=0.25, max=3),
    "flags within": lambda m: torch.clamp(m > 0, 0, 0.5),
    "in place": lambda m: (m * 0.3).clamp_(0, 0.5),
    "flags or flags": lambda m: (m > 1) + (m < 1),
    "stacked flags and reals": lambda m: torch.stack([m > 0, m * 0.5]).sum(0),
    "positions times frequencies": lambda m: torch.einsum("i, j -> i j", m[:, 0], m[1] * 0.3),
    "flags, integers and reals": lambda m: torch.einsum("ij, ij, ij -> ij", m > 0, m, m * 0.3),
    "integers to a real power": lambda m: torch.pow(m, m * 0.5),
    "floor of integers": torch.floor,
    "ceil of integers": torch.ceil,
    "trunc of narrow integers": lambda m: torch.trunc(m.to(torch.int32)),
    "rounded integers": torch.round,
    "no integer is NaN": lambda m: torch.isnan(m) | torch.isinf(m),
    "integers are finite": torch.isfinite,
    "angle of integers": lambda m: torch.angle(m - 1),
    "softmax of integers": lambda m: torch.softmax(m, 1, dtype=torch.float32),
    "log softmax of integers": lambda m: torch.log_softmax(m, -1, dtype=torch.float32),
    "mean of integers": lambda m: torch.mean(m, dtype=torch.float32) + m.mean(1, True, dtype=torch.float32),
    "mean of flags": lambda m: torch.mean(m > 0, (0, 1), dtype=torch.float32),
    "any byte": lambda m: torch.any(m.to(torch.uint8), 1, keepdim=True),
    "all bytes": lambda m: torch.all(m.to(torch.uint8)),
    "close flags": lambda m: torch.isclose(m > 0, m > 1),
    "shifted by integers": lambda m: (m - 2) << (m * 7),
    "shifted back by integers": lambda m: (m * 1000 - 1001) >> (m * 2 + 1),
    "shifted far by integers": lambda m: ((m - 1) << (m * 17)) + ((m * 2**40 - 2**52) >> (m * 11 + 5)),
    "narrow integers shifted": lambda m: torch.bitwise_left_shift((m - 1).to(torch.int8), m.to(torch.int8)),
}
TAKEN_APART = {
    "close flags", "integers are finite", "softmax of integers", "log softmax of integers", "stacked flags and reals",
    "positions times frequencies", "flags, integers and reals",
}  # fmt: skip
"""What torch itself has taken apart in a program that was decomposed before."""


class Masked(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return tuple(x + function(mask) for function in FUNCTIONS.values())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("decomposed", [False, True])
def test_each_is_taken_apart_into_the_same_numbers(name: str, decomposed: bool) -> None:
    class One(nn.Module):
        def forward(self, mask: Tensor) -> Tensor:
            return FUNCTIONS[name](mask)

    mask = torch.tensor([[1, 1, 0], [1, 0, 4]])
    program = torch.export.export(One(), (mask,), strict=False)
    if decomposed:
        program = program.run_decompositions()
    table = substitutes(program)
    assert table or (decomposed and name in TAKEN_APART)
    made, expected = program.run_decompositions(table).module()(mask), FUNCTIONS[name](mask)
    assert made.dtype == expected.dtype
    torch.testing.assert_close(made, expected, rtol=0, atol=0)


def test_one_type_is_left_alone() -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 1.0 - torch.clamp(x, -1.0, 2.5).clamp_(0, 1) + 2

    assert not substitutes(torch.export.export(One(), (torch.randn(3),), strict=False))


def test_a_mask_of_integers_is_delivered(tmp_path: Path) -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 1]])
    torch.export.save(torch.export.export(Masked(), (torch.randn(2, 3), mask), strict=False), tmp_path / "masked.pt2")
    options = convertkit.ExportOptions(
        str(tmp_path / "masked.pt2"), targets=("onnxruntime", "tflite"), output=str(tmp_path / "out")
    )
    x = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)
    expected = [each.numpy() for each in Masked()(torch.from_numpy(x), mask)]
    for result in convertkit.export_all(options):
        for got, want in zip(result.run({"x": x, "mask": mask.numpy()}).values(), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
