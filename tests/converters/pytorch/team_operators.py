"""Small modules around operators that teams use beside the families'; importable as ``team_operators:NAME``."""

from __future__ import annotations

import dataclasses

import torch
from team_models import Seeded, image
from torch import Tensor, nn
from torch.nn import functional as F


class Scatter(Seeded):
    """index_put, scatter_add, cumsum, masked_fill, one_hot, sort, flip, tril, repeat_interleave."""

    example_inputs = (image(1, 4, 6), torch.tensor([[0, 2, 1, 3, 3, 0]]))
    ranges = (("index", "[0,4)"),)

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        total = torch.zeros_like(x).scatter_add_(1, index[:, None].expand(-1, 4, -1), x)
        y = x.clone()
        y[:, 1] = x[:, 2] * 2
        y[..., ::2] += 1
        y = y.masked_fill(x > 0.5, -1.0).cumsum(-1)
        hot = F.one_hot(index, 4).float().sum(1)
        ordered = torch.sort(x, dim=-1, descending=True)[0].flip(1)
        return total, y, hot, ordered * torch.tril(torch.ones(4, 6)) + x.repeat_interleave(2, 1)[:, :4]


class Warp(Seeded):
    """An affine grid sampled, pixels shuffled both ways, unfolded and folded, circular and replicated padding."""

    example_inputs = (image(1, 4, 6, 6), image(1, 2, 3) * 0.3)

    def forward(self, x: Tensor, theta: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        grid = F.affine_grid(theta, [x.shape[0], 4, 5, 7], align_corners=False)
        warped = F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        shuffled = F.pixel_unshuffle(F.pixel_shuffle(x, 2) * 2, 3)
        columns = F.unfold(x, 3, padding=1, stride=2)
        folded = F.fold(columns * 0.5, (6, 6), 3, padding=1, stride=2)
        return warped, shuffled, folded, F.pad(F.pad(x, (1, 2, 0, 1), mode="replicate"), (1, 1, 1, 1), mode="circular")


class Sizes(Seeded):
    """Every mode of interpolation, pools to odd sizes."""

    example_inputs = (image(1, 2, 7, 5),)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        return (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, size=(11, 9), mode="bicubic", align_corners=False),
            F.interpolate(x, size=(10, 3), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
            F.adaptive_avg_pool2d(x, (3, 2)),
            F.adaptive_max_pool2d(x, (2, 4)),
        )


@dataclasses.dataclass
class Answer:
    logits: Tensor
    loss: Tensor | None = None
    hidden: tuple[Tensor, ...] = ()


class HF(Seeded):
    """Optional inputs that are not given, a dataclass with None and a tuple inside, a 0-d and a bool output."""

    example_inputs = (image(1, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, mask: Tensor | None = None, labels: Tensor | None = None, scale: float = 2.0):
        h = F.mish(self.a(x))
        if mask is not None:
            h = h * mask
        return Answer(self.b(h) * scale, None, (h, h.amax() * 1.0, self.b(h) > 0))


class Indices(Seeded):
    """Integers in, integers out: arithmetic on ids, remainders, comparisons, bits."""

    example_inputs = (torch.arange(12).reshape(1, 12),)
    ranges = (("ids", "[0,50)"),)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        odd = (ids % 2 == 1) & (ids > 3) | (ids == 0)
        return ids // 3 - 4 * odd.long(), odd, torch.bitwise_and(ids, 6) + (ids << 1)


class Norms(Seeded):
    """Instance, group and local response norms, PReLU, GLU, softplus, log-softmax, logsumexp, std."""

    example_inputs = (image(1, 6, 5, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.inorm, self.gnorm, self.prelu = nn.InstanceNorm2d(6, affine=True), nn.GroupNorm(3, 6), nn.PReLU(6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.prelu(self.gnorm(self.inorm(x)))
        z = F.glu(F.local_response_norm(y, 3), 1)
        return (
            F.log_softmax(z, 1),
            torch.logsumexp(y, (2, 3)),
            F.softplus(y).std((2, 3)) + F.elu(y).var(dim=(2, 3), correction=0),
        )


class Video(Seeded):
    """Three dimensions: convolution, pooling, a transposed one, trilinear resize."""

    example_inputs = (image(1, 2, 4, 6, 6),)

    def __init__(self) -> None:
        super().__init__()
        self.c, self.t = nn.Conv3d(2, 4, 3, padding=1), nn.ConvTranspose3d(4, 2, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.avg_pool3d(F.max_pool3d(F.relu(self.c(x)), (1, 2, 2)), 2)
        return F.interpolate(self.t(y), size=(4, 6, 6), mode="trilinear", align_corners=False) + x


class Mixture(Seeded):
    """Experts: routed by topk, each expert's share by masks."""

    example_inputs = (image(1, 3, 8),)

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 4), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            share = (weights * (chosen == place)).sum(-1, keepdim=True)
            y = y + share * expert(x)
        return y


class Recurrent(Seeded):
    """Two stacked LSTMs whose state goes in and out as arguments, time first."""

    example_inputs = (image(5, 1, 4), (torch.zeros(2, 1, 6), torch.zeros(2, 1, 6)))

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, 2)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return self.lstm(x, state)


class Spectrum(Seeded):
    """A real Fourier transform as features."""

    example_inputs = (image(1, 64) - 0.5,)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.fft.rfft(x, norm="ortho")
        return z.abs(), torch.fft.irfft(z * 0.5, n=64)


class Mamba(Seeded):
    """A selective scan as cumulative sums, causal depthwise convolution."""

    example_inputs = (image(1, 6, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dt = nn.Conv1d(4, 4, 3, padding=2, groups=4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        u = F.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        decay = torch.cumsum(-F.softplus(self.dt(u)), 1)
        return torch.exp(decay) * torch.cumsum(u * torch.exp(-decay), 1)
