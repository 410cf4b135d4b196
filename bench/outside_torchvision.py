"""Torchvision's models in small sizes as exported programs, for ``bench/outside.py``.

torchvision comes with ``pip install --no-deps torchvision==0.28.0``; its own operators are not needed, convertkit's
stand in where its library does not load.
"""

from __future__ import annotations

import copy
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from outside import batches, floats
from torch import Tensor, nn

REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, NotImplementedError)
"""What torch.export raises for a model that it does not take, or not with a dynamic batch."""
Made = tuple[nn.Module, list[tuple[int, ...]]]


class Key(nn.Module):
    """One entry of a dictionary of outputs."""

    def __init__(self, model: nn.Module, key: str) -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x: Tensor) -> Tensor:
        found = self.model(x)[self.key]
        assert isinstance(found, Tensor)
        return found


class Detected(nn.Module):
    """The detections of one picture, as tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model([x[0]])[0].values())


class Flow(nn.Module):
    """RAFT's last flow after three updates."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        found = self.model(a, b, num_flow_updates=3)[-1]
        assert isinstance(found, Tensor)
        return found


def models() -> Mapping[str, Callable[[], Made]]:
    """Names and what makes a model with the shapes of its inputs."""
    from torchvision import models as m

    small, one = [(2, 3, 64, 64)], [(1, 3, 64, 64)]
    bare = {"weights": None}
    plain = {
        "alexnet": small, "vgg11": small, "vgg11_bn": small, "resnet18": small, "resnext50_32x4d": one,
        "wide_resnet50_2": one, "squeezenet1_0": small, "squeezenet1_1": small, "shufflenet_v2_x0_5": small,
        "mobilenet_v2": small, "mobilenet_v3_small": small, "mobilenet_v3_large": small, "mnasnet0_5": small,
        "densenet121": one, "regnet_x_400mf": small, "regnet_y_400mf": small, "efficientnet_b0": small,
        "efficientnet_v2_s": one, "convnext_tiny": one, "swin_t": one, "swin_v2_t": one,
    }  # fmt: skip
    seg, found = {**bare, "weights_backbone": None, "num_classes": 5}, {**bare, "weights_backbone": None}

    def named(name: str) -> Callable[[], Made]:
        sizes = [(2, 3, 224, 224)] if name == "alexnet" else plain[name]
        return lambda: (m.get_model(name, weights=None, num_classes=9), sizes)

    def detection(name: str, size: int, **more: Any) -> Callable[[], Made]:
        limits = {"box_score_thresh": 0.0} if "rcnn" in name else {"score_thresh": 0.0}
        few = {"box_detections_per_img": 20} if "rcnn" in name else {"detections_per_img": 20}
        counted = {"num_classes": 4, **limits, **few, **more}
        return lambda: (Detected(m.get_model(name, **found, **counted)), [(1, 3, size, size)])

    video = [(1, 3, 4, 32, 32)]
    return {
        **{name: named(name) for name in plain},
        "googlenet": lambda: (m.googlenet(weights=None, aux_logits=False, init_weights=False, num_classes=9), small),
        "googlenet_transform": lambda: (
            m.GoogLeNet(num_classes=9, aux_logits=False, transform_input=True, init_weights=False), small),
        "inception_v3": lambda: (
            m.inception_v3(weights=None, aux_logits=False, init_weights=False, num_classes=9), [(2, 3, 96, 96)]),
        "densenet_small": lambda: (m.DenseNet(16, (3, 3, 2, 2), 32, num_classes=9), small),
        "vit_small": lambda: (m.VisionTransformer(64, 16, 3, 4, 64, 128, num_classes=9), small),
        "maxvit_small": lambda: (
            m.MaxVit((64, 64), 32, [16, 32], [1, 1], 8, 0.0, partition_size=4, num_classes=9), small),
        "lraspp": lambda: (Key(m.segmentation.lraspp_mobilenet_v3_large(**seg), "out"), small),
        "deeplabv3_mobilenet": lambda: (Key(m.segmentation.deeplabv3_mobilenet_v3_large(**seg), "out"), small),
        "deeplabv3_resnet50": lambda: (Key(m.segmentation.deeplabv3_resnet50(**seg), "out"), one),
        "fcn_resnet50": lambda: (Key(m.segmentation.fcn_resnet50(**seg), "out"), one),
        "raft_small": lambda: (Flow(m.optical_flow.raft_small(weights=None)), [(1, 3, 128, 128)] * 2),
        "r3d_18": lambda: (m.video.r3d_18(num_classes=7), video),
        "mc3_18": lambda: (m.video.mc3_18(num_classes=7), video),
        "r2plus1d_18": lambda: (m.video.r2plus1d_18(num_classes=7), video),
        "s3d": lambda: (m.video.s3d(num_classes=7), [(1, 3, 14, 64, 64)]),
        "swin3d_t": lambda: (m.video.swin3d_t(num_classes=7), video),
        "ssdlite320": detection("ssdlite320_mobilenet_v3_large", 320, topk_candidates=50),
        "ssd300": detection("ssd300_vgg16", 300, topk_candidates=50),
        "retinanet": detection("retinanet_resnet50_fpn", 96, topk_candidates=50, min_size=96, max_size=96),
        "retinanet_v2": detection("retinanet_resnet50_fpn_v2", 96, topk_candidates=50, min_size=96, max_size=96),
        "fcos": detection("fcos_resnet50_fpn", 96, topk_candidates=50, min_size=96, max_size=96),
        "fasterrcnn_mobilenet": detection("fasterrcnn_mobilenet_v3_large_320_fpn", 96, min_size=96, max_size=96),
        "fasterrcnn_resnet": detection("fasterrcnn_resnet50_fpn", 96, min_size=96, max_size=96),
        "maskrcnn": detection("maskrcnn_resnet50_fpn", 96, min_size=96, max_size=96),
        "keypointrcnn": detection("keypointrcnn_resnet50_fpn", 96, min_size=96, max_size=96, num_keypoints=5),
    }  # fmt: skip


