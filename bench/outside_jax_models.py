"""Architectures in plain JAX and in Flax NNX, with drawn weights, for ``bench/outside_jax.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

Shapes = list[tuple[int, ...]]
Made = tuple[Callable[..., Any], Any, Shapes]
"""A function of weights and inputs, the weights, and the inputs' shapes."""
PICTURE: Shapes = [(2, 16, 20, 3)]
WORDS: Shapes = [(2, 9, 16)]


def _module(made: Callable[[nnx.Rngs], nnx.Module], shapes: Shapes) -> Made:
    """An NNX module in evaluation, as a function of its state; batch norms have seen something."""
    module = made(nnx.Rngs(0))
    module.eval()
    graph, state = nnx.split(module)
    rng = np.random.default_rng(4)

    def seen(path: Any, leaf: Any) -> Any:
        words = jax.tree_util.keystr(path)
        if "mean" in words and "norm" in words.lower():
            return jnp.asarray(rng.normal(size=leaf.shape) * 0.3, leaf.dtype)
        return jnp.asarray(rng.uniform(0.1, 2, leaf.shape), leaf.dtype) if "'var'" in words else leaf

    state = jax.tree_util.tree_map_with_path(seen, state)
    return lambda weights, *x: nnx.merge(graph, weights)(*x), state, shapes


def _weights(seed: int, **shapes: tuple[int, ...]) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(rng.normal(size=shape) / np.sqrt(max(1, np.prod(shape[:-1]))), jnp.float32)
        for name, shape in shapes.items()
    }


class Mixer(nnx.Module):
    """Products over places and over channels in turns."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patch = nnx.Conv(3, 16, (4, 4), strides=4, rngs=rngs)
        self.places = nnx.Sequential(nnx.Linear(20, 24, rngs=rngs), nnx.gelu, nnx.Linear(24, 20, rngs=rngs))
        self.channels = nnx.Sequential(nnx.Linear(16, 32, rngs=rngs), nnx.gelu, nnx.Linear(32, 16, rngs=rngs))
        self.one, self.two = nnx.LayerNorm(16, rngs=rngs), nnx.LayerNorm(16, rngs=rngs)
        self.head = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.patch(x).reshape(x.shape[0], 20, 16)
        x = x + self.places(self.one(x).swapaxes(1, 2)).swapaxes(1, 2)
        return self.head((x + self.channels(self.two(x))).mean(1))


class Residual(nnx.Module):
    """A residual network with batch norms and pooling."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.norm = nnx.Conv(3, 8, (7, 7), 2, use_bias=False, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.second, self.norm2 = nnx.Conv(8, 8, (3, 3), rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.max_pool(nnx.relu(self.norm(self.first(x))), (3, 3), (2, 2), "SAME")
        x = nnx.relu(x + self.norm2(self.second(x)))
        return nnx.softmax(self.head(nnx.avg_pool(x, x.shape[1:3], padding="VALID")[:, 0, 0]))


