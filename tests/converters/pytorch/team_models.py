"""Small modules in the manner of the families that teams have; importable as ``team_models:NAME``."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Seeded(nn.Module):
    """Draws the same weights every time."""

    example_inputs: tuple = ()
    ranges: tuple = ()
    """Names of integer inputs with their ranges, as ``--input`` takes them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)


def image(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1))


def heads(x: Tensor) -> Tensor:
    """Four heads of four."""
    return x.view(x.shape[0], x.shape[1], 4, 4).transpose(1, 2)


def half_turned(x: Tensor) -> Tensor:
    return torch.cat([-x[..., 2:], x[..., :2]], -1)


class DenseBlock(Seeded):
    """DenseNet: every layer sees all earlier ones."""

    example_inputs = (image(1, 3, 12, 12),)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(3 + 4 * k), nn.ReLU(), nn.Conv2d(3 + 4 * k, 4, 3, padding=1)) for k in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return F.adaptive_avg_pool2d(x, (1, 1)).flatten(1)


class Shuffle(Seeded):
    """ShuffleNet: channels split, shuffled."""

    example_inputs = (image(1, 8, 9, 9),)

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=4)
        )

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        x = torch.cat((a, self.branch(b)), dim=1)
        n, c, h, w = x.size()
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w).mean([2, 3])


class Squeeze(Seeded):
    """SqueezeNet's fire and ceil-mode pooling; Inception's odd pools."""

    example_inputs = (image(1, 3, 21, 21),)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.a, self.b = nn.Conv2d(4, 6, 1), nn.Conv2d(4, 6, (1, 3), padding=(0, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 3, 2, ceil_mode=True)
        x = F.relu(self.squeeze(x))
        x = torch.cat([self.a(x), self.b(x), F.avg_pool2d(x, 3, 1, 1)], 1)
        return F.adaptive_avg_pool2d(F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (3, 2)).flatten(
            1
        )


class Segmentation(Seeded):
    """DeepLab: dilated convolutions, image pooling, upsampled to the input's size; a dict comes out."""

    example_inputs = (image(1, 3, 24, 20),)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, 2, 1)
        self.rates = nn.ModuleList(nn.Conv2d(8, 4, 3, padding=r, dilation=r) for r in (1, 2, 4))
        self.pooled = nn.Conv2d(8, 4, 1)
        self.head = nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        size = x.shape[-2:]
        f = F.relu(self.body(x))
        p = F.interpolate(
            self.pooled(F.adaptive_avg_pool2d(f, 1)), size=f.shape[-2:], mode="bilinear", align_corners=False
        )
        y = self.head(torch.cat([*[r(f) for r in self.rates], p], 1))
        y = F.interpolate(y, size=size, mode="bilinear", align_corners=False)
        return {"out": y, "classes": y.argmax(1)}


class SSD(Seeded):
    """A detection head: boxes decoded from anchors, scores sorted, the best few gathered."""

    example_inputs = (image(1, 3, 16, 16),)

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, 4, 1)
        self.boxes, self.scores = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)
        self.register_buffer("anchors", torch.rand(32, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        f = F.relu(self.body(x))
        n = f.shape[0]
        loc = self.boxes(f).permute(0, 2, 3, 1).reshape(n, -1, 4)
        conf = self.scores(f).permute(0, 2, 3, 1).reshape(n, -1, 3).softmax(-1)
        centre = self.anchors[:, :2] + loc[..., :2] * 0.1 * self.anchors[:, 2:]
        size = self.anchors[:, 2:] * torch.exp(loc[..., 2:] * 0.2)
        boxes = torch.cat([centre - size / 2, centre + size / 2], -1).clamp(0, 1)
        best, labels = conf[..., 1:].max(-1)
        top, order = best.topk(5, dim=1)
        return boxes.gather(1, order[..., None].expand(-1, -1, 4)), top, labels.gather(1, order)


class ConvNextBlock(Seeded):
    """timm: channels-last norm, layer scale, squeeze and excite, hard swish, global response."""

    example_inputs = (image(1, 6, 9, 11),)

    def __init__(self) -> None:
        super().__init__()
        self.dw = nn.Conv2d(6, 6, 7, padding=3, groups=6)
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 24), nn.Linear(24, 6)
        self.gamma = nn.Parameter(torch.full((6,), 0.3))
        self.se1, self.se2 = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dw(x).permute(0, 2, 3, 1))
        h = F.gelu(self.up(y))
        g = torch.norm(h, p=2, dim=(1, 2), keepdim=True)
        h = h * (g / (g.mean(-1, keepdim=True) + 1e-6)) + h
        y = (self.gamma * self.down(h)).permute(0, 3, 1, 2)
        y = y * F.hardsigmoid(self.se2(F.silu(self.se1(y.mean((2, 3), keepdim=True)))))
        return F.hardswish(x + y)