def prepared(model: nn.Module) -> nn.Module:
    """Batch norms that have seen something."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        mean, var = getattr(module, "running_mean", None), getattr(module, "running_var", None)
        if isinstance(mean, Tensor) and isinstance(var, Tensor):
            mean.copy_(torch.randn(mean.shape, generator=generator) * 0.3)
            var.copy_(torch.rand(var.shape, generator=generator) * 2 + 0.05)
    return model.eval()


def program(model: nn.Module, args: tuple[Tensor, ...]) -> tuple[Any, bool]:
    """The exported program, and whether its batch is dynamic."""
    if not isinstance(model, Detected | Flow):
        try:
            batch = torch.export.Dim("batch", min=1, max=64)
            return torch.export.export(model, args, dynamic_shapes=tuple({0: batch} for _ in args), strict=False), True
        except REFUSALS as error:
            print(f"  fixed batch: {type(error).__name__}: {str(error)[:100]!r}")
    return torch.export.export(model, args, strict=False), False


def answers(model: nn.Module, arrays: list[np.ndarray], kind: torch.dtype) -> list[np.ndarray]:
    """The model's outputs; constants that it makes are of the same precision."""
    torch.set_default_dtype(kind)
    try:
        found = model(*[torch.from_numpy(each).to(kind) for each in arrays])
    finally:
        torch.set_default_dtype(torch.float32)
    return [each.numpy(force=True) for each in torch.utils._pytree.tree_leaves(found)]


def one(folder: Path, name: str, maker: Callable[[], Made]) -> None:
    """NAME.pt2 and NAME.pkl."""
    torch.manual_seed(sum(map(ord, name)))
    model, shapes = maker()
    prepared(model)
    rows = floats(shapes)
    exported, dynamic = program(model, tuple(torch.from_numpy(each) for each in rows["noise"]))
    rows |= batches(shapes, (1, 3)) if dynamic else {}
    double = None if isinstance(model, Detected) else copy.deepcopy(model).double()
    told = {
        kind: {
            "inputs": arrays,
            "outs": answers(model, arrays, torch.float32),
            "double": answers(double, arrays, torch.float64) if double else None,
        }
        for kind, arrays in rows.items()
    }
    torch.export.save(exported, folder / f"{name}.pt2")
    flags = ["--input-layout", "nchw"] if "raft" not in name else []
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"rows": told, "flags": flags}))
    print(f"{name}: {[each.shape for each in told['noise']['outs']]}", flush=True)


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there, until eight minutes are over; what torch.export refuses is said."""
    from convertkit.converters.pytorch.operators import detection

    detection.define()
    quantized = torch.library.Library("torchvision", "FRAGMENT")
    quantized.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.set_num_threads(2)
    began = time.perf_counter()
    with torch.no_grad():
        for name, maker in models().items():
            if (names and name not in names) or (folder / f"{name}.pkl").exists() or (folder / f"{name}.no").exists():
                continue
            if time.perf_counter() - began > 400:
                sys.exit(75)
            try:
                one(folder, name, maker)
            except REFUSALS as error:
                (folder / f"{name}.no").write_text(f"{type(error).__name__}: {error}")
                print(f"{name}: {type(error).__name__}: {str(error)[:200]!r}", flush=True)
