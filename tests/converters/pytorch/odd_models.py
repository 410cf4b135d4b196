"""Small modules, each with a habit that exporters stumble over; importable as ``odd_models:NAME``."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Seeded(nn.Module):
    """Draws the same weights every time."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)


class Structured(Seeded):
    """Takes a dict and nested tuples, returns a dict that holds one value twice."""

    example_inputs = ({"a": torch.zeros(1, 4), "b": torch.zeros(1, 4)}, (torch.zeros(1, 4), (torch.zeros(1, 4),)))

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: dict[str, Tensor], more: tuple[Tensor, tuple[Tensor]]) -> dict[str, Tensor]:
        y = self.layer(x["a"] + more[0] * more[1][0])
        return {"sum": y, "same": y, "difference": x["a"] - x["b"]}


class Brain(Seeded):
    """bfloat16 throughout."""

    example_inputs = (torch.zeros(1, 8, dtype=torch.bfloat16),)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Half(Seeded):
    """float16 throughout."""

    example_inputs = (torch.zeros(1, 8, dtype=torch.float16),)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Counting(Seeded):
    """A position as a Python number and a cache in a list: state that is not a buffer."""

    example_inputs = (torch.zeros(1, 1, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.position = 0
        self.cache = [torch.zeros(1, 16, 4), torch.zeros(1, 4)]

    def forward(self, x: Tensor) -> Tensor:
        here = torch.arange(16) == self.position
        self.cache[0] = torch.where(here[None, :, None], self.layer(x), self.cache[0])
        self.cache[1] = self.cache[1] * 0.5 + x[:, 0]
        self.position = self.position + 1
        return self.cache[0].sum(1) / float(self.position) + self.cache[1]


class Growing(Seeded):
    """A cache that grows from call to call."""

    example_inputs = (torch.zeros(1, 1, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.past: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.past = x if self.past is None else torch.cat([self.past, x], 1)
        return self.past.sum(1)


class Rewriting(Seeded):
    """Writes an attribute that it never reads before it has written it, and has parametrized weights."""

    example_inputs = (torch.zeros(1, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x)
        return self.last.relu()


class OnlyOne(Seeded):
    """Computes for a batch of 1 alone."""

    example_inputs = (torch.zeros(1, 3, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.view(1, 12))


class Looped(Seeded):
    """A loop over the samples, in Python that no script takes: every graph of it has as many as the example."""

    example_inputs = (torch.zeros(2, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        layers = {"the": self.layer}
        return torch.stack([getattr(self, "".join(["lay", "er"]))(row) for row in x]) + layers["the"].bias


class Resized(Seeded):
    """An example of batch 1 and sizes taken from shapes."""

    example_inputs = (torch.zeros(1, 4, 8, 12),)

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(2, 4), nn.Conv2d(8, 9, 1)

    def forward(self, x: Tensor) -> Tensor:
        small = nn.functional.avg_pool2d(self.norm(x), 2)
        grown = nn.functional.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return nn.functional.pixel_shuffle(self.conv(torch.cat([x, grown], 1)), 3)


class Padded(Seeded):
    """An encoder with a padding mask: a trace holds the fused kernel."""

    example_inputs = (torch.zeros(2, 5, 8), torch.tensor([[False, False, False, True, True], [False] * 5]))

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)


class Stacked(Seeded):
    """Two layers as torch stacks them by default: behind a padding mask the sequences travel nested."""

    example_inputs = (torch.zeros(2, 5, 8), torch.tensor([[False, False, False, True, True], [False] * 5]))

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.layers(x, src_key_padding_mask=hidden)


class Tied(Seeded):
    """A head that shares the embedding's weights, and a batch norm."""

    example_inputs = (torch.zeros(1, 6, dtype=torch.int64),)

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(11, 8), nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.embedding(ids).transpose(1, 2)).transpose(1, 2))


class Attending(Seeded):
    """One block of attention with grouped heads, as decoders write it."""

    example_inputs = (torch.zeros(1, 6, 16),)

    def __init__(self) -> None:
        super().__init__()
        self.query, self.both, self.out = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, 4, 4).transpose(1, 2)
        key, value = self.both(x).view(batch, length, 4, 4).transpose(1, 2).chunk(2, 1)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, 16))


class Causal(Seeded):
    """A transformer whose layers compare the mask with the causal one to choose a kernel."""

    example_inputs = (torch.zeros(2, 5, 8),)

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 1)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.decoder(x, x * 0.5, tgt_mask=mask)


class Projected(Seeded):
    """LSTMs with projections, which ONNX's LSTM does not have, beside one without."""

    example_inputs = (torch.zeros(1, 4, 6),)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(6, 5, 2, proj_size=3, bidirectional=True, batch_first=True)
        self.single = nn.LSTM(6, 5, proj_size=2, bias=False, batch_first=True)
        self.plain = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        y, (h, c) = self.layers(x)
        return y, h, c, self.single(x)[0], self.plain(x)[0]


class Packed(Seeded):
    """Sequences of several lengths, packed for an LSTM and padded again."""

    example_inputs = (torch.zeros(3, 5, 4), torch.tensor([5, 3, 2]))

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 6, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        y, (h, _) = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=5)[0], h