class Attending(nnx.Module):
    """A transformer block; causal where asked, for pictures in patches or rows."""

    def __init__(self, rngs: nnx.Rngs, causal: bool = False, patches: bool = False) -> None:
        self.patch = nnx.Conv(3, 16, (4, 4), strides=4, rngs=rngs) if patches else None
        self.causal, self.norm = causal, nnx.LayerNorm(16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
        self.norm2 = nnx.RMSNorm(16, rngs=rngs)
        self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        if self.patch is not None:
            x = self.patch(x)
            x = x.reshape(x.shape[0], -1, 16)
        mask = nnx.make_causal_mask(x[:, :, 0]) if self.causal else None
        x = x + self.attention(self.norm(x), mask=mask)
        return x + self.down(nnx.silu(self.up(self.norm2(x))))


class Embedded(nnx.Module):
    """Tokens through a causal block to scores by the same table."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.table, self.block = nnx.Embed(11, 16, rngs=rngs), Attending(rngs, causal=True)

    def __call__(self, tokens: Any) -> Any:
        return self.table.attend(self.block(self.table(tokens)))


class Unet(nnx.Module):
    """Down, up by a transposed convolution, with a group norm, a time and attention between."""

    def __init__(self, rngs: nnx.Rngs, timed: bool = False) -> None:
        self.down = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.low = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.norm, self.block = nnx.GroupNorm(16, 4, rngs=rngs), Attending(rngs)
        self.time = nnx.Linear(8, 16, rngs=rngs) if timed else None
        self.up = nnx.ConvTranspose(16, 8, (4, 4), strides=(2, 2), rngs=rngs)
        self.out = nnx.Conv(16, 3, (1, 1), rngs=rngs)

    def __call__(self, x: Any, *times: Any) -> Any:
        skip = nnx.silu(self.down(x))
        y = nnx.silu(self.norm(self.low(skip)))
        if self.time is not None:
            angles = times[0][:, None] * jnp.exp(-jnp.arange(4, dtype=x.dtype))
            y = y + self.time(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))[:, None, None]
        shape = y.shape
        y = self.block(y.reshape(shape[0], -1, 16)).reshape(shape)
        return self.out(jnp.concatenate([skip, self.up(y)], -1))


class Variational(nnx.Module):
    """Mean and deviation of a code, and what the mean decodes to."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.encode, self.code = nnx.Linear(24, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)
        self.decode = nnx.Sequential(nnx.Linear(4, 16, rngs=rngs), nnx.leaky_relu, nnx.Linear(16, 24, rngs=rngs))

    def __call__(self, x: Any) -> Any:
        mean, log_var = jnp.split(self.code(nnx.elu(self.encode(x))), 2, -1)
        return {"mean": mean, "std": jnp.exp(0.5 * jnp.tanh(log_var)), "picture": nnx.sigmoid(self.decode(mean))}


class Recurrent(nnx.Module):
    """A cell over a sequence, both ways."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        cells = [nnx.RNN(nnx.GRUCell(16, 6, rngs=rngs)) for _ in range(2)]
        self.both, self.out = nnx.Bidirectional(*cells), nnx.RNN(nnx.OptimizedLSTMCell(12, 5, rngs=rngs))

    def __call__(self, x: Any) -> Any:
        zero = [jnp.zeros((x.shape[0], n), x.dtype) for n in (6, 6, 5, 5)]
        y = self.both(x, initial_carry=(zero[0], zero[1]))
        return self.out(y, initial_carry=(zero[2], zero[3]))


def of_modules() -> Mapping[str, Callable[[], Made]]:
    """Architectures as NNX modules."""
    return {
        "mixer": lambda: _module(Mixer, PICTURE),
        "resnet": lambda: _module(Residual, PICTURE),
        "vit": lambda: _module(lambda r: Attending(r, patches=True), PICTURE),
        "causal-block": lambda: _module(lambda r: Attending(r, causal=True), WORDS),
        "gpt-tokens": lambda: _module(Embedded, [(2, 9)]),
        "unet": lambda: _module(Unet, PICTURE),
        "diffusion-unet": lambda: _module(lambda r: Unet(r, timed=True), [*PICTURE, (2,)]),
        "vae": lambda: _module(Variational, [(2, 24)]),
        "bidirectional-rnn": lambda: _module(Recurrent, WORDS),
    }


def lstm(w: Any, x: Any) -> Any:
    """A cell by hand, scanned over time, with peepholes."""

    def turn(state: Any, row: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(row @ w["x"] + h @ w["h"], 4, -1)
        c = jax.nn.sigmoid(f + c * w["p"]) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[0], 6), x.dtype)
    return lax.scan(turn, (zero, zero), x.swapaxes(0, 1))[1].swapaxes(0, 1)


EDGES = np.array([[0, 1], [1, 2], [2, 0], [3, 1], [4, 3], [0, 4], [2, 4]])


def graph(w: Any, x: Any) -> Any:
    """Messages along edges, summed, averaged and the largest of."""
    messages = jax.nn.relu(jnp.concatenate([x[EDGES[:, 0]], x[EDGES[:, 1]]], -1) @ w["m"])
    total = jax.ops.segment_sum(messages, EDGES[:, 1], 5)
    count = jax.ops.segment_sum(jnp.ones_like(messages[:, :1]), EDGES[:, 1], 5)
    largest = jax.ops.segment_max(messages, EDGES[:, 1], 5)
    return jnp.concatenate([x, total / jnp.maximum(count, 1), jnp.maximum(largest, -1.0)], -1) @ w["u"]


def flow(w: Any, x: Any) -> Any:
    """Two couplings with their log-determinant."""
    total = jnp.zeros(x.shape[0], x.dtype)
    for k in ("a", "b"):
        keep, move = jnp.split(x, 2, -1)
        scale, shift = jnp.split(jnp.tanh(keep @ w[k]), 2, -1)
        x = jnp.concatenate([move * jnp.exp(scale) + shift, keep], -1)
        total = total + scale.sum(-1)
    return x, total


def nerf(w: Any, x: Any) -> Any:
    """Octaves of sines, densities composed along a ray."""
    octaves = (x[..., None] * 2.0 ** jnp.arange(4, dtype=x.dtype)).reshape(*x.shape[:-1], -1)
    y = jax.nn.relu(jnp.concatenate([jnp.sin(octaves), jnp.cos(octaves)], -1) @ w["a"]) @ w["b"]
    alpha = 1 - jnp.exp(-jax.nn.softplus(y[..., 0]))
    light = jnp.cumprod(jnp.concatenate([jnp.ones_like(alpha[:, :1]), 1 - alpha[:, :-1]], 1), 1)
    return ((alpha * light)[..., None] * jax.nn.sigmoid(y[..., 1:])).sum(1)


def state_space(w: Any, x: Any) -> Any:
    """A linear recurrence by an associative scan."""
    decay, given = jax.nn.sigmoid(x @ w["d"]), x @ w["g"]

    def join(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    return lax.associative_scan(join, (decay, given), axis=1)[1] @ w["o"]


def linear_attention(w: Any, x: Any) -> Any:
    """Causal attention by running sums of products."""
    q, k, v = (jax.nn.elu(x @ w[n]) + 1 for n in "qkv")
    total = jnp.cumsum(jnp.einsum("btk,btv->btkv", k, v), 1)
    return jnp.einsum("btk,btkv->btv", q, total) / jnp.einsum("btk,btk->bt", q, jnp.cumsum(k, 1))[..., None]


def perceiver(w: Any, x: Any) -> Any:
    """A few latents ask many inputs."""
    scores = jnp.einsum("lc,btc->blt", w["l"] @ w["q"], x @ w["k"]) / 4
    return jnp.einsum("blt,btc->blc", jax.nn.softmax(scores), x @ w["v"])


def experts(w: Any, x: Any) -> Any:
    """The two best of four experts for each token."""
    best, which = lax.top_k(jax.nn.softmax(x @ w["r"]), 2)
    chosen = (jax.nn.one_hot(which, 4, dtype=x.dtype) * (best / best.sum(-1, keepdims=True))[..., None]).sum(-2)
    return jnp.einsum("bte,btec->btc", chosen, jax.nn.gelu(jnp.einsum("btc,ecd->bted", x, w["e"])))


def wavenet(w: Any, x: Any) -> Any:
    """Causal dilated convolutions with gates."""
    for k, step in (("a", 1), ("b", 2), ("c", 4)):
        y = lax.conv_general_dilated(
            x, w[k], (1,), [(step, 0)], rhs_dilation=(step,), dimension_numbers=("NWC", "WIO", "NWC")
        )
        x = x + jnp.tanh(y[..., :16]) * jax.nn.sigmoid(y[..., 16:])
    return x


def capsules(w: Any, x: Any) -> Any:
    """Routing by agreement in a loop of three turns."""
    votes = jnp.einsum("btc,tcjd->btjd", x, w["v"])

    def squash(s: Any) -> Any:
        n = (s**2).sum(-1, keepdims=True)
        return n / (1 + n) * s * lax.rsqrt(n + 1e-7)

    def turn(_: Any, logits: Any) -> Any:
        out = squash(jnp.einsum("btj,btjd->bjd", jax.nn.softmax(logits), votes))
        return logits + jnp.einsum("btjd,bjd->btj", votes, out)

    logits = lax.fori_loop(0, 3, turn, jnp.zeros(votes.shape[:3], x.dtype))
    return squash(jnp.einsum("btj,btjd->bjd", jax.nn.softmax(logits), votes))


def neural_ode(w: Any, x: Any) -> Any:
    """Runge and Kutta's steps in a loop."""

    def speed(y: Any) -> Any:
        return jnp.tanh(y @ w["a"]) @ w["b"]

    def step(_: Any, y: Any) -> Any:
        a = speed(y)
        b = speed(y + 0.05 * a)
        c = speed(y + 0.05 * b)
        return y + 0.1 / 6 * (a + 2 * b + 2 * c + speed(y + 0.1 * c))

    return lax.fori_loop(0, 10, step, x)


def depthwise(w: Any, x: Any) -> Any:
    """A ConvNeXt block with a layer scale."""
    y = lax.conv_general_dilated(
        x, w["d"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=3
    )
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + 1e-6)
    return x + w["s"] * (jax.nn.gelu(y @ w["u"]) @ w["v"])


def rope(w: Any, x: Any) -> Any:
    """Grouped queries with turned keys, causal."""
    angle = jnp.arange(9, dtype=x.dtype)[:, None] * (100.0 ** -jnp.arange(0, 1, 0.5, dtype=x.dtype))

    def turned(y: Any) -> Any:
        a, b = jnp.split(y, 2, -1)
        c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    def split(name: str, heads: int) -> Any:
        return (x @ w[name]).reshape(x.shape[0], 9, heads, 4)

    q, k, v = turned(split("q", 4)), turned(split("k", 2)), split("v", 2)
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape[0], 9, 16)


