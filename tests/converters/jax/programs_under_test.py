"""Callables that tests export, as a user's module would hold them."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

WEIGHTS = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)


def classify(x, scale):
    return {"probabilities": jax.nn.softmax(jax.nn.gelu(x * scale) @ WEIGHTS)}


class Convolutional(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.BatchNorm(use_running_average=True)(linen.Conv(8, (3, 3), strides=2)(x)))
        x = linen.avg_pool(linen.max_pool(x, (2, 2), (2, 2)), (2, 2), (2, 2))
        return linen.Dense(10)(x.reshape((x.shape[0], -1)))


class Recurrent(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.RNN(linen.GRUCell(6))(linen.RNN(linen.LSTMCell(6))(x))


def convolutional():
    model = Convolutional()
    return model, model.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))


def recurrent():
    model = Recurrent()
    return model, model.init(jax.random.key(0), jnp.zeros((1, 7, 5)))


def linear():
    return nnx.Linear(3, 4, rngs=nnx.Rngs(0))


TABLE = np.random.default_rng(1).standard_normal((50, 8)).astype(np.float32)


def ranked(ids):
    scores = jnp.asarray(TABLE)[ids].mean(1) @ WEIGHTS
    values, places = jax.lax.top_k(scores, 3)
    return values, places, jnp.sort(scores, -1), jnp.argmax(scores, -1)


def generate(token):
    """Greedy decoding with a key cache in a ``while_loop``."""

    def body(state):
        step, last, cache, out = state
        hidden = jnp.asarray(TABLE)[last]
        cache = jax.lax.dynamic_update_slice(cache, hidden[:, None], (0, step, 0))
        scores = jnp.einsum("bd,btd->bt", hidden, cache)
        weights = jax.nn.softmax(jnp.where(jnp.arange(6) <= step, scores, -1e9))
        following = jnp.argmax(jnp.einsum("bt,btd->bd", weights, cache) @ WEIGHTS, -1).astype(jnp.int32)
        return step + 1, following, cache, jax.lax.dynamic_update_slice(out, following[:, None], (0, step))

    start = (0, token, jnp.zeros((token.shape[0], 6, 8)), jnp.zeros((token.shape[0], 6), jnp.int32))
    return jax.lax.while_loop(lambda state: state[0] < 6, body, start)[3]
