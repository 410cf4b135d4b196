"""torchvision's operators as ONNX's, where the two disagree on what a box is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.operators import detection
from convertkit.converters.pytorch.routes.exporting import write_program

pytestmark = pytest.mark.filterwarnings("ignore")


class Suppressed(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        return torch.ops.torchvision.nms(boxes, scores, 0.3)


def _boxes(generator: torch.Generator) -> Tensor:
    """Twelve of every kind: corners in order, the wrong way round along one or both axes, and without a width."""
    boxes = torch.rand(12, 4, generator=generator)
    boxes[:6, 2:] += boxes[:6, :2]
    boxes[6, 2] = boxes[6, 0]
    return boxes


def test_boxes_with_corners_the_wrong_way_round_have_no_area(tmp_path: Path) -> None:
    detection.define()
    generator = torch.Generator().manual_seed(0)
    program = torch.export.export(Suppressed(), (_boxes(generator), torch.rand(12)))
    write_program(program, ["boxes", "scores"], ["kept"], str(tmp_path / "program.onnx"))
    script = torch.jit.script(Suppressed())
    torch.onnx.export(
        script, (_boxes(generator), torch.rand(12)), str(tmp_path / "script.onnx"), dynamo=False, opset_version=18,
        input_names=["boxes", "scores"],
    )  # fmt: skip
    suppressing = 0
    for name in ("program", "script"):
        session = ort.InferenceSession(tmp_path / f"{name}.onnx")
        for _ in range(20):
            boxes, scores = _boxes(generator), torch.rand(12, generator=generator)
            (kept,) = session.run(None, {"boxes": boxes.numpy(), "scores": scores.numpy()})
            wanted = detection.nms(boxes, scores, 0.3).numpy()
            np.testing.assert_array_equal(kept, wanted)
            suppressing += len(wanted) < 12
    assert suppressing
