"""Convolutions whose number of groups is the batch: a kernel for each sample, as modulated convolutions have it.

The number of groups is an attribute in ONNX, so a dynamic batch cannot be one.  As a product of each sample's windows
with its own kernels it needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: Any = 1,
) -> Any:
    """``aten::conv2d`` of one image [1, G C, H, W] with kernels [G O, C, h, w], where G is only known at run time."""
    if isinstance(groups, int) or x.shape[0] != 1:
        return NotImplemented
    channels, kernel = weight.shape[1], weight.shape[2:]
    samples = x.reshape(groups, channels, *x.shape[2:])
    windows = functional.unfold(samples, kernel, dilation, padding, stride)
    kernels = weight.reshape(groups, -1, channels * kernel[0] * kernel[1])
    sizes = [
        (size + 2 * pad - hole * (side - 1) - 1) // step + 1
        for size, pad, hole, side, step in zip(x.shape[2:], padding, dilation, kernel, stride, strict=True)
    ]
    result = torch.matmul(kernels, windows).reshape(1, -1, *sizes)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


def convolution_1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: Any = 1,
) -> Any:
    """``aten::conv1d`` of one row [1, G C, L] with kernels [G O, C, l], where G is only known at run time."""
    wide = x.unsqueeze(2), weight.unsqueeze(2)
    found = convolution(*wide, bias, (1, *stride), (0, *padding), (1, *dilation), groups)
    return NotImplemented if found is NotImplemented else found.squeeze(2)


def has_dynamic_groups(node: Any) -> bool:
    """Whether a node of ``conv1d`` or ``conv2d`` has as many groups as only the running model knows."""
    groups = node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)
    return not isinstance(groups, int)
