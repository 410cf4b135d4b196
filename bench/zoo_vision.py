"""Vision models of the zoo: ResNet-18, ConvNeXt-T, ViT-tiny, a U-Net and a YOLO detector with its decoding head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """Two 3×3 convolutions and a shortcut, 1×1 where the shape changes (He 2015)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        blocks, channels = [], 64
        for outputs, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            blocks.append(Residual(channels, outputs, stride))
            channels = outputs
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(512, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.max_pool2d(self.stem(x), 3, 2, 1))
        return self.fc(x.mean((2, 3), keepdim=True).flatten(1))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of an NCHW map."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """Depthwise 7×7, norm, MLP with GELU, layer scale (Liu 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(0.2 + 0.3 * torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.fc2(F.gelu(self.fc1(y))).permute(0, 3, 1, 2)
        return y * self.gamma.reshape(1, -1, 1, 1) + x


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96, eps=1e-6)]
        channels = 96
        for outputs, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
            if outputs != channels:
                layers += [ChannelNorm(channels, eps=1e-6), nn.Conv2d(channels, outputs, 2, 2)]
            layers += [ConvNeXtBlock(outputs) for _ in range(depth)]
            channels = outputs
        self.trunk, self.norm, self.fc = nn.Sequential(*layers), ChannelNorm(768, eps=1e-6), nn.Linear(768, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.norm(self.trunk(x).mean((2, 3), keepdim=True)).flatten(1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class ViT(nn.Module):
    """ViT-tiny: 16×16 patches, class token, 12 layers of width 192 (Dosovitskiy 2020)."""

    def __init__(self, width: int = 192, heads: int = 3, layers: int = 12) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


class Double(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class UNet(nn.Module):
    """Three ways up: two transposed convolutions of different form and one bilinear resize (Ronneberger 2015)."""

    def __init__(self, c: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([Double(3, c), Double(c, 2 * c), Double(2 * c, 4 * c), Double(4 * c, 8 * c)])
        self.up1, self.join1 = nn.ConvTranspose2d(8 * c, 4 * c, 2, stride=2), Double(8 * c, 4 * c)
        self.up2 = nn.ConvTranspose2d(4 * c, 2 * c, 3, stride=2, padding=1, output_padding=1)
        self.join2, self.reduce = Double(4 * c, 2 * c), nn.Conv2d(2 * c, c, 1)
        self.join3, self.head = Double(2 * c, c), nn.Conv2d(c, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = [self.down[0](x)]
        for block in list(self.down)[1:]:
            maps.append(block(F.max_pool2d(maps[-1], 2)))
        y = self.join1(torch.cat([self.up1(maps[3]), maps[2]], 1))
        y = self.join2(torch.cat([self.up2(y), maps[1]], 1))
        y = self.reduce(F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False))
        return self.head(self.join3(torch.cat([y, maps[0]], 1)))