class Bert(Seeded):
    """Token and segment embeddings, an additive mask made from ids, tanh pooling, GELU."""

    example_inputs = (torch.arange(8)[None] % 11, torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]]))
    ranges = (("ids", "[0,11)"), ("mask", "[0,2)"))

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 16), nn.Embedding(8, 16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.norm, self.pool = nn.LayerNorm(16, eps=1e-12), nn.Linear(16, 16)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))[None]
        x = self.norm(x)
        extended = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        scores = heads(self.q(x)) @ heads(self.k(x)).transpose(-1, -2) / math.sqrt(4) + extended
        y = (scores.softmax(-1) @ heads(self.v(x))).transpose(1, 2).flatten(2)
        x = self.norm(x + self.o(y))
        return x, torch.tanh(self.pool(x[:, 0]))


class GPT2(Seeded):
    """A causal mask from a buffer, where(), new GELU, tied head."""

    example_inputs = (torch.arange(6)[None] % 11,)
    ranges = (("ids", "[0,11)"),)

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 16), nn.Embedding(10, 16)
        self.attn, self.proj, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)
        self.register_buffer("bias", torch.tril(torch.ones(10, 10, dtype=torch.bool))[None, None])

    def forward(self, ids: Tensor) -> Tensor:
        n, length = ids.shape
        x = self.wte(ids) + self.wpe.weight[:length]
        q, k, v = self.attn(self.norm(x)).split(16, dim=2)
        q, k, v = (t.view(n, length, 2, 8).transpose(1, 2) for t in (q, k, v))
        w = q @ k.transpose(-1, -2) * 8**-0.5
        w = torch.where(self.bias[:, :, :length, :length], w, torch.full([], -1e4, dtype=w.dtype))
        x = x + self.proj((w.softmax(-1) @ v).transpose(1, 2).reshape(n, length, 16))
        x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return x @ self.wte.weight.T


class T5Bias(Seeded):
    """Relative positions in logarithmic buckets."""

    example_inputs = (image(1, 7, 16),)

    def __init__(self) -> None:
        super().__init__()
        self.table, self.qkv = nn.Embedding(8, 2), nn.Linear(16, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        place = torch.arange(length)
        relative = place[None, :] - place[:, None]
        bucket = (relative > 0).long() * 4
        relative = relative.abs()
        large = 2 + (torch.log(relative.float().clamp(min=1) / 2) / math.log(8) * 2).long()
        large = torch.min(large, torch.full_like(large, 3))
        bucket = bucket + torch.where(relative < 2, relative, large)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) + self.table(bucket).permute(2, 0, 1)[None]
        return torch.einsum("bhqk,bhkd->bqhd", scores.softmax(-1), v).flatten(2)