def windows(w: Any, x: Any) -> Any:
    """Attention in shifted windows."""
    y = jnp.roll(x, (-2, -2), (1, 2)).reshape(-1, 4, 4, 5, 4, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 20, 16, 3)
    q, k, v = jnp.split(y @ w["q"], 3, -1)
    y = jax.nn.softmax(jnp.einsum("bwic,bwjc->bwij", q, k) + w["b"]) @ v
    y = y.reshape(-1, 4, 5, 4, 4, 4).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, 20, 4)
    return jnp.roll(y, (2, 2), (1, 2))


def fourier(w: Any, x: Any) -> Any:
    """Some frequencies multiplied, as Fourier neural operators do."""
    f = jnp.fft.rfft(x, axis=1)[:, :4]
    y = jnp.einsum("bkc,kcd->bkd", f, w["r"] + 1j * w["i"])
    return jnp.fft.irfft(jnp.pad(y, ((0, 0), (0, 5), (0, 0))), 16, axis=1) + x @ w["s"]


def equilibrium(w: Any, x: Any) -> Any:
    """Turns until little changes."""

    def going(state: Any) -> Any:
        return (state[2] < 40) & (jnp.abs(state[0] - state[1]).max() > 1e-2)

    def turn(state: Any) -> Any:
        return jnp.tanh(state[0] @ w["a"] * 0.3 + x), state[0], state[2] + 1

    return lax.while_loop(going, turn, (jnp.tanh(x), jnp.zeros_like(x), 0))[0]


