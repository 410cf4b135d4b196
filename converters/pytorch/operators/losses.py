"""Cross entropy with smoothed or soft labels, or without a batch: torch's ONNX exporter has hard labels of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_MEAN, _SUM = 1, 2
_REDUCTIONS = {0: "none", _MEAN: "mean", _SUM: "sum"}


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """``aten::cross_entropy_loss``.

    Source: aten/src/ATen/native/LossNLL.cpp, ``cross_entropy_loss_prob_target`` and ``…_label_smoothing``.
    """
    if target.dim() == 0:  # one sample, without a batch
        loss = torch.ops.aten.cross_entropy_loss.default(
            x.unsqueeze(0), target.unsqueeze(0), weight, reduction, ignore_index, label_smoothing
        )
        return loss.reshape(())
    axis = 0 if x.dim() == 1 else 1
    classes = x.shape[axis]
    likelihood = torch.log_softmax(x, axis)
    scaled = likelihood
    if weight is not None:
        scaled = likelihood * (weight if axis == 0 else weight.view([1, -1] + [1] * (x.dim() - 2)))
    if target.is_floating_point():
        soft = target * (1 - label_smoothing) + label_smoothing / classes
        loss = -(scaled * soft).sum(axis)
        if reduction == _MEAN:
            return loss.sum() / (x.numel() / classes)
        return loss.sum() if reduction == _SUM else loss
    if label_smoothing == 0:
        return NotImplemented
    kept = target != ignore_index
    hard = functional.nll_loss(likelihood, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])
    smooth = torch.where(kept, -scaled.sum(axis), 0.0)
    if reduction == _MEAN:
        counted = kept.to(x.dtype)
        if weight is not None:
            counted = torch.where(kept, weight[torch.where(kept, target, 0)], 0.0)
        smooth = smooth.sum() / counted.sum()
    elif reduction == _SUM:
        smooth = smooth.sum()
    return (1 - label_smoothing) * hard + smooth * (label_smoothing / classes)


def is_soft(node: Any) -> bool:
    """Whether labels are smoothed, or are probabilities, or there is one label without a batch."""
    smoothing = node.args[5] if len(node.args) > 5 else node.kwargs.get("label_smoothing", 0.0)
    labels = node.args[1].meta["val"]
    return bool(smoothing) or bool(labels.is_floating_point()) or labels.dim() == 0
