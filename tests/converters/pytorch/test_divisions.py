"""Quotients that are rounded down, and what they leave, in the TorchScript-based exporter's ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.routes import divisions

pytestmark = pytest.mark.filterwarnings("ignore")


class Divided(nn.Module):
    """By numbers and by tensors, of floats and of integers."""

    def forward(self, x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        own = x.abs() + 0.5
        floats = [x // 0.1, x % 0.1, x // own, x % own, x // -0.3, x % -0.3, x // 0.25, x % 2.0, x / 0.3]
        each = x.unsqueeze(1) // torch.tensor([0.1, 0.25])
        floats += [x * 12345.678 // 0.1, x // (x * 0), each[:, 0], each[:, 1]]
        far = [torch.div(x * 1e30, -own, rounding_mode="trunc"), torch.div(x, x * 0, rounding_mode="trunc")]
        modes = [torch.div(x, 0.3, rounding_mode="floor"), torch.div(x, 0.3, rounding_mode="trunc")]
        integers = [i // 3, i % 3, (i - 5) // 2, torch.fmod(i, 3), torch.remainder(i, -3)]
        integers += [i >> 3, torch.bitwise_right_shift(i, 1), i >> 40]
        computed = [torch.bitwise_right_shift(i, i.abs() % 3), torch.fmod(i, i % 5 + 2), i // (i % 5 + 2)]
        cut = [torch.div(i, -3, rounding_mode="floor"), torch.div(i, 3, rounding_mode="trunc")]
        return torch.stack(floats + modes + far), torch.stack(integers + cut + computed)


@pytest.mark.parametrize("scripted", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_quotients_are_rounded_as_torch_does(dtype: torch.dtype, scripted: bool, tmp_path: Path) -> None:
    x = torch.arange(-20, 21) * 0.1
    large = [2**53 + 1, -(2**62) - 3] if dtype == torch.int64 else []
    large += [16777217, 100000001, -100000001] if dtype.itemsize > 2 else [32767, -32767]
    i = torch.cat([torch.arange(-20, 18), torch.tensor(large)]).to(dtype)
    module = Divided().eval()
    divisions.define()
    archive = torch.jit.script(module) if scripted else torch.jit.trace(module, (x.abs(), i.abs()))
    torch.onnx.export(
        archive, (x, i), str(tmp_path / "model.onnx"), input_names=["x", "i"], opset_version=18, dynamo=False
    )
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    for got, expected in zip(session.run(None, {"x": x.numpy(), "i": i.numpy()}), module(x, i), strict=True):
        assert got.dtype == expected.numpy().dtype
        np.testing.assert_allclose(
            got, expected.numpy(), rtol=1e-6 if got.dtype.kind == "f" else 0, atol=1e-6 if got.dtype.kind == "f" else 0
        )
