"""``python detection_archive.py FOLDER`` writes detect.pt and detect.pt2, which name torchvision's operators.

torchvision need not be installed: the operators get its schemas and convertkit's own computation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from convertkit.converters.pytorch.operators import detection

BOXES = torch.tensor([[0.0, 0, 8, 8], [1, 1, 8, 8], [4, 4, 15, 15], [5, 4, 15, 14], [0, 8, 6, 15]])


class Detector(nn.Module):
    """Scores and shifts five anchors, suppresses, and pools the features of the survivors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 10)
        self.register_buffer("anchors", BOXES)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = torch.relu(self.body(image))
        values = self.head(features.mean((2, 3)))[0]
        boxes = self.anchors + torch.tanh(values[:5]).unsqueeze(1)
        scores = torch.sigmoid(values[5:])
        kept = torch.ops.torchvision.nms(boxes, scores, 0.4)
        rois = torch.cat([torch.zeros_like(boxes[kept][:, :1]), boxes[kept]], 1)
        pooled = torch.ops.torchvision.roi_align(features, rois, 0.5, 2, 3, 2, True)
        return boxes[kept], scores[kept], pooled


if __name__ == "__main__":
    detection.define()
    folder, model, example = Path(sys.argv[1]), Detector().eval(), (torch.rand(1, 3, 16, 16),)
    torch.jit.script(model).save(folder / "detect.pt")
    torch.export.save(torch.export.export(model, example), folder / "detect.pt2")
