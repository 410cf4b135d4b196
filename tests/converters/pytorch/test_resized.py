"""The nearest elements of a resized image, where torch and ONNX Runtime round otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import parser
from torch import nn

from convertkit.converters.pytorch.operators.resized import NEAREST, rounds_otherwise
from convertkit.converters.pytorch.routes.exporting import write_program

pytestmark = pytest.mark.filterwarnings("ignore")


class Resized(nn.Module):
    """``nn.Upsample`` of whatever it is given."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.up = nn.Upsample(**given)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x * 2)


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        pytest.param((2, 3, 80), {"size": 24}, id="signal"),
        pytest.param((2, 3, 80, 10), {"size": (24, 15)}, id="one axis of an image"),
        pytest.param((1, 2, 80, 128), {"size": (24, 122)}, id="both axes"),
        pytest.param((1, 2, 3, 80, 4), {"size": (3, 24, 8)}, id="volume"),
        pytest.param((1, 2, 30, 12), {"scale_factor": (1.2, 1.5)}, id="factors"),
    ],
)
def test_takes_the_elements_that_torch_takes(shape: tuple[int, ...], given: dict[str, Any], tmp_path: Path) -> None:
    model, x = Resized(**given).eval(), torch.randn(shape)
    program = torch.export.export(model, (x,))
    (node,) = (node for node in program.graph.nodes if node.target in NEAREST)
    assert rounds_otherwise(node)
    write_program(program, ["x"], ["y"], str(tmp_path / "model.onnx"))
    (y,) = ort.InferenceSession(str(tmp_path / "model.onnx")).run(None, {"x": x.numpy()})
    np.testing.assert_array_equal(y, model(x).numpy())


def by_runtime(length: int, size: int) -> np.ndarray:
    """What ONNX Runtime's Resize to a size takes."""
    model = parser.parse_model(f"""<ir_version: 9, opset_import: ["": 18]>
        resized (float[1, 1, {length}] x) => (float[1, 1, {size}] y) <int64[3] s = {{1, 1, {size}}}> {{
            y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">
                (x, , , s) }}""")
    x = np.arange(length, dtype=np.float32)[None, None]
    (y,) = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    return np.asarray(y).ravel()


@pytest.mark.parametrize("length", [5, 12, 80])
@pytest.mark.parametrize("size", [5, 9, 20, 24, 160])
def test_what_runtimes_take(length: int, size: int) -> None:
    """The forecast is what a runtime does; where it is the same, its own operator stays."""
    x = torch.arange(length, dtype=torch.float32)[None, None]
    program = torch.export.export(nn.Upsample(size), (x,))
    (node,) = (node for node in program.graph.nodes if node.target in NEAREST)
    resize = by_runtime(length, size)
    assert rounds_otherwise(node) == (not np.array_equal(resize, nn.Upsample(size)(x).numpy().ravel()))


def test_what_rounds_alike_or_has_free_sizes_stays_beside_what_does_not(tmp_path: Path) -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            up = nn.functional.interpolate
            return up(x, 24), up(x, scale_factor=2.0), up(y, scale_factor=0.5)

    x, y, free = torch.randn(1, 2, 80), torch.randn(1, 2, 12), torch.export.Dim("length", min=4, max=64)
    program = torch.export.export(Both(), (x, y), dynamic_shapes=(None, {2: free}))
    write_program(program, ["x", "y"], ["a", "b", "c"], str(tmp_path / "model.onnx"))
    assert [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node].count("Resize") == 2
    session = ort.InferenceSession(str(tmp_path / "model.onnx"))
    y = torch.randn(1, 2, 20)
    got = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    for ours, theirs in zip(got, Both()(x, y), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())
