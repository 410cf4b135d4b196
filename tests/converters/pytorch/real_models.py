"""The modules that the published weights belong to, written from their papers and READMEs."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class CrepeTiny(nn.Module):
    """CREPE "tiny": frames (N, 1024) of 16 kHz audio to pitch activations (N, 360)."""

    example_inputs = (torch.zeros(2, 1024),)

    def __init__(self) -> None:
        super().__init__()
        sizes = (1, 128, 16, 16, 16, 32, 64)
        for place in range(6):
            kernel, stride = ((512, 1), (4, 1)) if place == 0 else ((64, 1), (1, 1))
            setattr(self, f"conv{place + 1}", nn.Conv2d(sizes[place], sizes[place + 1], kernel, stride))
            setattr(self, f"conv{place + 1}_BN", nn.BatchNorm2d(sizes[place + 1], eps=0.0010000000474974513))
        self.classifier = nn.Linear(256, 360)

    def forward(self, frames: Tensor) -> Tensor:
        x = frames[:, None, :, None]
        for place in range(6):
            padding = (0, 0, 254, 254) if place == 0 else (0, 0, 31, 32)
            x = functional.relu(getattr(self, f"conv{place + 1}")(functional.pad(x, padding)))
            x = functional.max_pool2d(getattr(self, f"conv{place + 1}_BN")(x), (2, 1), (2, 1))
        return torch.sigmoid(self.classifier(x.permute(0, 2, 1, 3).reshape(-1, 256)))


class BlazeBlock(nn.Module):
    def __init__(self, given: int, made: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.more = stride, made - given
        padding = 0 if stride == 2 else 1
        self.convs = nn.Sequential(nn.Conv2d(given, given, 3, stride, padding, groups=given), nn.Conv2d(given, made, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = x
        if self.stride == 2:
            h = functional.pad(x, (0, 2, 0, 2))
            x = functional.max_pool2d(x, 2)
        if self.more:
            x = functional.pad(x, (0, 0, 0, 0, 0, self.more))
        return functional.relu(self.convs(h) + x)


class BlazeFace(nn.Module):
    """The front-camera detector: image (N, 3, 128, 128) in [-1, 1] to 896 raw boxes and scores."""

    example_inputs = (torch.zeros(1, 3, 128, 128),)

    def __init__(self) -> None:
        super().__init__()
        sizes = (24, 24, 28, 32, 36, 42, 48, 56, 64, 72, 80, 88)
        strided = {(28, 32), (42, 48)}
        blocks = [BlazeBlock(a, b, 2 if (a, b) in strided else 1) for a, b in pairwise(sizes)]
        self.backbone1 = nn.Sequential(nn.Conv2d(3, 24, 5, 2), nn.ReLU(), *blocks)
        self.backbone2 = nn.Sequential(BlazeBlock(88, 96, 2), *(BlazeBlock(96, 96) for _ in range(4)))
        self.classifier_8, self.classifier_16 = nn.Conv2d(88, 2, 1), nn.Conv2d(96, 6, 1)
        self.regressor_8, self.regressor_16 = nn.Conv2d(88, 32, 1), nn.Conv2d(96, 96, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = self.backbone1(functional.pad(image, (1, 2, 1, 2)))
        h = self.backbone2(x)

        def flat(y: Tensor, width: int) -> Tensor:
            return y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, width)

        scores = torch.cat([flat(self.classifier_8(x), 1), flat(self.classifier_16(h), 1)], 1)
        boxes = torch.cat([flat(self.regressor_8(x), 16), flat(self.regressor_16(h), 16)], 1)
        return {"boxes": boxes, "scores": scores}


def faces(boxes: np.ndarray, scores: np.ndarray, anchors: np.ndarray) -> int:
    """How many faces raw outputs (896, 16) and (896, 1) show: score at least 0.75, overlaps above 0.3 are one face."""
    likely = 1 / (1 + np.exp(-np.clip(scores[:, 0], -100, 100)))
    center = boxes[:, :2] / 128 * anchors[:, 2:] + anchors[:, :2]
    size = boxes[:, 2:4] / 128 * anchors[:, 2:]
    corners = np.concatenate([center - size / 2, center + size / 2], 1)
    left = [int(place) for place in np.argsort(-likely) if likely[place] >= 0.75]
    count = 0
    while left:
        first = corners[left[0]]
        left = [place for place in left if overlap(first, corners[place]) <= 0.3]
        count += 1
    return count


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union of two boxes (x0, y0, x1, y1)."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


class Stories(nn.Module):
    """Llama-2 of 264k parameters, one token per call, its KV cache in buffers."""

    length, width, hidden, layers, heads, kv_heads, vocabulary = 256, 64, 172, 5, 8, 4, 512
    example_inputs = (torch.tensor([[1]]), torch.tensor([0]))

    def __init__(self) -> None:
        super().__init__()
        head = self.width // self.heads
        kv = self.kv_heads * head
        self.embedding = nn.Embedding(self.vocabulary, self.width)

        def each(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(self.layers, *shape))

        self.norm_1, self.norm_2, self.norm = each(self.width), each(self.width), nn.Parameter(torch.zeros(self.width))
        self.wq, self.wo = each(self.width, self.width), each(self.width, self.width)
        self.wk, self.wv = each(kv, self.width), each(kv, self.width)
        self.w1, self.w3, self.w2 = (
            each(self.hidden, self.width),
            each(self.hidden, self.width),
            each(self.width, self.hidden),
        )
        angles = torch.arange(self.length)[:, None] / 10000 ** (torch.arange(0, head, 2) / head)[None]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name in ("keys", "values"):
            cache = torch.zeros(self.layers, 1, self.kv_heads, self.length, head)
            self.register_buffer(name, cache, persistent=False)

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.embedding(token)
        for layer in range(self.layers):
            x = x + self.attention(functional.rms_norm(x, (self.width,), self.norm_1[layer], 1e-5), position, layer)
            h = functional.rms_norm(x, (self.width,), self.norm_2[layer], 1e-5)
            gated = functional.silu(h @ self.w1[layer].T) * (h @ self.w3[layer].T)
            x = x + gated @ self.w2[layer].T
        return functional.rms_norm(x, (self.width,), self.norm, 1e-5) @ self.embedding.weight.T

    def attention(self, h: Tensor, position: Tensor, layer: int) -> Tensor:
        head = self.width // self.heads
        q = self.rotated((h @ self.wq[layer].T).view(1, 1, self.heads, head).transpose(1, 2), position)
        k = self.rotated((h @ self.wk[layer].T).view(1, 1, self.kv_heads, head).transpose(1, 2), position)
        v = (h @ self.wv[layer].T).view(1, 1, self.kv_heads, head).transpose(1, 2)
        self.keys[layer, :, :, position] = k
        self.values[layer, :, :, position] = v
        seen = (torch.arange(self.length)[None] <= position[:, None])[:, None, None]
        mixed = functional.scaled_dot_product_attention(q, self.keys[layer], self.values[layer], seen, enable_gqa=True)
        return mixed.transpose(1, 2).reshape(1, 1, self.width) @ self.wo[layer].T

    def rotated(self, x: Tensor, position: Tensor) -> Tensor:
        """Pairs of neighbours turned by the position's angle, as llama2.c does."""
        cos, sin = self.cos[position], self.sin[position]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def stories_weights(file: Path) -> dict[str, Tensor]:
    """The state_dict of :class:`Stories` from a llama2.c checkpoint."""
    data = file.read_bytes()
    width, hidden, layers, heads, kv_heads, vocabulary, _ = struct.unpack("7i", data[:28])
    numbers = torch.from_numpy(np.frombuffer(data[28:], np.float32).copy())
    kv = width // heads * kv_heads
    shapes = {
        "embedding.weight": (vocabulary, width),
        "norm_1": (layers, width),
        "wq": (layers, width, width),
        "wk": (layers, kv, width),
        "wv": (layers, kv, width),
        "wo": (layers, width, width),
        "norm_2": (layers, width),
        "w1": (layers, hidden, width),
        "w2": (layers, width, hidden),
        "w3": (layers, hidden, width),
        "norm": (width,),
    }
    weights, start = {}, 0
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        weights[name] = numbers[start : start + count].reshape(shape).clone()
        start += count
    return weights
