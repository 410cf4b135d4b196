"""The same architectures in Flax and in PyTorch, with random weights, for ``jax_conversion.py`` and ``jax_nodes.py``.

Each pair has the same layers in the same order; only what the frameworks' own layers prescribe differs (layout,
Flax's variance in one pass, its LSTM with one bias).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

WORDS = 100
"""The decoder's tokens."""


@dataclass(frozen=True, slots=True)
class Transformer:
    """Sizes of a vision transformer or a decoder."""

    depth: int
    width: int
    heads: int
    hidden: int


VIT_B = Transformer(12, 768, 12, 3072)
SMALL = Transformer(2, 64, 4, 128)


class Block(linen.Module):
    """A pre-norm transformer block; causal where ``mask`` says so."""

    size: Transformer

    @linen.compact
    def __call__(self, x: Any, mask: Any = None) -> Any:
        attention = linen.MultiHeadDotProductAttention(self.size.heads)
        y = linen.LayerNorm()(x)
        x = x + attention(y, y, mask=mask)
        y = linen.LayerNorm()(x)
        y = linen.gelu(linen.Dense(self.size.hidden)(y), approximate=False)
        return x + linen.Dense(self.size.width)(y)


class Vit(linen.Module):
    """A vision transformer with a class token; NHWC images."""

    size: Transformer
    patch: int = 16

    @linen.compact
    def __call__(self, image: Any) -> Any:
        x = linen.Conv(self.size.width, (self.patch, self.patch), strides=self.patch, padding="VALID")(image)
        x = x.reshape(x.shape[0], -1, self.size.width)
        token = self.param("token", linen.initializers.normal(), (1, 1, self.size.width))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.size.width)), x], 1)
        x = x + self.param("position", linen.initializers.normal(), (1, x.shape[1], self.size.width))
        for _ in range(self.size.depth):
            x = Block(self.size)(x)
        return linen.Dense(1000)(linen.LayerNorm()(x)[:, 0])


class Decoder(linen.Module):
    """A causal language model over token ids."""

    size: Transformer
    words: int = WORDS

    @linen.compact
    def __call__(self, ids: Any) -> Any:
        x = linen.Embed(self.words, self.size.width)(ids)
        x = x + self.param("position", linen.initializers.normal(), (1, ids.shape[1], self.size.width))
        mask = linen.make_causal_mask(ids)
        for _ in range(self.size.depth):
            x = Block(self.size)(x, mask)
        return linen.Dense(self.words)(linen.LayerNorm()(x))


class Cnn(linen.Module):
    """Convolutions with batch normalisation, pooling and a classifier."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for width, stride in ((16, 1), (32, 2), (64, 2)):
            x = linen.Conv(width, (3, 3), strides=stride, padding=1, use_bias=False)(x)
            x = linen.relu(linen.BatchNorm(use_running_average=True)(x))
        x = linen.max_pool(x, (2, 2), (2, 2))
        return linen.Dense(10)(x.mean((1, 2)))


class Mlp(linen.Module):
    """Three layers."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = linen.silu(linen.Dense(64)(x))
        return linen.softmax(linen.Dense(10)(x))


class Lstm(linen.Module):
    """One LSTM over a sequence, then a classifier on the last step."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(10)(linen.RNN(linen.LSTMCell(32))(x)[:, -1])


class Gru(linen.Module):
    """One GRU over a sequence, then a classifier on the last step."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(10)(linen.RNN(linen.GRUCell(32))(x)[:, -1])


def flax_models() -> dict[str, tuple[linen.Module, Any]]:
    """Small models and an example input each."""
    image = np.zeros((1, 32, 32, 3), np.float32)
    return {
        "vit": (Vit(SMALL, 8), image),
        "decoder": (Decoder(SMALL), np.zeros((1, 12), np.int32)),
        "cnn": (Cnn(), image),
        "mlp": (Mlp(), np.zeros((1, 20), np.float32)),
        "lstm": (Lstm(), np.zeros((1, 9, 20), np.float32)),
        "gru": (Gru(), np.zeros((1, 9, 20), np.float32)),
    }


def exported(model: linen.Module, example: Any) -> bytes:
    """The model with its weights inside as ``jax.export`` bytes."""
    variables = jax.tree.map(_perturbed, model.init(jax.random.key(0), example))
    program = jax.export.export(jax.jit(lambda x: model.apply(variables, x)))
    return bytes(program(jax.ShapeDtypeStruct(example.shape, example.dtype)).serialize())


def _perturbed(value: Any) -> Any:
    """Initial zeros and ones moved a little, as training would; otherwise biases and scales would fold away."""
    rng = np.random.default_rng(value.size)
    return value + jnp.asarray(rng.uniform(0, 0.05, value.shape), value.dtype)
