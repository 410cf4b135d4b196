"""torchvision's operators of detection models, known without torchvision: what they compute, and their ONNX form.

Semantics: torchvision/csrc/ops/cpu/nms_kernel.cpp and roi_align_kernel.cpp; ONNX operators
NonMaxSuppression-11 and RoiAlign-16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import opset18 as op
from torch import Tensor

from convertkit.converters.pytorch.compat import exporters

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
}
_ALL = 2**31 - 1
_OPSET = 11


def define() -> None:
    """Make the operators known to torch, unless torchvision has done so."""
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", schema)
            torch.library.impl(f"torchvision::{name}", "CPU", _COMPUTED[name])
            torch.library.register_fake(f"torchvision::{name}", _SHAPES[name])
    for name, symbolic in _SYMBOLICS.items():
        exporters.register(f"torchvision::{name}", symbolic, _OPSET)


def translations() -> dict[Any, Callable[..., Any]]:
    """The ONNX forms by overload, as torch's exporter for exported programs takes them."""
    return {torch.ops.torchvision.nms.default: _nms_onnx, torch.ops.torchvision.roi_align.default: _roi_align_onnx}


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes to keep, best first: ``dets`` [N, 4] as x1, y1, x2, y2, ``scores`` [N]."""
    order = scores.argsort(descending=True, stable=True)
    boxes = dets[order]
    sides = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    over = shared / (sides[:, None] + sides[None, :] - shared) > iou_threshold
    kept = torch.ones(len(order), dtype=torch.bool)
    for place in range(len(order)):
        if kept[place]:
            kept[place + 1 :] &= ~over[place, place + 1 :]
    return order[kept]


def roi_align(
    x: Tensor, rois: Tensor, scale: float, height: int, width: int, sampling_ratio: int, aligned: bool
) -> Tensor:
    """Mean of bilinear samples in each cell: ``x`` [B, C, H, W], ``rois`` [R, 5] → [R, C, height, width]."""
    results = [_pooled(x, roi, scale, (height, width), sampling_ratio, aligned) for roi in rois]
    return torch.stack(results) if results else x.new_zeros(0, x.shape[1], height, width)


def _pooled(x: Tensor, roi: Tensor, scale: float, cells: tuple[int, int], ratio: int, aligned: bool) -> Tensor:
    start = roi[[2, 1]] * scale - (0.5 if aligned else 0.0)
    size = roi[[4, 3]] * scale - (0.5 if aligned else 0.0) - start
    if not aligned:
        size = size.clamp(min=1.0)
    weights = [_samples(start[i], size[i], cells[i], ratio, x.shape[2 + i]) for i in range(2)]
    return weights[0] @ x[int(roi[0])] @ weights[1].T


def _samples(start: Tensor, size: Tensor, cells: int, ratio: int, length: int) -> Tensor:
    """Along one axis: the weights [cells, length] by which a cell's mean takes each element."""
    count = ratio if ratio > 0 else int(torch.ceil(size / cells))
    at = start + (torch.arange(cells * count) + 0.5) * size / (cells * count)
    inside = (at >= -1) & (at <= length)
    at = at.clamp(0, length - 1)
    low = at.floor().long()
    share = at - low
    weights = torch.zeros(cells * count, length)
    rows = torch.arange(cells * count)
    weights[rows, low] += 1 - share
    weights[rows, (low + 1).clamp(max=length - 1)] += share
    return (weights * inside[:, None]).view(cells, count, length).sum(1) / max(count, 1)


def _nms_shape(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _roi_align_shape(x: Tensor, rois: Tensor, scale: float, height: int, width: int, *_: Any) -> Tensor:
    return x.new_empty(rois.shape[0], x.shape[1], height, width)


def _nms_onnx(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """ONNX sorts the corners of a box; to torchvision one with its corners the wrong way round has no area."""
    ends = [op.Constant(value_ints=[place]) for place in (0, 2, 4)]
    low, high = (op.Slice(dets, ends[half], ends[half + 1], op.Constant(value_ints=[1])) for half in (0, 1))
    boxes = op.Concat(low, op.Max(low, high), axis=1)
    batched = op.Unsqueeze(boxes, op.Constant(value_ints=[0])), op.Unsqueeze(scores, op.Constant(value_ints=[0, 1]))
    limits = op.Constant(value_ints=[_ALL]), op.Constant(value_floats=[iou_threshold])
    return op.Gather(op.NonMaxSuppression(*batched, *limits), op.Constant(value_int=2), axis=1)


def _mode(aligned: bool) -> str:
    return "half_pixel" if aligned else "output_half_pixel"


def _roi_align_onnx(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Any:
    batch = op.Cast(op.Gather(rois, op.Constant(value_int=0), axis=1), to=7)
    boxes = op.Gather(rois, op.Constant(value_ints=[1, 2, 3, 4]), axis=1)
    return op.RoiAlign(
        input,
        boxes,
        batch,
        coordinate_transformation_mode=_mode(aligned),
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
    )


def _nms_symbolic(g: Any, dets: Any, scores: Any, iou_threshold: float) -> Any:
    """For torch's older exporter, with boxes as in :func:`_nms_onnx`."""
    low, high = (g.op("Slice", dets, _ints(g, [at]), _ints(g, [at + 2]), _ints(g, [1])) for at in (0, 2))
    boxes = g.op("Concat", low, g.op("Max", low, high), axis_i=1)
    batched = g.op("Unsqueeze", boxes, _ints(g, [0])), g.op("Unsqueeze", scores, _ints(g, [0, 1]))
    limits = _ints(g, [_ALL]), g.op("Constant", value_t=torch.tensor([iou_threshold], dtype=torch.float32))
    chosen = g.op("NonMaxSuppression", *batched, *limits)
    return g.op("Gather", chosen, g.op("Constant", value_t=torch.tensor(2)), axis_i=1)


def _roi_align_symbolic(
    g: Any, x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int, aligned: int
) -> Any:
    batch = g.op("Cast", g.op("Gather", rois, g.op("Constant", value_t=torch.tensor(0)), axis_i=1), to_i=7)
    boxes = g.op("Gather", rois, _ints(g, [1, 2, 3, 4]), axis_i=1)
    return g.op(
        "RoiAlign",
        x,
        boxes,
        batch,
        coordinate_transformation_mode_s=_mode(bool(aligned)),
        output_height_i=height,
        output_width_i=width,
        sampling_ratio_i=max(sampling_ratio, 0),
        spatial_scale_f=scale,
    )


def _ints(g: Any, values: list[int]) -> Any:
    return g.op("Constant", value_t=torch.tensor(values))


_COMPUTED = {"nms": nms, "roi_align": roi_align}
_SHAPES = {"nms": _nms_shape, "roi_align": _roi_align_shape}
_SYMBOLICS = {
    "nms": exporters.taking("v", "v", "f")(_nms_symbolic),
    "roi_align": exporters.taking("v", "v", "f", "i", "i", "i", "i")(_roi_align_symbolic),
}
