"""Nodes that the same architectures leave: Flax through ``jax.export`` and convertkit, PyTorch through its exporter.

``jax_nodes.py``: prints one row per model.  Both sides as a user gets them: PyTorch's with its own optimizer, ours
as the canonical model; constants do not count, nodes in loop bodies do.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from pathlib import Path

import jax_models
import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from jax import export
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, size: jax_models.Transformer, causal: bool) -> None:
        super().__init__()
        width = size.width
        self.heads, self.causal = size.heads, causal
        self.before_attention, self.before_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.hidden, self.narrow = nn.Linear(width, size.hidden), nn.Linear(size.hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before_attention(x)
        batch, length, width = y.shape
        parts = [
            layer(y).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.hidden(self.before_hidden(x))))


class Vit(nn.Module):
    """A vision transformer with a class token."""

    def __init__(self, size: jax_models.Transformer, patch: int = 8) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, size.width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, size.width))
        self.position = nn.Parameter(torch.randn(1, (32 // patch) ** 2 + 1, size.width))
        self.blocks = nn.ModuleList(Block(size, causal=False) for _ in range(size.depth))
        self.norm, self.classes = nn.LayerNorm(size.width), nn.Linear(size.width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.cut(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.classes(self.norm(x)[:, 0])


class Decoder(nn.Module):
    """A causal language model over token ids."""

    def __init__(self, size: jax_models.Transformer, words: int = jax_models.WORDS, length: int = 12) -> None:
        super().__init__()
        self.table = nn.Embedding(words, size.width)
        self.position = nn.Parameter(torch.randn(1, length, size.width))
        self.blocks = nn.ModuleList(Block(size, causal=True) for _ in range(size.depth))
        self.norm, self.words = nn.LayerNorm(size.width), nn.Linear(size.width, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids) + self.position
        for block in self.blocks:
            x = block(x)
        return self.words(self.norm(x))


class Cnn(nn.Module):
    """Convolutions with batch normalisation, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, width, stride in ((3, 16, 1), (16, 32, 2), (32, 64, 2)):
            convolution = nn.Conv2d(before, width, 3, stride, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.MaxPool2d(2))
        self.classes = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.layers(x).mean((2, 3)))


class Recurrent(nn.Module):
    """One recurrent layer over a sequence, then a classifier on the last step."""

    def __init__(self, layer: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layer, self.classes = layer(20, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classes(self.layer(x)[0][:, -1])


def torch_models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """The counterparts of :func:`jax_models.flax_models`."""
    mlp = nn.Sequential(
        *(nn.Linear(20, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 10), nn.Softmax(-1)),
    )
    return {
        "vit": (Vit(jax_models.SMALL), torch.zeros(1, 3, 32, 32)),
        "decoder": (Decoder(jax_models.SMALL), torch.zeros(1, 12, dtype=torch.int64)),
        "cnn": (Cnn(), torch.zeros(1, 3, 32, 32)),
        "mlp": (mlp, torch.zeros(1, 20)),
        "lstm": (Recurrent(nn.LSTM), torch.zeros(1, 9, 20)),
        "gru": (Recurrent(nn.GRU), torch.zeros(1, 9, 20)),
    }


def count(model: ir.Model) -> int:
    """Nodes in the graph and in its subgraphs, constants apart."""
    return sum(node.op_type not in ("Constant", "Identity") for node in model.graph.all_nodes())


def of_flax(artifact: bytes) -> tuple[int, float]:
    """Nodes of the canonical model that the command makes of an artifact, and how far it is from JAX."""
    from convertkit.converters.jax.service import JaxService

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "model.jax", Path(folder) / "model.onnx"
        source.write_bytes(artifact)
        service = JaxService()
        service.open({"source": str(source), "kind": "jax-export"}, {})
        service.convert({"path": str(target), "sizes": {}, "made_by": "bench"}, {})
        return count(ir.load(target)), apart(artifact, target)


def apart(artifact: bytes, target: Path) -> float:
    """Largest difference between ONNX Runtime and JAX over JAX's largest value."""
    program = export.deserialize(bytearray(artifact))
    aval, rng = program.in_avals[0], np.random.default_rng(1)
    # Flax answers NaN for a token that its table does not have.
    tokens = aval.dtype.kind == "i"
    drawn = rng.integers(0, jax_models.WORDS, aval.shape) if tokens else rng.standard_normal(aval.shape)
    feed = drawn.astype(aval.dtype)
    session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
    got = np.asarray(session.run(None, {session.get_inputs()[0].name: feed})[0])
    want = np.asarray(program.call(feed))
    return float(np.abs(got - want).max() / np.abs(want).max())


def of_torch(model: nn.Module, example: torch.Tensor) -> int:
    """Nodes that ``torch.onnx.export`` leaves."""
    program = torch.onnx.export(model.eval(), (example,), dynamo=True, verbose=False)
    assert program is not None
    return count(program.model)


def main() -> int:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    # All before the first conversion, which lets JAX have 64-bit types.
    artifacts = {name: jax_models.exported(*each) for name, each in jax_models.flax_models().items()}
    for name, pair in torch_models().items():
        (ours, error), other = of_flax(artifacts[name]), of_torch(*pair)
        print(f"{name:8} Flax {ours:4}  PyTorch {other:4}  ratio {ours / other:.2f}  error {error:.0e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