def neighbours(w: Any, x: Any) -> Any:
    """Places of the nearest rows of a table, and their mean."""
    far = ((x[:, None] - w["t"][None]) ** 2).sum(-1)
    _, which = lax.top_k(-far, 3)
    return which, w["t"][which].mean(1)


def suppressed(w: Any, x: Any) -> Any:
    """Boxes that overlap better ones lose their scores, in a loop."""
    boxes, scores = jnp.cumsum(jax.nn.sigmoid(x[..., :4]), -1), jax.nn.sigmoid(x @ w["s"])[..., 0]
    low, high = jnp.maximum(boxes[:, None, :2], boxes[None, :, :2]), jnp.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    inner = jnp.maximum(high - low, 0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    overlap = inner / (area[:, None] + area[None] - inner)

    def turn(i: Any, kept: Any) -> Any:
        return jnp.where((overlap[i] > 0.5) & (scores < scores[i]) & (kept[i] > 0), 0.0, kept)

    return lax.fori_loop(0, x.shape[0], turn, scores)


def pools(w: Any, x: Any) -> Any:
    """Windows of several kinds, then a picture made larger and smaller."""
    y = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    z = lax.reduce_window(x, jnp.zeros((), x.dtype), lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    big = jax.image.resize((y - z) @ w["c"], (x.shape[0], 24, 15, 4), "bilinear")
    return jax.image.resize(big, (x.shape[0], 7, 9, 4), "cubic")


def eigenvalues(w: Any, x: Any) -> Any:
    """A linear recurrent unit with complex decay, scanned."""
    decay = jnp.exp(-jnp.exp(w["n"]) + 1j * jnp.exp(w["t"]))

    def turn(h: Any, row: Any) -> Any:
        h = decay * h + row @ (w["b"] + 1j * w["c"])
        return h, (h @ (w["o"] + 1j * w["o"])).real

    zero = jnp.zeros((x.shape[0], 6), decay.dtype)
    return lax.scan(turn, zero, x.swapaxes(0, 1))[1].swapaxes(0, 1)


def decoding(w: Any, x: Any) -> Any:
    """The best token again and again, by a table of follow-ups."""

    def turn(k: Any, state: Any) -> Any:
        tokens, h = state
        h = jnp.tanh(h @ w["h"] + w["e"][tokens[:, k]])
        return tokens.at[:, k + 1].set(jnp.argmax(h @ w["o"], -1).astype(jnp.int32)), h

    tokens = jnp.zeros((x.shape[0], 7), jnp.int32)
    return lax.fori_loop(0, 6, turn, (tokens, x))


def weight_standardized(w: Any, x: Any) -> Any:
    """Convolutions whose weights are normalised on the way, with a spectral norm by power iteration."""
    k = (w["k"] - w["k"].mean((0, 1, 2))) / jnp.sqrt(w["k"].var((0, 1, 2)) + 1e-5)
    y = lax.conv(x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1), (2, 1), "SAME")
    u = jnp.ones(6, x.dtype)
    for _ in range(3):
        v = w["m"].T @ u
        u = w["m"] @ (v / jnp.linalg.norm(v))
    return y.mean((2, 3)) @ (w["m"] / jnp.linalg.norm(u))


def energy(w: Any, x: Any) -> Any:
    """Forces: the gradient of an energy of all pairs, and its Hessian's diagonal by two derivatives."""

    def total(y: Any) -> Any:
        far = jnp.sqrt(((y[:, None] - y[None]) ** 2).sum(-1) + 0.1)
        return (jnp.tanh(far[..., None] @ w["a"]) @ w["b"]).sum()

    return jax.grad(total)(x), jax.jvp(jax.grad(total), (x,), (jnp.ones_like(x),))[1]


def plain() -> Mapping[str, Callable[[], Made]]:
    """Architectures as functions of weights."""
    n = _weights
    return {
        "lstm-peepholes": lambda: (lstm, n(1, x=(16, 24), h=(6, 24), p=(6,)), WORDS),
        "graph-net": lambda: (graph, n(2, m=(12, 8), u=(22, 4)), [(5, 6)]),
        "flow": lambda: (flow, n(3, a=(4, 8), b=(4, 8)), [(2, 8)]),
        "nerf": lambda: (nerf, n(4, a=(24, 16), b=(16, 4)), [(2, 10, 3)]),
        "state-space": lambda: (state_space, n(5, d=(16, 8), g=(16, 8), o=(8, 4)), WORDS),
        "linear-attention": lambda: (linear_attention, n(6, q=(16, 4), k=(16, 4), v=(16, 5)), WORDS),
        "perceiver": lambda: (perceiver, n(7, l=(3, 8), q=(8, 4), k=(16, 4), v=(16, 6)), WORDS),
        "experts": lambda: (experts, n(8, r=(16, 4), e=(4, 16, 16)), WORDS),
        "wavenet": lambda: (wavenet, n(9, a=(2, 16, 32), b=(2, 16, 32), c=(2, 16, 32)), WORDS),
        "capsules": lambda: (capsules, n(10, v=(9, 16, 3, 4)), WORDS),
        "neural-ode": lambda: (neural_ode, n(11, a=(6, 12), b=(12, 6)), [(2, 6)]),
        "depthwise": lambda: (depthwise, n(12, d=(7, 7, 1, 3), s=(3,), u=(3, 12), v=(12, 3)), PICTURE),
        "rope": lambda: (rope, n(13, q=(16, 16), k=(16, 8), v=(16, 8)), WORDS),
        "shifted-windows": lambda: (windows, n(14, q=(3, 12), b=(16, 16)), PICTURE),
        "fourier-operator": lambda: (fourier, n(15, r=(4, 6, 6), i=(4, 6, 6), s=(6, 6)), [(2, 16, 6)]),
        "equilibrium": lambda: (equilibrium, n(16, a=(6, 6)), [(2, 6)]),
        "neighbours": lambda: (neighbours, n(17, t=(12, 6)), [(2, 6)]),
        "suppression": lambda: (suppressed, n(18, s=(5, 1)), [(7, 5)]),
        "pools": lambda: (pools, n(19, c=(3, 4)), PICTURE),
        "complex-recurrence": lambda: (eigenvalues, n(20, n=(6,), t=(6,), b=(16, 6), c=(16, 6), o=(6, 4)), WORDS),
        "greedy-decoding": lambda: (decoding, n(21, h=(6, 6), e=(8, 6), o=(6, 8)), [(2, 6)]),
        "standardized-weights": lambda: (weight_standardized, n(22, k=(3, 3, 3, 6), m=(6, 4)), PICTURE),
        "forces": lambda: (energy, n(23, a=(1, 5), b=(5, 1)), [(5, 3)]),
    }  # fmt: skip


def models() -> Mapping[str, Callable[[], Made]]:
    """All of them."""
    return {**of_modules(), **plain()}
