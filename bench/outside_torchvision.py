"""Torchvision's models in small sizes as exported programs, for ``bench/outside.py``.

torchvision comes with ``pip install --no-deps torchvision==0.28.0``; its own operators are not needed, convertkit's
stand in where its library does not load.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from outside_torch import Given, Made, stand_ins
from outside_torch import make as made_all
from torch import Tensor, nn

Maker = Callable[[], tuple[nn.Module, list[tuple[int, ...]]]]


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


def models() -> Mapping[str, Maker]:
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

    def named(name: str) -> Maker:
        sizes = [(2, 3, 224, 224)] if name == "alexnet" else plain[name]
        return lambda: (m.get_model(name, weights=None, num_classes=9), sizes)

    def detection(name: str, size: int, **more: Any) -> Maker:
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
        "s3d": lambda: (m.video.s3d(num_classes=7), [(1, 3, 14, 224, 224)]),
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


def known() -> bool:
    """Whether torchvision's operators are there, which traces ask: convertkit's stand in."""
    return True


def makers() -> Mapping[str, Callable[[], Made]]:
    """What makes each model; detectors are traces with no other batch and no float64, RAFT no other batch."""

    def built(maker: Maker) -> Made:
        model, shapes = maker()
        flags = () if isinstance(model, Flow) else ("--input-layout", "nchw")
        alone = isinstance(model, Detected)
        return Made(model, [Given(each) for each in shapes], alone or isinstance(model, Flow), alone, flags, alone)

    return {name: partial(built, maker) for name, maker in models().items()}


def make(folder: Path, names: list[str]) -> None:
    """Each model that is not there."""
    kept = stand_ins()
    import torchvision

    for name, module in list(sys.modules.items()):
        if name.startswith(f"{torchvision.__name__}.") and "_has_ops" in vars(module):
            vars(module)["_has_ops"] = known
    made_all(folder, names, makers())
    kept.clear()
