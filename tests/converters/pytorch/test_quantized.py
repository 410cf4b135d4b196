"""Programs that pt2e has quantized keep their integers, through ONNX Runtime and TFLite."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines torch.ops.quantized_decomposed
from torch import Tensor, nn
from torch.nn import functional as F

import convertkit

pytestmark = pytest.mark.filterwarnings("ignore")
_OPS = torch.ops.quantized_decomposed


def rounded(x: Tensor, scale: float, zero_point: int = 0, low: int = -128, high: int = 127) -> Tensor:
    """What pt2e puts around every operator."""
    q = _OPS.quantize_per_tensor(x, scale, zero_point, low, high, torch.int8)
    return _OPS.dequantize_per_tensor(q, scale, zero_point, low, high, torch.int8)


class Quantized(nn.Module):
    """Convolution, Relu, sum, mean and dense layer as pt2e leaves them, weights per channel."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in (("first", (8, 3, 3, 3)), ("second", (8, 8, 3, 3)), ("last", (5, 8))):
            self.register_buffer(name, torch.randint(-127, 128, shape, generator=generator).to(torch.int8))
            scales = torch.rand(shape[0], generator=generator) * 0.004 + 0.001
            self.register_buffer(f"{name}_scale", scales)
            self.register_buffer(f"{name}_zero", torch.zeros(shape[0], dtype=torch.int64))
            self.register_buffer(f"{name}_bias", torch.rand(shape[0], generator=generator))

    def weights(self, name: str) -> Tensor:
        steps = getattr(self, f"{name}_scale"), getattr(self, f"{name}_zero")
        return _OPS.dequantize_per_channel(getattr(self, name), *steps, 0, -127, 127, torch.int8)

    def forward(self, x: Tensor) -> Tensor:
        x = rounded(x, 0.0157)
        x = rounded(F.conv2d(x, self.weights("first"), self.first_bias, padding=1).relu(), 0.02, -128)
        y = rounded(F.conv2d(x, self.weights("second"), self.second_bias, padding=1).relu(), 0.03, -128)
        y = rounded(x + y, 0.04, -128)
        y = rounded(y.mean((2, 3)), 0.03, -128)
        return rounded(F.linear(y, self.weights("last"), self.last_bias), 0.02, 3)


class Narrow(nn.Module):
    """Integers that end before their type does."""

    def forward(self, x: Tensor) -> Tensor:
        return rounded(rounded(x, 0.01, 0, -127, 127) * 2, 0.02, 5, -100, 90)


class Trained(nn.Module):
    """Training that knows of integers: weights are floats that the graph rounds, with a scale for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.register_buffer("steps", self.conv.weight.detach().abs().amax((1, 2, 3)) / 127)
        self.register_buffer("points", torch.zeros(8, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.0157, 128, 0, 255)
        weight = torch.fake_quantize_per_channel_affine(self.conv.weight, self.steps, self.points, 0, -128, 127)
        y = F.conv2d(x, weight, self.conv.bias).relu()
        return torch.fake_quantize_per_tensor_affine(y, 0.01, 0, 0, 255)


def _saved(module: nn.Module, example: Tensor, folder: Path) -> Path:
    torch.export.save(torch.export.export(module.eval(), (example,)), folder / "model.pt2")
    return folder / "model.pt2"


def _input(batch: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((batch, 3, 10, 10)).astype(np.float32)


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
@pytest.mark.parametrize("int8", [False, True], ids=["as it is", "int8"])
def test_every_batch_is_within_one_step(tmp_path: Path, target: str, int8: bool) -> None:
    module = Quantized()
    source = _saved(module, torch.rand(2, 3, 10, 10), tmp_path)
    given = {"int8": True, "calib": {"x": _input(16)}} if int8 else {}
    result = convertkit.export(source, target, output=tmp_path / "out", **given)
    for batch in (1, 5):
        x = _input(batch)
        got, expected = result.run({"x": x})["output"], module(torch.from_numpy(x)).numpy()
        assert np.abs(got - expected).max() <= 1.01 * 0.02


@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_weights_that_training_rounds_are_integers(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    module = Trained().eval()
    torch.jit.trace(module, torch.rand(2, 3, 10, 10)).save(str(tmp_path / "model.pt"))
    result = convertkit.export(tmp_path / "model.pt", target, output=tmp_path / "out")
    x = _input(3)
    got, expected = result.run({"x": x})["output"], module(torch.from_numpy(x)).detach().numpy()
    assert np.abs(got - expected).max() <= 1.01 * 0.01
    if target == "onnxruntime":
        weights = [value for value in ir.load(result.artifact.path).graph.initializers.values() if len(value.shape) > 1]
        assert [value.dtype.itemsize for value in weights] == [1]


def test_integers_stay_pairs_and_are_not_chosen_again(tmp_path: Path) -> None:
    source = _saved(Quantized(), torch.rand(2, 3, 10, 10), tmp_path)
    result = convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    model = ir.load(result.artifact.path)
    kinds = Counter(node.op_type for node in model.graph)
    assert (kinds["QuantizeLinear"], kinds["DequantizeLinear"], kinds["Clip"]) == (6, 9, 0)
    stored = {value.dtype for value in model.graph.initializers.values() if len(value.shape or ()) > 1}
    assert stored == {ir.DataType.UINT8}, "of full range: sums of signed ones would not fit into 16 bits"
    kept = convertkit.export(
        source, "onnxruntime", output=tmp_path / "vnni", target_options={"onnxruntime": {"cpu": "vnni"}},
        allow_unverified=True,
    )  # fmt: skip
    model = ir.load(kept.artifact.path)
    assert {v.dtype for v in model.graph.initializers.values() if len(v.shape or ()) > 1} == {ir.DataType.INT8}


def test_integers_end_where_the_program_says(tmp_path: Path) -> None:
    source = _saved(Narrow(), torch.rand(2, 6), tmp_path)
    result = convertkit.export(source, "onnxruntime", output=tmp_path / "out")
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 6)
    got = result.run({"x": x})["output"]
    np.testing.assert_allclose(got, Narrow()(torch.from_numpy(x)).numpy(), atol=1e-6)
    assert (got.min(), got.max()) == pytest.approx((-105 * 0.02, 85 * 0.02))
