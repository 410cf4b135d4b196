"""A kernel for each sample: as many groups as the batch has samples, a modulated convolution as in StyleGAN."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import convertkit
from convertkit.converters.pytorch.operators.missing_ops import substitutes

pytestmark = pytest.mark.filterwarnings("ignore")
OPTIONS = {
    "plain": {"padding": 1},
    "strides": {"stride": (2, 1), "padding": (0, 2)},
    "dilations": {"dilation": (1, 2), "padding": (1, 0)},
}


class Modulated(nn.Module):
    def __init__(self, biased: bool, **options: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 2))
        self.biased, self.options = biased, options

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        weight = self.weight[None] * style[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        batch, _, height, width = x.shape
        bias = style[:, :1].expand(-1, 6).reshape(-1) if self.biased else None
        image, kernels = x.reshape(1, -1, height, width), weight.reshape(-1, 4, 3, 2)
        result = functional.conv2d(image, kernels, bias, groups=batch, **self.options)
        return result.reshape(batch, 6, *result.shape[2:])


def exported(model: nn.Module) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch")
    inputs = (torch.randn(2, 4, 7, 9), torch.randn(2, 4))
    return torch.export.export(model, inputs, dynamic_shapes=({0: batch}, {0: batch}), strict=False)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("biased", [False, True])
def test_each_form_computes_the_same(options: str, biased: bool) -> None:
    torch.manual_seed(0)
    model = Modulated(biased, **OPTIONS[options])
    program = exported(model)
    table = substitutes(program)
    assert torch.ops.aten.conv2d.default in table
    made = program.run_decompositions(table).module()
    for batch in (2, 1, 5):
        x, style = torch.randn(batch, 4, 7, 9), torch.randn(batch, 4)
        torch.testing.assert_close(made(x, style), model(x, style), rtol=1e-5, atol=1e-5)


def test_known_groups_stay_groups() -> None:
    assert not substitutes(torch.export.export(nn.Conv2d(4, 6, 3, groups=2), (torch.randn(2, 4, 7, 9),)))


def test_a_modulated_convolution_is_delivered(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Modulated(False, padding=1)
    torch.export.save(exported(model), tmp_path / "modulated.pt2")
    options = convertkit.ExportOptions(
        str(tmp_path / "modulated.pt2"), targets=("onnxruntime",), output=str(tmp_path / "out")
    )
    (result,) = convertkit.export_all(options)
    x, style = np.random.default_rng(4).standard_normal((3, 4, 7, 9)), np.random.default_rng(5).standard_normal((3, 4))
    given = {"x": x.astype(np.float32), "style": style.astype(np.float32)}
    expected = model(*map(torch.from_numpy, given.values())).detach().numpy()
    np.testing.assert_allclose(next(iter(result.run(given).values())), expected, rtol=0, atol=1e-5)


class Deltas(nn.Module):
    """Differences over time of every feature of every sample, a group each, as torchaudio's ComputeDeltas has them."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        row = x.reshape(1, -1, x.shape[-1])
        kernel = torch.arange(-2.0, 3.0).repeat(row.shape[1], 1, 1)
        result = functional.conv1d(row, kernel, groups=row.shape[1], **self.options)
        return result.reshape(x.shape[0], x.shape[1], -1)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 2}, {"dilation": 2, "padding": 1}], ids=str)
def test_rows_with_a_kernel_each(options: dict[str, int]) -> None:
    model = Deltas(**options)
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (torch.randn(2, 3, 12),), dynamic_shapes=({0: batch},), strict=False)
    table = substitutes(program)
    assert torch.ops.aten.conv1d.default in table
    made = program.run_decompositions(table).module()
    for size in (2, 1, 5):
        x = torch.randn(size, 3, 12)
        torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
