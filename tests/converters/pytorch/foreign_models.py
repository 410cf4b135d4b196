"""Models as other packages write them: results in containers of their own, wrappers, lists, settings beside weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Seeded(nn.Module):
    def __init__(self) -> None:
        torch.manual_seed(11)
        super().__init__()


class Denoiser(Seeded):
    """Takes and returns ``sample``, as diffusers' networks do."""

    example_inputs = (torch.ones(2, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, sample: Tensor) -> dict[str, Tensor]:
        return {"sample": self.layer(sample), "mean": sample.mean(1)}


class Caching(Seeded):
    """Takes ``output``, the name that an only result has."""

    example_inputs = (torch.ones(2, 4),)

    def forward(self, output: Tensor) -> Tensor:
        return output.cumsum(1)


@dataclass
class Prediction:
    logits: Tensor
    hidden: Tensor | None = None


class Classifier(Seeded):
    """Returns a dataclass of which a field is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Prediction:
        return Prediction(self.second(self.first(x).relu()))


class Moments(NamedTuple):
    mean: Tensor
    parts: list[Tensor]


class Measuring(Seeded):
    """Returns a named tuple with a list in it."""

    def forward(self, x: Tensor) -> Moments:
        return Moments(x.mean(1), [x * 2, x.relu()])


class ScaledTensor(Tensor):
    """Integers with a scale for each row that act as a weight, as torchao's classes do."""

    @staticmethod
    def __new__(cls, values: Tensor, scale: Tensor) -> ScaledTensor:
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype)

    def __init__(self, values: Tensor, scale: Tensor) -> None:
        self.qdata, self.scale = values, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["qdata", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], _meta: object, _size: object, _stride: object) -> ScaledTensor:
        return ScaledTensor(inner["qdata"], inner["scale"])

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is nn.functional.linear:
            x, weight, bias = args
            return nn.functional.linear(x, weight.qdata.float() * weight.scale, bias)
        return super().__torch_function__(function, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return ScaledTensor(args[0].qdata, args[0].scale)
        raise NotImplementedError(function)


class Weighed(Seeded):
    """A linear layer whose weight is such an object, of integers or of floats of 8 bits."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        weight = ScaledTensor((torch.randn(3, 4) * 50).to(kind), torch.rand(3, 1) / 50)
        self.layer.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Part(Seeded):
    example_inputs = (torch.ones(2, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.inner = Classifier()

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.inner(x * scale).logits


def compiled() -> nn.Module:
    made = Part()
    made.example_inputs = (torch.ones(2, 4), torch.ones(2, 4))
    made.inner = torch.compile(made.inner)
    made.inner._orig_mod.first.compile()
    return torch.compile(nn.DataParallel(made))


class Growing(Seeded):
    """Appends to a list and joins it, as scripted DenseNets do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 + 4 * place, 4, 3, padding=1) for place in range(3))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)).relu())
        return torch.cat(found, 1)


class Measured(Seeded):
    """Computes with sizes between two layers that only the replay of a trace takes."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(x)
        last = hidden.shape[1] - 1
        half = torch.tensor(hidden.shape[1]) * 2 // 3
        return self.out(hidden[:, torch.arange(0, 6).clamp(max=last)]) * half


class Levelled(Seeded):
    """Flags times Python's floats, behind windows of a computed size that only the replay of a trace takes."""

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.functional.unfold(x[:, None], (3, x.shape[2])).reshape(x.shape[0], -1)
        return 10.0 * (mask >= 1) + -10.0 * (mask <= -1) + mask * (mask.abs() < 1)


class Turned(Seeded):
    """Rows in reverse order, as far as they are filled; a length of 0 is no length."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        last = x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 3))
        places = (lengths[:, None] - 1 - torch.arange(5)) % lengths[:, None]
        return last + x.gather(1, places.unsqueeze(-1).expand(-1, -1, 3))


class Relative(Seeded):
    """Attention with a bias, and a view that merges the heads, as T5's encoder has it."""

    example_inputs = (torch.ones(2, 5, 32),)

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)
        self.bias = nn.Parameter(torch.randn(1, 4, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.view(-1, 5, 4, 8).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=self.bias + x[:, None, None, :, 0], scale=1.0
        )
        return mixed.reshape(x.shape[0], -1, 5, 8).transpose(1, 2).reshape(x.shape[0], 5, -1)


class Settings:
    """What transformers' classes of settings do."""

    def __init__(self, width: int) -> None:
        self.width = width

    @classmethod
    def from_pretrained(cls, folder: str) -> Settings:
        import json
        from pathlib import Path

        return cls(json.loads((Path(folder) / "config.json").read_text())["width"])


class Configured(Seeded):
    """Made of settings, as transformers' models are."""

    config_class = Settings
    example_inputs = (torch.ones(2, 4),)

    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.layer = nn.Linear(4, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Reading(Seeded):
    """Takes ids, and may take a mask over them and what kind each is; nothing computes with ``labels``."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kind_table, self.out = nn.Embedding(9, 8), nn.Embedding(3, 8), nn.Linear(8, 4)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        kind_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        x = self.words(input_ids)
        x = x if kind_ids is None else x + self.kind_table(kind_ids)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.out((x * mask[..., None]).cumsum(1))


class Pretrained(Reading):
    """The same with the example that a class of transformers makes of itself."""

    dummy_inputs = {"input_ids": torch.tensor([[8, 6, 0, 0, 1], [1, 2, 3, 0, 0]])}  # noqa: RUF012


class Described(Reading):
    example_inputs = (torch.tensor([[8, 6, 0, 0, 1]]),)


class Framed(Seeded):
    """Pads to whole frames by sizes that are buffers, as transformers' audio codecs do."""

    example_inputs = (torch.ones(2, 3, 17),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(3, 4, 5, stride=2)
        self.cell = nn.LSTM(4, 4, batch_first=True)
        for name, size in {"kernel": 5, "stride": 2, "padding": 3}.items():
            self.register_buffer(name, torch.tensor(size), persistent=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        frames = torch.ceil((x.shape[-1] - self.kernel + self.padding) / self.stride + 1).to(torch.int64) - 1
        missing = frames * self.stride + self.kernel - self.padding - x.shape[-1]
        if missing + self.padding >= x.shape[-1]:
            x = nn.functional.pad(x, (0, 1))
        padded = nn.functional.pad(x, (self.padding, missing), "reflect")
        return {"frames": self.cell(self.layer(padded).transpose(1, 2) / self.stride)[0]}


class Lengthened(Seeded):
    """Repeats rows as often as it computes, then reads backwards: the length is decided by values."""

    example_inputs = (torch.ones(1, 5, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        counts = x[0].abs().sum(1).round().long() + 1
        return {"frames": self.cell(torch.repeat_interleave(x, counts, dim=1))[0]}
