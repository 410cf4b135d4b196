"""Sequence models of the zoo: BERT-small, a GPT block, a bidirectional LSTM and a GRU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, TOKENS = 1000, 128, 4, 64


class BertLayer(nn.Module):
    """Attention written out, so that its products and softmax stay visible in the graph (post-norm, Devlin 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 512), nn.Linear(512, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (f(x).view(batch, tokens, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5 + mask).softmax(-1)
        y = self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, WIDTH))
        x = self.norm1(x + y)
        return self.norm2(x + self.fc2(F.gelu(self.fc1(x))))


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.types, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList([BertLayer() for _ in range(2)])

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        x = self.norm(self.words(ids) + self.types(torch.zeros_like(ids)) + self.positions(positions))
        bias = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias)
        return x


class GptLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Gpt(nn.Module):
    """Two decoder layers and the vocabulary projection, causal (pre-norm, Radford 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(1, TOKENS, WIDTH))
        self.layers = nn.Sequential(GptLayer(), GptLayer())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.words(x) + self.positions)))


class Recurrent(nn.Module):
    """Two recurrent layers and a classifier for every step; the LSTM reads both ways."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        make = nn.LSTM if kind == "lstm" else nn.GRU
        self.layers = make(40, 64, num_layers=2, batch_first=True, bidirectional=kind == "lstm")
        self.head = nn.Linear(128 if kind == "lstm" else 64, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0])
