"""The models of the JAX grid, as users write them; small, with seeded weights.

Each is a function without parameters that makes the model, or a function of the inputs: what
``pkg.mod:callable`` may name.  Batch comes first in every input but ``position``.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

WORDS, WIDTH, HEADS, STEPS = 24, 16, 2, 8


def _trained(variables):
    """Initial zeros and ones moved a little, as training would; otherwise biases and scales would fold away."""

    def moved(value):
        if not jnp.issubdtype(value.dtype, jnp.floating):
            return value
        shift = np.random.default_rng(value.size).uniform(0.02, 0.1, value.shape)
        return value + jnp.asarray(shift, value.dtype)

    return jax.tree.map(moved, variables)


def _linen(module, *example):
    return module, _trained(module.init(jax.random.key(0), *example))


def _nnx(module):
    nnx.update(module, _trained(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat))))
    module.eval()
    return module


class LinenCnn(linen.Module):
    @linen.compact
    def __call__(self, x):
        for width, stride in ((8, 1), (16, 2)):
            x = linen.Conv(width, (3, 3), strides=stride, use_bias=False)(x)
            x = linen.relu(linen.BatchNorm(use_running_average=True)(x))
        x = linen.Conv(16, (3, 3), feature_group_count=16)(x)
        x = linen.avg_pool(linen.max_pool(x, (2, 2), (2, 2)), (2, 2), (2, 2))
        return linen.Dense(10)(x.reshape((x.shape[0], -1)))


class LinenBlock(linen.Module):
    @linen.compact
    def __call__(self, x):
        y = linen.LayerNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(4)(y, y)
        y = linen.gelu(linen.Dense(64)(linen.LayerNorm()(x)), approximate=False)
        return x + linen.Dense(32)(y)


class LinenVit(linen.Module):
    @linen.compact
    def __call__(self, image):
        x = linen.Conv(32, (8, 8), strides=8, padding="VALID")(image).reshape((image.shape[0], -1, 32))
        token = self.param("token", linen.initializers.normal(), (1, 1, 32))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, 32)), x], 1)
        x = x + self.param("position", linen.initializers.normal(), (1, x.shape[1], 32))
        for _ in range(2):
            x = LinenBlock()(x)
        return linen.Dense(10)(linen.LayerNorm()(x)[:, 0])


class LinenRecurrent(linen.Module):
    cell: type[linen.RNNCellBase]

    @linen.compact
    def __call__(self, x):
        x = linen.Bidirectional(linen.RNN(self.cell(12)), linen.RNN(self.cell(12)))(x)
        return linen.Dense(5)(linen.RNN(self.cell(16))(x)[:, -1])


class NnxCnn(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.head = nnx.Linear(16, 10, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, image):
        x = nnx.max_pool(nnx.relu(self.norm(self.first(image))), (2, 2), (2, 2))
        return self.head(self.drop(nnx.silu(self.second(x)).mean((1, 2))))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.before, self.between = nnx.LayerNorm(32, rngs=rngs), nnx.LayerNorm(32, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.before(x))
        return x + self.down(nnx.gelu(self.up(self.between(x))))


class NnxVit(nnx.Module):
    def __init__(self, rngs):
        self.patches = nnx.Conv(3, 32, (8, 8), strides=8, padding="VALID", rngs=rngs)
        self.position = nnx.Param(0.1 * jax.random.normal(rngs.params(), (1, 16, 32)))
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(2)])
        self.norm, self.head = nnx.LayerNorm(32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, image):
        x = self.patches(image).reshape((image.shape[0], -1, 32)) + self.position[...]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class NnxRecurrent(nnx.Module):
    """A scan that carries the state of a cell over time, written with ``nnx.RNN``."""

    def __init__(self, cell, rngs):
        self.scan = nnx.RNN(cell(6, 16, rngs=rngs))
        self.head = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(self.scan(x)[:, -1])


def linen_cnn():
    return _linen(LinenCnn(), jnp.zeros((1, 16, 16, 3)))


def linen_vit():
    return _linen(LinenVit(), jnp.zeros((1, 32, 32, 3)))


def linen_lstm():
    return _linen(LinenRecurrent(linen.OptimizedLSTMCell), jnp.zeros((1, 9, 6)))


def linen_gru():
    return _linen(LinenRecurrent(linen.GRUCell), jnp.zeros((1, 9, 6)))


def nnx_cnn():
    return _nnx(NnxCnn(nnx.Rngs(0)))


def nnx_vit():
    return _nnx(NnxVit(nnx.Rngs(0)))


def nnx_lstm():
    return _nnx(NnxRecurrent(nnx.LSTMCell, nnx.Rngs(0)))


def nnx_gru():
    return _nnx(NnxRecurrent(nnx.GRUCell, nnx.Rngs(0)))


def _matrices(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape) / np.sqrt(shape[-2]), jnp.float32) for shape in shapes]


_TABLE, _QKV, _OUT, _UP, _DOWN, _HEAD = _matrices(
    3, (WORDS, WIDTH), (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH), (WIDTH, WORDS)
)


def _normed(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def decoder(token, position, keys, values):
    """One step of a transformer with a cache of keys and values: logits and the changed caches.

    token (batch,) int32, position () int32, caches (batch, STEPS, HEADS, WIDTH // HEADS).
    """
    x = 4 * _TABLE[token]
    q, k, v = (part.reshape((-1, 1, HEADS, WIDTH // HEADS)) for part in jnp.split(_normed(x) @ _QKV, 3, -1))
    keys = jax.lax.dynamic_update_slice(keys, k, (0, position, 0, 0))
    values = jax.lax.dynamic_update_slice(values, v, (0, position, 0, 0))
    scores = jnp.einsum("bqhd,bthd->bhqt", q, keys) / np.sqrt(WIDTH // HEADS)
    weights = jax.nn.softmax(jnp.where(jnp.arange(STEPS) <= position, scores, -1e9), -1)
    x = x + jnp.einsum("bhqt,bthd->bqhd", weights, values).reshape((-1, WIDTH)) @ _OUT
    x = x + jax.nn.silu(_normed(x) @ _UP) @ _DOWN
    return {"logits": _normed(x) @ _HEAD, "keys": keys, "values": values}


def generate(token):
    """Greedy sampling with the decoder in a ``while_loop``: STEPS tokens, and the logits of the last step."""
    batch = token.shape[0]
    empty = jnp.zeros((batch, STEPS, HEADS, WIDTH // HEADS))

    def step(state):
        position, last, keys, values, said, _ = state
        made = decoder(last, position, keys, values)
        following = jnp.argmax(made["logits"], -1).astype(jnp.int32)
        said = jax.lax.dynamic_update_slice(said, following[:, None], (0, position))
        return position + 1, following, made["keys"], made["values"], said, made["logits"]

    start = (0, token, empty, empty, jnp.zeros((batch, STEPS), jnp.int32), jnp.zeros((batch, WORDS)))
    *_, said, logits = jax.lax.while_loop(lambda state: state[0] < STEPS, step, start)
    return {"tokens": said, "logits": logits}


def ranked(ids):
    """Scores of a bag of words: the three best, where they stand, and all in order."""
    scores = _TABLE[ids].mean(1) @ _HEAD
    best, places = jax.lax.top_k(scores, 3)
    return {"best": best, "places": places, "sorted": jnp.sort(scores, -1), "winner": jnp.argmax(scores, -1)}