class Llama(Seeded):
    """RMS norm, rotated halves, grouped heads, SwiGLU."""

    example_inputs = (image(1, 6, 16),)

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(16)
        self.q, self.k, self.v, self.o = (
            nn.Linear(16, 16, False),
            nn.Linear(16, 8, False),
            nn.Linear(16, 8, False),
            nn.Linear(16, 16, False),
        )
        self.gate, self.up, self.down = nn.Linear(16, 24, False), nn.Linear(16, 24, False), nn.Linear(24, 16, False)
        self.register_buffer("freq", 1.0 / 10000 ** (torch.arange(0, 4, 2).float() / 4))

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        angle = torch.outer(torch.arange(length, device=x.device).float(), self.freq)
        angle = torch.cat([angle, angle], -1)
        cos, sin = angle.cos()[None, None], angle.sin()[None, None]
        h = self.norm(x)
        q, k, v = (p(h).view(n, length, -1, 4).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = q * cos + half_turned(q) * sin, k * cos + half_turned(k) * sin
        k, v = (t[:, :, None].expand(n, 2, 2, length, 4).reshape(n, 4, length, 4) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, length, 16))
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Rotary(Seeded):
    """Rotation as a complex product."""

    example_inputs = (image(1, 5, 2, 8),)

    def __init__(self) -> None:
        super().__init__()
        angle = torch.outer(torch.arange(5).float(), 1.0 / 100 ** (torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * self.turn[None, :, None]).flatten(3).type_as(x)


class Whisper(Seeded):
    """Encoder front: strided convolutions over frames, sinusoids, pre-norm attention."""

    example_inputs = (image(1, 8, 20),)

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(8, 16, 3, padding=1), nn.Conv1d(16, 16, 3, 2, 1)
        self.register_buffer("places", torch.randn(10, 16))
        self.attn, self.norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.LayerNorm(16)

    def forward(self, mel: Tensor) -> Tensor:
        x = F.gelu(self.c2(F.gelu(self.c1(mel)))).permute(0, 2, 1) + self.places
        h = self.norm(x)
        return x + self.attn(h, h, h, need_weights=False)[0]


class ViT(Seeded):
    """Patches, a class token expanded over the batch, cosine similarities with a scale: CLIP."""

    example_inputs = (image(1, 3, 12, 12),)

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.cls, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 10, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.texts, self.scale = nn.Parameter(torch.randn(5, 16)), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        x = F.normalize(self.block(x)[:, 0], dim=-1)
        return self.scale.exp() * x @ F.normalize(self.texts, dim=-1).t()


class Swin(Seeded):
    """Windows, shifted by roll, with a table of relative positions and a mask; patch merging by strided slices."""

    example_inputs = (image(1, 8, 8, 8),)

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.table = nn.Linear(8, 24), nn.Parameter(torch.randn(49, 2))
        place = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        relative = place[:, :, None] - place[:, None] + 3
        self.register_buffer("index", relative[0] * 7 + relative[1])
        self.merge = nn.Linear(32, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        x = torch.roll(x, (-2, -2), (1, 2))
        x = x.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(x).reshape(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)
        x = ((q @ k.transpose(-2, -1) * 0.5 + bias).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c)
        x = x.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        x = torch.roll(x, (2, 2), (1, 2))
        return self.merge(torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1))


class Wav2Vec(Seeded):
    """Raw sound: group norm, weight norm over groups, a trimmed position convolution."""

    example_inputs = (image(1, 200) - 0.5,)

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.norm, self.c2 = nn.Conv1d(1, 8, 10, 5, bias=False), nn.GroupNorm(8, 8), nn.Conv1d(8, 8, 3, 2)
        self.place = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 6, padding=3, groups=2), dim=2)

    def forward(self, wave: Tensor) -> Tensor:
        x = F.gelu(self.c2(F.gelu(self.norm(self.c1(wave[:, None])))))
        return x + F.gelu(self.place(x)[:, :, :-1])


class Vocoder(Seeded):
    """HiFi-GAN: transposed and dilated convolutions with old weight norm, leaky ReLU, tanh."""

    example_inputs = (image(1, 6, 9),)

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.utils.weight_norm(nn.ConvTranspose1d(6, 4, 8, 4, padding=2))
        self.out_pad = nn.ConvTranspose1d(4, 4, 3, 2, 1, output_padding=1)
        self.res, self.last = nn.Conv1d(4, 4, 3, padding=3, dilation=3), nn.Conv1d(4, 1, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.out_pad(self.up(F.leaky_relu(x, 0.1)))
        x = x + self.res(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.pad(x, (3, 3), mode="reflect")))


class Seq2Seq(Seeded):
    """A GRU encoder and a decoder cell with attention, stepping in a Python loop."""

    example_inputs = (image(1, 5, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.cell = nn.GRU(4, 8, batch_first=True, bidirectional=True), nn.LSTMCell(16, 8)
        self.out, self.mix = nn.Linear(8, 3), nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        memory, _ = self.encoder(x)
        h = torch.zeros(x.shape[0], 8)
        c = torch.zeros(x.shape[0], 8)
        found = []
        for _ in range(3):
            weights = torch.bmm(memory, self.mix(h).unsqueeze(2)).softmax(1)
            h, c = self.cell((memory * weights).sum(1), (h, c))
            found.append(self.out(h))
        return torch.stack(found, dim=1)