class Bagged(Seeded):
    """Bags of ids, where they begin beside them; some may be empty."""

    example_inputs = (torch.zeros(3, 4), torch.zeros(7, dtype=torch.int64), torch.tensor([0, 2, 5]))

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(9, 4, mode="mean")

    def forward(self, x: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
        return x * self.bags(ids, offsets)


class LogMel(Seeded):
    """The front of a speech model: a short-time Fourier transform of 20 samples, a filter bank, a logarithm."""

    example_inputs = (torch.zeros(1, 160),)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(20))
        self.register_buffer("bank", torch.rand(11, 5) * (torch.rand(11, 5) < 0.4))

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, 20, 8, window=self.window, return_complex=True)
        power = (spectrum.abs() ** 2).transpose(1, 2)
        return torch.clamp(power @ self.bank, min=1e-10).log10()


class Decibels(Seeded):
    """A spectrogram of half a second of speech in decibels, bound by -100 alone: empty bins show all that is left."""

    example_inputs = (torch.zeros(1, 8000),)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bank", torch.rand(201, 12) * (torch.rand(201, 12) < 0.1))

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = torch.stft(wave, 400, 160, window=self.window, return_complex=True)
        power = (spectrum.abs() ** 2).transpose(1, 2)
        return 10 * torch.clamp(power @ self.bank, min=1e-10).log10()


class Spectra(Seeded):
    """Fourier transforms of lengths that are not powers of two: real, complex, back, padded, of two axes."""

    example_inputs = (torch.zeros(1, 15, 25),)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        z = torch.fft.rfft(x, norm="ortho")
        whole = torch.fft.fft(torch.complex(x, x * 2), dim=1)
        back = torch.fft.irfft(z * 2, n=25)
        padded = torch.fft.rfft(x, n=45)
        return z.real, whole.imag, back, padded.imag, torch.fft.fft2(x).real, torch.fft.ifft(whole, dim=1).imag


class Rotary(Seeded):
    """Turned by complex numbers, kept and computed."""

    example_inputs = (torch.zeros(1, 5, 2, 8),)

    def __init__(self) -> None:
        super().__init__()
        angle = torch.outer(torch.arange(5.0), 1.0 / 100 ** (torch.arange(0.0, 8.0, 2.0) / 8))
        self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = torch.view_as_real(z * self.turn[None, :, None]).flatten(3)
        computed = torch.exp(z[:, 0] * 0.1) * torch.polar(z.abs()[:, 1], x[:, 2, :, 4:])
        return turned, torch.view_as_real(computed[:, 1, None].expand(-1, 3, -1))


class Pooled(Seeded):
    """Maximum pools to sizes that do not divide."""

    example_inputs = (torch.zeros(1, 2, 7, 5),)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pool = nn.functional
        return (
            pool.adaptive_max_pool2d(x, (2, 4)),
            pool.adaptive_max_pool1d(x.flatten(2), 3),
            pool.adaptive_max_pool3d(x[:, None], (1, 3, 2)) * x.amax() - x.amin(),
        )


class ChaoticBranch(nn.Module):
    """A branch of Python's on data that is chaos itself: only there does a trace that missed it show."""

    example_inputs = (torch.full((2, 6), 0.25),)

    def forward(self, x: Tensor) -> Tensor:
        if max(map(abs, x.flatten().tolist())) > 3:  # which no compiler takes
            return torch.sin(1e6 * x) + 500
        return x * 2


class Chaotic(Seeded):
    """Sums whose roundings decide everything: in another order they give another result."""

    example_inputs = (torch.full((2, 600), 0.25),)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(1e9 * (x * 1.1).mean(1))


class Doubled(Seeded):
    """float64 in an operator that ONNX Runtime only has for float32."""

    example_inputs = (torch.rand(1, 3, 8, 8, dtype=torch.float64),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu()


class AnyLength(Seeded):
    """A recurrence over a length that may be free; what torch records behind it is the example's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x)


class Waveform(Seeded):
    """A front end that needs more samples than a batch or an image has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, 2, 400, 160)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x[:, None]).relu()


class Spectrum(Seeded):
    """Returns complex numbers."""

    example_inputs = (torch.zeros(1, 8),)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.rfft(x)


class Phases(Seeded):
    """Takes complex numbers."""

    example_inputs = (torch.ones(2, 8, dtype=torch.complex64),)

    def forward(self, x: Tensor) -> Tensor:
        return x.angle()


class LeftOut(Seeded):
    """Takes arrays that may be missing, and numbers that have defaults."""

    example_inputs = (torch.ones(2, 5, 8), None, torch.ones(2, 5))

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor, prefix: Tensor | None = None, weight: Tensor | None = None, top: int = 2) -> Tensor:
        y = self.layer(x if prefix is None else torch.cat([prefix, x], 1))
        return (y if weight is None else y * weight[..., None]).topk(top, -1)[0]


class Decoded(Seeded):
    """Greedy decoding that appends a token in every turn and stops at token 3, after ten at most."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.out = nn.Embedding(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 6)

    def forward(self, h: Tensor) -> Tensor:
        token = torch.zeros(h.shape[0], dtype=torch.int64)
        tokens = torch.zeros(h.shape[0], 0, dtype=torch.int64)
        count = 0
        done = False
        while count < 10 and not done:
            h = self.cell(self.table(token), h)
            token = self.out(h).argmax(-1)
            tokens = torch.cat([tokens, token[:, None]], 1)
            count += 1
            done = bool((token == 3).all())
        return tokens
