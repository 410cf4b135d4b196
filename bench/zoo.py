"""The zoo: twelve architectures with seeded weights that every benchmark speaks about.

``build(name)`` gives ``(module.eval(), example inputs)``, ``sample(name, seed)`` further inputs.  Weights are
random, statistics are sane: batch norms have seen data, classifiers have unit-variance outputs.  So errors and
speed mean something; accuracy does not, and the SNR of an int8 version is a stress test.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from zoo_mobile import efficientnet_b0, mobilenetv2, mobilenetv3s
from zoo_sequence import TOKENS, VOCABULARY, Bert, Gpt, Recurrent
from zoo_vision import ConvNeXt, ResNet18, UNet, ViT
from zoo_yolo import Yolo

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mobilenetv2": mobilenetv2,
    "mobilenetv3s": mobilenetv3s,
    "resnet18": ResNet18,
    "efficientnet_b0": efficientnet_b0,
    "convnext_t": ConvNeXt,
    "vit_tiny": ViT,
    "bert_small": Bert,
    "unet": UNet,
    "yolo_head": Yolo,
    "lstm": lambda: Recurrent("lstm"),
    "gru": lambda: Recurrent("gru"),
    "gpt_block": Gpt,
}
SIZES = {"unet": 128, "yolo_head": 256}
SEQUENCES = ("bert_small", "lstm", "gru", "gpt_block")
XAVIER = ("convnext_t", "vit_tiny", "bert_small", "gpt_block")


def image(seed: int, count: int, size: int) -> torch.Tensor:
    """Smooth structure at several scales and some noise: the spectrum of a photograph, [count, 3, size, size]."""
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(count, 3, size, size)
    for scale in (4, 8, 16, 32, size):
        noise = torch.randn(count, 3, scale, scale, generator=generator)
        grown = F.interpolate(noise, size=(size, size), mode="bilinear", align_corners=False)
        total += grown * (1.0 if scale < size else 0.3)
    return total / 2


def sample(name: str, seed: int) -> tuple[torch.Tensor, ...]:
    """One feed of batch 1; seeds from 100 on are calibration, from 900 on evaluation."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    if name in ("lstm", "gru"):
        return (torch.randn(1, 50, 40, generator=generator),)
    if name in ("bert_small", "gpt_block"):
        ids = torch.randint(0, VOCABULARY, (1, TOKENS), generator=generator)
        return (ids, torch.ones(1, TOKENS, dtype=torch.int64)) if name == "bert_small" else (ids,)
    return (image(10_000 + seed, 1, SIZES.get(name, 224)),)


def input_names(name: str) -> list[str]:
    return ["ids", "mask"] if name == "bert_small" else ["x"]


def warm_batch_norms(module: nn.Module, name: str) -> None:
    """Random affine parameters and statistics of 24 images, so that activations neither vanish nor explode."""
    generator = torch.Generator().manual_seed(5)
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.weight.data = 0.5 + torch.rand(norm.weight.shape, generator=generator)
        norm.bias.data = 0.3 * torch.randn(norm.bias.shape, generator=generator)
        norm.momentum = None
        norm.reset_running_stats()
    if norms:
        module.train()
        with torch.no_grad():
            for i in range(3):
                module(image(500 + i, 8, SIZES.get(name, 224)))


def spread_classifier(module: nn.Module) -> None:
    """The last linear layer of a classifier gives outputs of about unit variance."""
    for key, parameter in module.named_parameters():
        if key in ("classifier.weight", "fc.weight"):
            parameter.data = torch.randn_like(parameter) / parameter.shape[1] ** 0.5


def build(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    module = MODELS[name]()
    torch.manual_seed(1)
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and name not in XAVIER and name not in ("unet", "yolo_head"):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        if isinstance(layer, nn.Linear) and name in XAVIER:
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None and name in ("convnext_t", "vit_tiny"):
                nn.init.normal_(layer.bias, std=0.05)
    spread_classifier(module)
    if name not in SEQUENCES:
        warm_batch_norms(module, name)
    return module.eval(), sample(name, 0)
